//! Layers and their parallel forms, and the models made of them.
//!
//! - [`Store`] holds a rank's share of the logical parameters in one flat buffer, with
//!   a flat gradient buffer beside it.
//! - [`Stage`] is a run of layers, with the embedding before the first and the head
//!   after the last; [`Stage::forward`] and [`Stage::backward`] are written down, no
//!   tape records them.
//! - [`Stage::decode`] runs new tokens over the cached keys and values of earlier ones;
//!   [`Stage::score`] asks how well targets are predicted.
//! - [`Context`] is what every layer is handed: backend, communicator, place, dropout.
//!
//! Each layer is a file with `forward`, `backward` and the struct that the one saves for
//! the other. Parameter gradients add; activation gradients overwrite, except on the
//! residual stream. Two operators are the only places where the tensor group talks
//! (1909.08053, section 3): [`Context::reduce_forward`] (g) after a row-parallel linear
//! and [`Context::reduce_backward`] (f) before a column-parallel one; the vocabulary loss
//! adds three reductions of one number per token.
//!
//! Shapes: an activation is `[b s, h]`, a token a row, sequences outermost.
//!
//! ```
//! use henge_model::Place;
//! use henge_spec::{Layout, Model};
//! let model = Model::gpt(4, 64, 4, 32, 500);
//! let layout = Layout { pipeline: 2, ..Layout::ONE };
//! let place = Place { tensor: 0, tensors: 1, stage: 1, stages: layout.stages() };
//! assert_eq!(place.layers(&model), 2..4);
//! assert!(place.is_last() && !place.is_first());
//! ```
//!
//! This crate must not know: files, schedules.

mod attention;
mod context;
mod decode;
mod embedding;
mod head;
mod layer;
mod linear;
mod mlp;
mod norm;
mod order;
mod pooler;
mod residual;
mod scoring;
mod stage;
mod store;
mod task;
mod vocabulary;

pub use context::{Context, Dropouts, Microbatch, Place};
pub use decode::{Cache, Step};
pub use head::Losses;
pub use scoring::Scored;
pub use stage::{Output, Saved, Stage};
pub use store::{Slot, Store, TOKEN_TABLE};
pub use vocabulary::{LOSS_BLOCK, LossGradient, Score, TokenLosses};
