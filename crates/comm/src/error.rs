//! What can go wrong between ranks.

use std::time::Duration;
use thiserror::Error;

/// A failed wait.
#[derive(Clone, Debug, Error)]
pub enum CommError {
    /// Another rank failed first.
    #[error("rank {rank} stopped because rank {culprit} failed: {words}")]
    Poisoned {
        /// The rank that stopped.
        rank: usize,
        /// The rank that failed.
        culprit: usize,
        /// Its words.
        words: String,
    },
    /// A wait that took too long.
    #[error("rank {rank} waited {} s for {what} from ranks {from:?}{}{report}", waited.as_secs(), if report.is_empty() { "" } else { "\n" })]
    TimedOut {
        /// The rank that waited.
        rank: usize,
        /// What it waited for.
        what: String,
        /// Whom it waited for.
        from: Vec<usize>,
        /// How long it waited.
        waited: Duration,
        /// One line for every rank: its operation and its wait.
        report: String,
    },
    /// The network or the library below it refused.
    #[error("rank {rank} could not go on with {what}: {words}")]
    Transport {
        /// The rank.
        rank: usize,
        /// What it was about.
        what: String,
        /// The library's words.
        words: String,
    },
    /// A fault that was asked for.
    #[error("injected error of rank {rank} at operation {position} ({operation})")]
    Injected {
        /// The rank.
        rank: usize,
        /// Number of its operation in its program.
        position: usize,
        /// The operation.
        operation: String,
    },
}
