//! `henge train`: from a run file to a trained model.

mod folder;
mod progress;
mod resolve;
mod sources;

use crate::failure::Failure;
use henge_comm::threads;
use henge_spec::Run;
use henge_train::{Job, Options};
use std::path::PathBuf;
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
    let (run, weights) = resolve::resolve(&args.run, &args.overrides)?;
    let (train, valid) = sources::open(&run)?;
    let folder = folder::open(&run)?;
    let options = Options { dump_gradients: args.dump_gradients, dump_logits: args.dump_logits, peak_flops: None };
    let (ranks, threads) = (run.layout.ranks(), threads_per_rank(&run));
    let observer = Arc::new(progress::Lines::new(run.train.steps));
    observer.begin(&run, threads);
    let path = folder.path().to_path_buf();
    let job = Job { run, folder: path, train, valid, weights, options, observer };
    let job = Arc::new(job);
    let precision = job.run.train.precision;
    let device = move |_| henge_cpu::Plain::<f32>::new();
    Ok(henge_train::launch(job, threads::Options::new(ranks, threads), device)?)
}

/// The cores, or the run file's number of threads, shared evenly; at least one a rank.
fn threads_per_rank(run: &Run) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if run.threads == 0 { cores } else { run.threads };
    (threads / run.layout.ranks()).max(1)
}
