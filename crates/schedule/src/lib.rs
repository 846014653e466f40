//! Pipeline schedules as data: what each pipeline rank does in one training step, and in what order.
//!
//! A [`Shape`] (kind, pipeline ranks, model chunks, microbatches) determines a [`Program`]: one list of [`Op`]s per
//! rank, complete with its messages. The same list is checked ([`check`]), tried for deadlock
//! ([`simulate_blocking`]), priced by a planner, walked by an executor and printed for a person ([`Program::text`]).
//! Whoever walks it needs no branch on the rank: the first, middle and last ranks differ only in their lists.
//!
//! The model is cut into `pipeline * chunks` virtual stages; stage `chunk * pipeline + rank` lives on `rank`
//! ([`virtual_stage`]). A message is named by the stage that makes it, so the two neighbours of a rank may be one
//! and the same (`pipeline = 2`).
//!
//! ```
//! use henge_schedule::{Detail, Kind, Program, Shape, check};
//!
//! let shape = Shape { kind: Kind::OneForwardOneBackward, pipeline: 2, chunks: 1, microbatches: 3 };
//! let program = Program::generate(shape)?;
//! assert_eq!(program.text(Detail::Compute), "r0: F1 F2 B1 F3 B2 B3\nr1: F1 B1 F2 B2 F3 B3\n");
//!
//! let report = check(&program)?;
//! assert_eq!(report.peak_in_flight, [2, 1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What an operation means
//!
//! The rules of a program, which [`check`] enforces and an executor may rely on:
//!
//! - `Forward` consumes the activation its rank has waited for (stage 0 reads the microbatch instead), keeps what
//!   `Backward` of the same chunk and microbatch will need, and makes the activation to send (the last stage makes
//!   the loss instead). `Backward` consumes what was kept and the gradient waited for, and makes the gradient to send.
//! - `PostRecv` offers a buffer for one message, `WaitRecv` blocks until the message is in it. `Send` hands the
//!   message over and returns at once, `WaitSend` blocks until the message has left, which it need not do before its
//!   receive has been posted. A program that [`check`] accepts ends even when it never leaves before.
//! - A generated program waits for each send directly after starting it (only a reduction may start in between), so a
//!   rank holds one outgoing message at a time. It posts receives ahead by [`Program::receive_window`]: when a rank
//!   waits for its k-th message (in the order of use), those up to k + window have been posted. The window is the
//!   smallest with which no rank is ever blocked for good; with it, blocking sends cost no time either as long as all
//!   stages take equally long.
//! - `ReduceGradients` follows the last `Backward` of its chunk (and the start of that backward's message, which
//!   another rank waits for). `SyncEmbedding`, on the two ends of a pipeline longer than one, pairs them: each waits
//!   for the other, after the chunk that holds its copy of the tied table has been reduced. `Step` is the last
//!   operation of every rank.
//!
//! # What this crate must not know
//!
//! Time, bytes, tensors, threads and transports; the layers inside a stage; the tensor and data dimensions of the
//! layout (every replica and every tensor rank walks the same program).

mod check;
mod deadlock;
mod generate;
mod op;
mod parse;
mod program;
mod shape;
mod site;
mod text;

pub use check::{CheckError, Pair, Report, check};
pub use deadlock::{Deadlock, simulate_blocking};
pub use generate::smallest_window;
pub use op::{Direction, Message, Op};
pub use parse::ParseError;
pub use program::Program;
pub use shape::{Kind, MAX_FORWARDS, ScheduleError, Shape, rank_and_chunk, virtual_stage};
pub use site::Site;
pub use text::Detail;
