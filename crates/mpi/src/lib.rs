//! Ranks that are processes under MPI.
//!
//! - [`World`] is a process's start under `mpirun` or `srun`: how many ranks there are, which
//!   of them share its host, and what all agree on before any work.
//! - [`MpiComm`] is a rank's end: the [`Comm`](henge_comm::Comm) of a grid that fills the world.
//!
//! Everything is built on MPI's non-blocking transfers between two ranks. MPI's own reductions
//! were rejected: their order of summation is the library's secret and changes with the size
//! and the number of ranks, and a wait inside them can neither be timed nor ended. Here sums
//! are taken in the order of ranks, so they are the bits of the engine of threads.
//!
//! **Threads.** Only the thread that started MPI calls it, so `MPI_THREAD_FUNNELED` is asked
//! for, and less is refused.
//!
//! **Failure.** A transfer that MPI has begun cannot be called back, so what is received goes
//! into memory of this crate's, never into a borrowed buffer, and that memory is not returned
//! once a wait has failed. After a failed wait no further transfer is begun or looked at.
//! MPI does not say that a process is gone, so the ranks watch each other beside it: a rank that
//! dies, is stopped, is cut off or fails ends the job on all hosts, with a [`Verdict`] that names
//! it and where it stood.
//!
//! The feature `mpi` needs MPI's headers, its compiler wrapper and libclang; without it this
//! crate is empty.
//!
//! This crate must not know: models, schedules.
#![cfg(feature = "mpi")]

mod collective;
mod comm;
mod error;
mod request;
mod watch;
mod world;

pub use comm::MpiComm;
pub use error::MpiError;
pub use watch::{Failed, Verdict};
pub use world::{World, library_version};
