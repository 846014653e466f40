//! Which tokens make sample `i` of a run.
//!
//! A sample is `s + 1` consecutive tokens: the inputs are the first `s`, the targets the last `s`. Within
//! a part of a corpus, sample `j` begins at token `j * s`, so neighbours share one token and every token
//! but the first is a target exactly once an epoch. In the `formula` order a keyed permutation shuffles
//! the samples of each epoch anew; in the sequential order they come as they lie. Both are functions of
//! `i`: there is no index file to build, and no rank waits for another. [`SampleOrder::megatron`] serves
//! the samples of a run that was begun with Megatron.

mod blend;
mod curriculum;
mod megatron;
mod mt19937;
mod samples;
mod split;

pub use blend::Blend;
pub use curriculum::BlendStage;
pub use megatron::{MegatronIndex, MegatronOptions};
pub use samples::{Location, MegatronRun, Piece, SampleOrder};
pub use split::{Part, Split};
