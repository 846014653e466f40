//! `henge train`: from a run file to a trained model.

mod fault;
pub mod folder;
pub mod order;
mod pairs;
pub mod progress;
pub mod resolve;
pub mod sources;

use crate::cores::{cores, threads_per_rank};
use crate::doctor::memory::total_and_available;
use crate::failure::{self, Failure};
use folder::{Folder, Resume};
use henge_comm::threads;
use henge_spec::Run;
use henge_train::{Ended, Job, Options};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    if run.task.is_some() {
        let (place, file) = (run.place("task.name"), args.run.display());
        return Err(Failure::request(format!("{place}: task.name asks for fine-tuning; use `henge finetune {file}`")));
    }
    let (train, valid) = sources::open(&run)?;
    check_request(&args, &run)?;
    let folder = Folder::open(&run, &args.resume)?;
    let resume = folder.checkpoint(&run, &args.resume)?;
    folder.write_config(&run)?;
    let Args { dump_gradients, dump_logits, faults, .. } = args;
    let options = Options { dump_gradients, dump_logits, faults, ..Options::default() };
    let observer = Arc::new(progress::Lines::new(run.train.steps));
    observer.begin(&run, threads_of(&run));
    let path = folder.path().to_path_buf();
    let stop = stop_on_interrupt()?;
    let predict = vec![];
    finish(Job { run, folder: path, train, valid, predict, weights, resume, stop, options, observer })
}

/// Runs a job on this machine's cores to its end.
pub fn finish(mut job: Job) -> Result<(), Failure> {
    let (ranks, threads, precision) = (job.run.layout.ranks(), threads_of(&job.run), job.run.train.precision);
    job.options.peak_flops = Some(measured_peak(ranks * threads));
    let timeout = Duration::from_secs(job.run.timeout);
    let waiting = threads::Options { timeout, ..threads::Options::new(ranks, threads) };
    let device = move |_| henge_cpu::Fast::new(threads, precision);
    match henge_train::launch(Arc::new(job), waiting, device)? {
        Ended::Finished => Ok(()),
        Ended::Stopped { step } => {
            let words = format!("stopped after step {step}, which is saved; the same command goes on from there");
            Err(Failure::interrupted(words))
        }
    }
}

/// Threads of each rank.
pub fn threads_of(run: &Run) -> usize {
    threads_per_rank(if run.threads == 0 { cores() } else { run.threads }, run.layout.ranks())
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
    check_machine(run)
}

/// Refuses what this machine cannot hold, and warns of what it cannot run at once.
pub fn check_machine(run: &Run) -> Result<(), Failure> {
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
pub fn stop_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
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
