//! The CPU backends of Henge: the operations of a transformer step on one rank's cores.
//!
//! - [`Plain`] computes every operation by its definition, in f32 or f64, and is the truth
//!   that everything faster is tested against.
//! - [`Fast`] computes in f32 with vector instructions picked at run time ([`Level`]), on
//!   its own [`Team`] of threads, in its own pool. Its results have the same bits for any
//!   number of threads.
//! - Both keep their numbers in [`Activation`] (a token a row) and [`Flat`], and both can
//!   round the operands of products to a lower precision ([`Rounding`]).
//! - [`features()`] and [`ceiling`] say what the processor has and what it could do at
//!   best, for reports that put a rate beside its peak.
//!
//! ```
//! use henge_cpu::{Fast, Plain, Rounding};
//! use henge_tensor::{Backend, Buffer, Kind};
//!
//! // y = x w^T with w = [[1, 2], [3, 4], [5, 6]], on any backend.
//! fn product<B: Backend<Real = f32>>(backend: &B) -> Vec<f32> {
//!     let mut parameters = backend.zeros(6, Kind::Weight);
//!     parameters.write(0, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//!     let weight = backend.prepare(&parameters, 0, 3, 2);
//!     let x = backend.upload(1, 2, &[10.0, 1.0]);
//!     backend.download(&backend.linear(&x, &weight, None))
//! }
//! assert_eq!(product(&Fast::new(2, Rounding::Exact)), [12.0, 34.0, 56.0]);
//! assert_eq!(product(&Plain::new()), [12.0, 34.0, 56.0]);
//! ```
//!
//! This crate must not know: models, ranks, files, schedules.

mod bf16;
pub mod ceiling;
mod fast;
mod features;
mod math;
mod memory;
mod plain;
mod product;
mod rounding;
mod simd;
mod team;
mod tile;

pub use fast::{Fast, FastLogits, FastWeight};
pub use features::{Features, features};
pub use memory::{Activation, Flat};
pub use plain::{Plain, PlainLogits, PlainNormStats, PlainWeight};
pub use rounding::Rounding;
pub use simd::Level;
pub use team::Team;
pub use tile::Tiles;
