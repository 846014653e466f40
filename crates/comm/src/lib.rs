//! Ranks, their groups, and how they talk.
//!
//! - [`Grid`] places a rank on the three axes tensor, data, pipeline and lists the
//!   ranks of each [`Group`].
//! - [`Comm`] is what a rank talks through: collectives over a group, tagged messages
//!   between two ranks, a poison flag that ends every wait.
//! - [`threads`] is the engine for ranks that are threads of one process;
//!   [`threads::run_ranks`] runs them and says which failed first.
//! - [`Faulty`] wraps any engine and makes a rank fail on purpose.
//!
//! ```
//! use henge_comm::threads::{Options, run_ranks, world};
//! use henge_comm::{Comm, CommError, Grid, Group, Reduce, Tag};
//! use henge_spec::Layout;
//! use henge_tensor::{Transfer, ViewMut};
//!
//! struct Message(Vec<f32>);
//! impl Transfer for Message {
//!     fn view_mut(&mut self) -> ViewMut<'_> {
//!         ViewMut::of(&mut self.0)
//!     }
//! }
//!
//! let grid = Grid::new(&Layout { tensor: 2, pipeline: 2, ..Layout::ONE });
//! let ends = world::<Message>(grid, Options::new(grid.ranks(), 1));
//! let received = run_ranks(ends, |comm| {
//!     // Sum over the tensor group: ranks 0 and 1, and ranks 2 and 3.
//!     let mut sum = [comm.rank() as f32];
//!     comm.all_reduce(Group::Tensor, ViewMut::of(&mut sum), Reduce::Sum)?;
//!     // Each rank of the first stage hands its sum to its peer on the second.
//!     let tag = Tag { direction: 0, stage: 0, microbatch: 0 };
//!     match comm.rank() {
//!         first @ (0 | 1) => {
//!             comm.send(first + 2, tag, Message(sum.to_vec()))?;
//!             comm.wait_send(first + 2, tag)?;
//!             Ok(vec![])
//!         }
//!         second => {
//!             comm.post_receive(second - 2, tag, Box::new(|| Message(vec![0.0])))?;
//!             Ok::<_, CommError>(comm.wait_receive(second - 2, tag)?.0)
//!         }
//!     }
//! });
//! assert_eq!(received.unwrap(), [vec![], vec![], vec![1.0], vec![1.0]]);
//! ```
//!
//! This crate must not know: models, schedules.

mod comm;
mod error;
mod faulty;
mod grid;
mod signature;
pub mod threads;
mod timed;
mod wait;

pub use comm::{Comm, Reduce, Tag};
pub use error::CommError;
pub use faulty::{Fault, FaultKind, Faulty};
pub use grid::{Grid, Group, Place};
pub use signature::{Kind, Signature};
pub use timed::Timed;
pub use wait::{Route, Wait};
