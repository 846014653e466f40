//! `henge train`: from a run file to a trained model.

use crate::failure::Failure;
use henge_checkpoint::{Block, HfFolder, Weights};
use henge_comm::threads;
use henge_cpu::Fast;
use henge_data::{Corpus, SampleOrder, Split};
use henge_spec::{Batching, Run, Settings};
use henge_train::{CorpusSource, EvaluationReport, GivenBatches, Job, Observer, Options, Source, StepReport, TrainError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(clap::Args)]
pub struct Args {
    /// The run file (TOML)
    run: PathBuf,
    /// Override a key: --set train.steps=20
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Add each parameter's gradient norm to the metrics of every step
    #[arg(long)]
    dump_gradients: bool,
    /// Write the first batch's logits at its first and last position to a file
    #[arg(long, value_name = "FILE")]
    dump_logits: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let (run, weights) = resolve(&args)?;
    let folder = PathBuf::from(&run.dir);
    let (train, valid) = sources(&run)?;
    open_folder(&folder, &run)?;
    let options =
        Options { dump_gradients: args.dump_gradients, dump_logits: args.dump_logits.clone(), peak_flops: None };
    let (ranks, threads) = (run.layout.ranks(), threads_per_rank(&run));
    announce(&run, threads);
    let observer: Arc<dyn Observer> = Arc::new(Lines { steps: run.train.steps });
    let job = Job { run, folder, train, valid, weights, options, observer };
    let precision = job.run.train.precision;
    Ok(henge_train::launch(&job, threads::Options::new(ranks, threads), |_| Fast::new(threads, precision))?)
}
