//! What ends a run.

use henge_comm::CommError;
use thiserror::Error;

/// A failed run. Variants that are a request's fault say so by [`TrainError::is_request`].
#[derive(Debug, Error)]
pub enum TrainError {
    /// A rank failed or waited too long.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A rank panicked or failed.
    #[error("rank {rank} {words}")]
    Rank {
        /// The first rank that failed.
        rank: usize,
        /// Its words.
        words: String,
    },
    /// A corpus could not be read.
    #[error(transparent)]
    Data(#[from] henge_data::DataError),
    /// A source that has no such sequence.
    #[error("{0}")]
    UsedUp(String),
    /// A token that the model has no row for.
    #[error("{origin}: token {token} at {place} is not below model.vocab_size = {vocab_size}; set it to at least {}", token + 1)]
    TokenBeyondVocabulary {
        /// File or corpus.
        origin: String,
        /// The token.
        token: u64,
        /// Where it stands.
        place: String,
        /// Rows of the model's table.
        vocab_size: usize,
    },
    /// Given batches that do not have the form of batches.
    #[error("{file}: {problem}")]
    GivenBatches {
        /// The file.
        file: String,
        /// Which batch, what is wrong, what to do.
        problem: String,
    },
    /// More steps than given batches.
    #[error("{file}: train.steps = {steps} but there are {batches} batches; lower train.steps")]
    TooFewBatches {
        /// The file.
        file: String,
        /// Steps asked for.
        steps: u64,
        /// Batches given.
        batches: usize,
    },
    /// A schedule that cannot be made.
    #[error(transparent)]
    Schedule(#[from] henge_schedule::ScheduleError),
    /// A checkpoint could not be written or read.
    #[error(transparent)]
    Checkpoint(#[from] henge_checkpoint::CheckpointError),
    /// What a resumed run took back is not what was saved.
    #[error(
        "{}: what was loaded is not what was saved: {problem}; nothing was changed; check it with `henge checkpoint \
         verify`, or go on from the checkpoint before it with `--resume PATH`", folder.display()
    )]
    Receipt {
        /// The checkpoint.
        folder: std::path::PathBuf,
        /// What differs.
        problem: String,
    },
    /// A loss or gradient that is not a number, in a precision without loss scaling.
    #[error(
        "step {step}: {what} is not finite on rank {rank} ({place}), samples {first_sample} to {last_sample}; \
         the weights are as they were before this step; lower train.optimizer.lr or look at those samples"
    )]
    NonFinite {
        /// The step, from 1.
        step: u64,
        /// Loss, or the gradient of a parameter.
        what: String,
        /// The rank that saw it.
        rank: usize,
        /// Its place in the model.
        place: String,
        /// First sample of the step.
        first_sample: u64,
        /// Last sample of the step.
        last_sample: u64,
    },
    /// A validation loss that is not a number.
    #[error("the loss of {set} after step {step} is not finite; go on from an earlier checkpoint with a lower rate")]
    NonFiniteEvaluation {
        /// Steps trained.
        step: u64,
        /// The validation set.
        set: String,
    },
    /// The system gives no thread.
    #[error("the system gives no thread to write a checkpoint: {0}; raise the limit of processes (`ulimit -u`)")]
    Thread(std::io::Error),
    /// A save that is not done when the run must go on or end.
    #[error(
        "rank {rank} is still writing the save in {} after {waited} s of waiting for it; its disk hangs or is too \
         slow: raise run.timeout, or save less often", folder.display()
    )]
    SlowSave {
        /// The rank.
        rank: usize,
        /// Seconds waited.
        waited: u64,
        /// The save's folder until it is published.
        folder: std::path::PathBuf,
    },
    /// A file of the run's folder could not be written.
    #[error("{path}: {source}; the run stops, nothing half written stays")]
    Output {
        /// The file.
        path: String,
        /// The system's words.
        source: std::io::Error,
    },
}

impl TrainError {
    /// Whether the request was wrong, as against the run having failed.
    pub fn is_request(&self) -> bool {
        match self {
            Self::Checkpoint(error) => !error.is_machine(),
            Self::Data(error) => !error.is_machine_failure(),
            Self::Comm(_) | Self::Rank { .. } | Self::Output { .. } | Self::Thread(_) | Self::SlowSave { .. } => false,
            Self::NonFinite { .. } | Self::NonFiniteEvaluation { .. } => false,
            _ => true,
        }
    }
}
