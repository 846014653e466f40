//! What a compute backend offers to a transformer, and the memory it works in.
//!
//! - [`Backend`] is the transformer's operation set. It is a static generic: a model
//!   is written once and compiled for each backend. No operation contains
//!   communication; where a parallel layer must talk, the operation is cut in two.
//! - [`Pool`] hands out buffers on huge pages and takes them back wherever they are
//!   dropped; [`Held`] counts the bytes in use by [`Kind`].
//! - [`Timed`] is a backend around another that writes what each operation costs to a
//!   [`Ledger`].
//! - `conformance` (a feature, for tests) holds any backend's operations to a reference.
//! - [`View`] and [`ViewMut`] are all that a transport ever sees of a tensor.
//!
//! Activations are matrices `[rows, columns]`, where a row is one token: row
//! `sample * seq + position` of a `[b, s, h]` tensor. Weights are `[out, in]`.
//! Parameter gradients add to a flat buffer; activation gradients overwrite, except
//! where an operation says that it adds to the residual stream.
//!
//! ```
//! use henge_tensor::{Kind, Pool};
//! let pool = Pool::new();
//! let buffer = pool.take(1 << 20, Kind::Activation);
//! assert_eq!(pool.held().bytes(Kind::Activation), 1 << 20);
//! drop(buffer);
//! assert_eq!(pool.held().bytes(Kind::Activation), 0);
//! ```
//!
//! This crate must not know: any model, any rank.

mod backend;
mod cached;
#[cfg(feature = "conformance")]
pub mod conformance;
mod ledger;
mod pool;
mod real;
mod timed;
mod view;

// Part of the trait's signatures; an implementation needs no other crate for them.
pub use henge_spec::{DType, Precision};

pub use backend::{
    AdamStep, AttentionCall, AttentionShape, Backend, Buffer, DropoutAt, Mask, Matrix, NonLinearity, RotaryTable,
    Rotation, Turn, VocabularyShard, VocabularyStats,
};
pub use cached::{CachedAttention, CachedRun};
pub use ledger::{Entry, Ledger, Operation};
pub use pool::{HUGE_PAGE, Held, Kind, Pool, Pooled};
pub use real::Real;
pub use timed::{ElementBytes, Timed, TimedWeight};
pub use view::{Device, Transfer, View, ViewMut};
