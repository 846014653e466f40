//! Ranks, their groups, and how they talk.
//!
//! - [`Grid`] places a rank on the three axes tensor, data, pipeline and lists the
//!   ranks of each [`Group`].
//! - [`Comm`] is what a rank talks through: collectives over a group, tagged messages
//!   between two ranks, a poison flag that ends every wait.
//! - [`threads`] is the engine for ranks that are threads of one process.
//!
//! This crate must not know: models, schedules.

mod comm;
mod error;
mod grid;
pub mod threads;

pub use comm::{Comm, Reduce, Tag};
pub use error::CommError;
pub use grid::{Grid, Group, Place};
