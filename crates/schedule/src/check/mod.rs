//! The checker: is a program sound, whoever wrote it?
//!
//! Structure first (every operation there once, between the right ranks, after what it needs), then buffers, then a
//! walk with blocking sends. Each step is linear in the operations, so that a planner can check every layout it weighs.

mod buffers;
mod error;
mod ledger;
mod rules;

pub use error::{CheckError, Pair};

use crate::deadlock::simulate_blocking;
use crate::program::Program;
use buffers::count_buffers;
use ledger::Ledger;

/// What a sound program holds at most, per pipeline rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// (chunk, microbatch) pairs whose forward has run and whose backward has not: kept activations, 1/v of the
    /// rank's layers each.
    pub peak_in_flight: Vec<usize>,
    /// Buffers of incoming messages, from the posting of the receive to the end of the computation that consumes it.
    pub peak_receives: Vec<usize>,
    /// Buffers of outgoing messages, from the computation that makes it to the end of the send.
    pub peak_sends: Vec<usize>,
    /// Messages of the whole step.
    pub messages: usize,
}

/// Checks a program: each rank runs every forward and backward once, in an order that the data allow; each message is
/// posted, waited for, sent and completed once, between the right ranks; buffers are used only while they hold the
/// data, within the receive window and the kind's peak in flight; gradients are reduced after the last backward, the
/// tied embedding synchronised after that, one step ends each rank; and no ranks block each other even when a send
/// completes only once its receive has been posted.
///
/// # Errors
/// The first fault found, with the operation, and the rank and operation at its other end.
pub fn check(program: &Program) -> Result<Report, CheckError> {
    program.shape.validate()?;
    if program.ranks.len() != program.shape.pipeline {
        return Err(CheckError::RankCount { found: program.ranks.len(), expected: program.shape.pipeline });
    }
    let ledger = Ledger::of(program)?;
    ledger.check_complete()?;
    ledger.check_order()?;
    let report = count_buffers(&ledger)?;
    simulate_blocking(program)?;
    Ok(report)
}
