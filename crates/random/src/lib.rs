//! Random numbers that are functions of a place, not of a history.
//!
//! Every random choice of a run (initial weights, dropout masks, the order of samples) is computed from
//! a key and a counter: the key names *what* is drawn (the run's seed and a site or a parameter), the
//! counter names *which element*. There is no generator state, so the value of an element depends on
//! no rank, thread, call order or microbatch, and two layouts of one run draw the same numbers.
//!
//! - [`Philox`] is the counter-based generator (Philox4x32-10) under all of it.
//! - [`key`] turns a seed and a name into the 64-bit key of one stream.
//! - [`normal`] and [`fill_normal`] give element `i` of a logical tensor of standard normals.
//! - [`uniform`] holds the conversions of random words to `[0, 1)` and to a bounded integer.
//! - [`Dropout`] gives the keep bits of one dropout site.
//! - [`Permutation`] is a keyed shuffle of `0..n` in constant memory, with its inverse.
//!
//! ```
//! use henge_random::{Dropout, Permutation, Site, fill_normal, key};
//!
//! // A column split of a tensor draws the same numbers as the whole tensor.
//! let stream = key(1234, "transformer.h.0.mlp.c_fc.weight");
//! let (mut whole, mut part) = ([0f32; 10], [0f32; 4]);
//! fill_normal(stream, 0, 0.02, &mut whole);
//! fill_normal(stream, 6, 0.02, &mut part);
//! assert_eq!(whole[6..], part);
//!
//! let dropout = Dropout::new(1234, Site::MlpResidual, 0.1);
//! let mut row = [0f32; 16];
//! dropout.fill_row(7, 0, 0, 3, 0, &mut row);
//! assert!(row.iter().all(|&m| m == 0.0 || m == dropout.scale()));
//!
//! let order = Permutation::new(key(1234, "epoch 0"), 1_000_000_007);
//! assert_eq!(order.invert(order.apply(42)), 42);
//! ```
//!
//! This crate must not know anything else of Henge: no tensors, models, ranks or files.

mod dropout;
mod key;
mod normal;
mod permutation;
mod philox;
pub mod uniform;

pub use dropout::{Dropout, Site};
pub use key::{key, mix};
pub use normal::{fill_normal, normal, normals_of_block};
pub use permutation::Permutation;
pub use philox::Philox;
