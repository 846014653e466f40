//! Which tokens make sample `i` of a run.
//!
//! A sample is `s + 1` consecutive tokens: the inputs are the first `s`, the targets the last `s`. Within
//! a part of a corpus, sample `j` begins at token `j * s`, so neighbours share one token and every token
//! but the first is a target exactly once an epoch. In the `formula` order a keyed permutation shuffles
//! the samples of each epoch anew; in the sequential order they come as they lie. Both are functions of
//! `i`: there is no index file to build, and no rank waits for another.

mod blend;
mod samples;
mod split;

pub use blend::Blend;
pub use samples::{Location, Piece, SampleOrder};
pub use split::{Part, Split};
