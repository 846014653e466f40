//! `henge train`: from a run file to a trained model.

mod fault;
mod folder;
pub mod order;
mod pairs;
mod progress;
pub mod resolve;
mod sources;

use crate::cores::{cores, threads_per_rank};
use crate::doctor::memory::total_and_available;
use crate::failure::{self, Failure};
use folder::{Folder, Resume};
use henge_comm::threads;
use henge_spec::Run;
use henge_train::{Ended, Job, Options};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Long enough for a steady figure, short enough not to be noticed.
const PEAK_SECONDS: f64 = 0.05;

#[derive(clap::Args)]
pub struct Args {
    /// The run file (TOML)
    run: PathBuf,
    /// Override a key: --set train.steps=20
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Go on from the run folder's newest checkpoint (auto), start anew (never), or go on from a
    /// checkpoint or run folder
    #[arg(long, value_name = "auto|never|PATH", default_value = "auto")]
    resume: Resume,
    /// Add each parameter's gradient norm to the metrics of every step
    #[arg(long)]
    dump_gradients: bool,
    /// Write the first batch's logits at its first and last position to a file
    #[arg(long, value_name = "FILE")]
    dump_logits: Option<PathBuf>,
    /// Fail on purpose: rank=1,operation=B2,after=0,kind=panic|error|stall|MILLISECONDS
    #[arg(long = "fault", value_name = "FAULT", value_parser = fault::parse, hide = true)]
    faults: Vec<henge_comm::Fault>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let (run, weights) = resolve::resolve(&args.run, &args.overrides)?;
    let (train, valid) = sources::open(&run)?;
    check_request(&args, &run)?;
    let folder = Folder::open(&run, &args.resume)?;
    let resume = folder.checkpoint(&run, &args.resume)?;
    folder.write_config(&run)?;
    let Args { dump_gradients, dump_logits, faults, .. } = args;
    let ranks = run.layout.ranks();
    let threads = threads_per_rank(if run.threads == 0 { cores() } else { run.threads }, ranks);
    let options = Options { dump_gradients, dump_logits, peak_flops: Some(measured_peak(ranks * threads)), faults };
    let timeout = Duration::from_secs(run.timeout);
    let waiting = threads::Options { timeout, ..threads::Options::new(ranks, threads) };
    let observer = Arc::new(progress::Lines::new(run.train.steps));
    observer.begin(&run, threads);
    let path = folder.path().to_path_buf();
    let (stop, shards) = (stop_on_interrupt()?, Mutex::default());
    let job = Arc::new(Job {
        run,
        folder: path,
        train,
        valid,
        predict: vec![],
        weights,
        resume,
        stop,
        shards,
        options,
        observer,
    });
    let precision = job.run.train.precision;
    let device = move |_| henge_cpu::Fast::new(threads, precision);
    match henge_train::launch(job, waiting, device)? {
        Ended::Finished => Ok(()),
        Ended::Stopped { step } => {
            let words = format!("stopped after step {step}, which is saved; the same command goes on from there");
            Err(Failure::interrupted(words))
        }
    }
}

/// What can be known to fail before the run's folder is made.
fn check_request(args: &Args, run: &Run) -> Result<(), Failure> {
    if let Resume::From(path) = &args.resume {
        henge_checkpoint::newest(path)?;
    }
    let folder =
        args.dump_logits.as_ref().and_then(|file| file.parent()).filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(Failure::request(format!("--dump-logits: there is no folder {}; make it first", folder.display())));
    }
    if run.threads > cores() {
        eprintln!("run.threads = {} is more than the {} cores; ranks will wait for each other", run.threads, cores());
    }
    check_memory(run, total_and_available().0)
}

/// Weights (master and two packed forms), gradients and moments of every replica alone.
fn check_memory(run: &Run, machine: u64) -> Result<(), Failure> {
    let elements: f64 = henge_spec::parameters(&run.model).iter().map(elements).sum();
    let need = 6.0 * 4.0 * elements * run.layout.data as f64;
    if need <= machine as f64 {
        return Ok(());
    }
    Err(Failure::request(format!(
        "this machine has {} and the run's weights, gradients and moments alone need {:.1} GiB; \
         use a smaller model or fewer data parallel replicas (`henge plan` says what would hold it)",
        indicatif::HumanBytes(machine),
        need / f64::from(1 << 30)
    )))
}

/// In floating point: a mistyped size may not fit 64 bits.
fn elements(parameter: &henge_spec::Parameter) -> f64 {
    parameter.shape.iter().map(|&size| size as f64).product()
}

/// Set by the first Ctrl-C; the second ends the process at once.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(failure::INTERRUPTED));
        }
        eprintln!("stopping after this step; press Ctrl-C again to stop at once");
    };
    ctrlc::set_handler(handler).map_err(Failure::run)?;
    Ok(stop)
}

/// FLOP a second of the cores that the run will use, from registers.
fn measured_peak(threads: usize) -> f64 {
    let team = henge_cpu::Team::new(threads.min(cores()));
    henge_cpu::ceiling::peak_flops(&team, PEAK_SECONDS)
}
