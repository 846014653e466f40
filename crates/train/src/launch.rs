//! Starts the ranks of a job: one over any engine, or all as threads of this process.

use crate::rank::{Ended, Rank};
use crate::{Observer, Source, TrainError};
use henge_checkpoint::Checkpoint;
use henge_comm::{Comm, Fault, Faulty, Grid, Timed, threads};
use henge_spec::{Parameter, Run};
use henge_tensor::{Backend, Ledger};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Reads a block `(row, rows, column, columns)` of a logical parameter, or says that there is
/// none.
pub type ReadWeights =
    Arc<dyn Fn(&Parameter, (usize, usize, usize, usize), &mut [f32]) -> Result<bool, TrainError> + Send + Sync>;

/// What to report beyond the metrics.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Add each parameter's gradient norm to every step's line.
    pub dump_gradients: bool,
    /// Where to write the first batch's logits.
    pub dump_logits: Option<PathBuf>,
    /// Measured FLOP a second of the cores in use, for `mfu`.
    pub peak_flops: Option<f64>,
    /// Failures on purpose.
    pub faults: Vec<Fault>,
    /// Where each rank writes what its communication costs; may be shorter than the ranks.
    pub ledgers: Vec<Ledger>,
}

/// A checked run with its data, its starting weights and its observer.
pub struct Job {
    /// The run.
    pub run: Run,
    /// Its folder.
    pub folder: PathBuf,
    /// Training sequences.
    pub train: Arc<dyn Source>,
    /// Validation sets by name.
    pub valid: Vec<(String, Arc<dyn Source>)>,
    /// Sets whose task logits the observer is told at the end of a fine-tuning run.
    pub predict: Vec<(String, Arc<dyn Source>)>,
    /// Starting weights; drawn from the seed without. A block that they lack is drawn too.
    pub weights: Option<ReadWeights>,
    /// Checkpoint to go on from.
    pub resume: Option<Arc<Checkpoint>>,
    /// Set to end the run after the step in progress.
    pub stop: Arc<AtomicBool>,
    /// What else to report.
    pub options: Options,
    /// Told of progress on rank 0.
    pub observer: Arc<dyn Observer>,
}

/// Runs a job with one thread a rank, `backend` making each rank's device.
pub fn launch<B>(
    job: Arc<Job>,
    options: threads::Options,
    backend: impl Fn(usize) -> B + Send + Sync + 'static,
) -> Result<Ended, TrainError>
where
    B: Backend,
    B::Activation: 'static,
{
    let world = threads::world::<B::Activation>(Grid::new(&job.run.layout), options);
    let unsettled = job.clone();
    let outcome = threads::run_ranks(world, move |comm| {
        let backend = backend(comm.rank());
        train_rank(&job, backend, comm)
    });
    outcome.map(|ends| ends[0]).map_err(|failure| {
        unsettled.settle(!failure.left_behind.is_empty());
        match failure.cause {
            threads::Cause::Error(error) => error,
            cause => TrainError::Rank { rank: failure.rank, words: cause.to_string() },
        }
    })
}

/// One rank of a job over its end of any engine, to the run's end; all ranks of the grid call this.
///
/// # Errors
/// What this rank failed of, or that another did. Its part of a save in flight is then written, or
/// has failed; [`Job::settle`] is the launcher's to call.
pub fn train_rank<B: Backend>(job: &Arc<Job>, backend: B, comm: impl Comm<B::Activation>) -> Result<Ended, TrainError> {
    let rank = comm.rank();
    let comm = Faulty::new(comm, &job.options.faults);
    let train = |comm: &dyn Comm<B::Activation>| Rank::new(job, backend, comm)?.train();
    match job.options.ledgers.get(rank) {
        Some(ledger) => train(&Timed::new(comm, ledger.clone())),
        None => train(&comm),
    }
}
