//! `henge train`: from a run file to a trained model.

mod fault;
pub mod folder;
pub mod interrupt;
pub mod order;
mod pairs;
pub mod progress;
pub mod resolve;
pub mod sources;

use crate::cores::cores;
use crate::doctor::memory::total_and_available;
use crate::failure::Failure;
use crate::ranks::Ranks;
use folder::{Folder, Resume};
use henge_checkpoint::Checkpoint;
use henge_comm::threads;
use henge_spec::Run;
use henge_train::{Ended, Job, Observer, Options, ReadWeights, Source, TrainError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    let ranks = Ranks::start()?;
    match prepare(args, &ranks) {
        Ok((job, _folder)) => finish(ranks, job),
        // Whatever stopped one rank before its work stopped all.
        Err(failure) => ranks.end(Err(failure)),
    }
}

/// The job, and its folder, locked where this rank is the first.
fn prepare(args: Args, ranks: &Ranks) -> Result<(Job, Option<Folder>), Failure> {
    let Asked { run, weights, train, valid } = ranks.agree(Asked::of(&args, ranks))?;
    let (folder, resume) = open_folder(ranks, &run, &args.resume)?;
    let Args { dump_gradients, dump_logits, faults, .. } = args;
    let options = Options { dump_gradients, dump_logits, faults, ..Options::default() };
    let (stop, predict) = (ranks.agree(interrupt::heed(ranks))?, vec![]);
    let observer = observer(ranks, &run);
    let path = PathBuf::from(&run.dir);
    Ok((Job { run, folder: path, train, valid, predict, weights, resume, stop, options, observer }, folder))
}

/// A run with all that it reads, before its folder is touched.
struct Asked {
    run: Run,
    weights: Option<ReadWeights>,
    train: Arc<dyn Source>,
    valid: Vec<(String, Arc<dyn Source>)>,
}

impl Asked {
    fn of(args: &Args, ranks: &Ranks) -> Result<Self, Failure> {
        let (run, weights) = resolve::resolve(&args.run, &args.overrides)?;
        if run.task.is_some() {
            let (place, file) = (run.place("task.name"), args.run.display());
            let words = format!("{place}: task.name asks for fine-tuning; use `henge finetune {file}`");
            return Err(Failure::request(words));
        }
        ranks.check(&run)?;
        let (train, valid) = sources::open(&run)?;
        check_request(args, ranks, &run)?;
        Ok(Self { run, weights, train, valid })
    }
}

/// Rank 0 opens and locks the run's folder; all go on from the checkpoint that it found.
fn open_folder(
    ranks: &Ranks,
    run: &Run,
    resume: &Resume,
) -> Result<(Option<Folder>, Option<Arc<Checkpoint>>), Failure> {
    let open = || {
        let folder = Folder::open(run, resume)?;
        let checkpoint = folder.checkpoint(run, resume)?;
        folder.write_config(run)?;
        Ok((folder, checkpoint))
    };
    let opened = ranks.agree(ranks.is_first().then(open).transpose())?;
    let (folder, own) = opened.map_or((None, None), |(folder, checkpoint)| (Some(folder), checkpoint));
    let path = ranks.share(own.as_ref().map(|checkpoint| checkpoint.folder().to_path_buf()));
    let theirs = || path.map(|path| Ok(Arc::new(Checkpoint::open(&path)?))).transpose();
    let checkpoint = ranks.agree(if ranks.is_first() { Ok(own) } else { theirs() })?;
    Ok((folder, checkpoint))
}

fn observer(ranks: &Ranks, run: &Run) -> Arc<dyn Observer> {
    if !ranks.is_first() {
        return Arc::new(progress::Quiet);
    }
    let lines = progress::Lines::new(run.train.steps);
    lines.begin(run, ranks.kind(), ranks.threads(run));
    Arc::new(lines)
}

/// Runs a job on its ranks to its end.
pub fn finish(ranks: Ranks, mut job: Job) -> Result<(), Failure> {
    let threads = ranks.threads(&job.run);
    job.options.peak_flops = Some(ranks.peak(&job.run));
    let ended = match &ranks {
        Ranks::Threads => train_in_threads(job, threads)?,
        #[cfg(feature = "mpi")]
        Ranks::Processes(world) => crate::ranks::processes::train(world, job, threads)?,
    };
    ranks.end(match ended {
        Ended::Finished => Ok(()),
        Ended::Stopped { step } => {
            let words = format!("stopped after step {step}, which is saved; the same command goes on from there");
            Err(Failure::interrupted(words))
        }
    })
}

fn train_in_threads(job: Job, threads: usize) -> Result<Ended, TrainError> {
    let (ranks, precision) = (job.run.layout.ranks(), job.run.train.precision);
    let timeout = Duration::from_secs(job.run.timeout);
    let options = threads::Options { timeout, ..threads::Options::new(ranks, threads) };
    henge_train::launch(Arc::new(job), options, move |_| henge_cpu::Fast::new(threads, precision))
}

/// What can be known to fail before the run's folder is made.
fn check_request(args: &Args, ranks: &Ranks, run: &Run) -> Result<(), Failure> {
    if let Resume::From(path) = &args.resume {
        henge_checkpoint::newest(path)?;
    }
    let folder =
        args.dump_logits.as_ref().and_then(|file| file.parent()).filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(Failure::request(format!("--dump-logits: there is no folder {}; make it first", folder.display())));
    }
    check_machine(ranks, run)
}

/// Refuses what this machine cannot hold, and warns of what it cannot run at once.
pub fn check_machine(ranks: &Ranks, run: &Run) -> Result<(), Failure> {
    if matches!(ranks, Ranks::Threads) && run.threads > cores() {
        eprintln!("run.threads = {} is more than the {} cores; ranks will wait for each other", run.threads, cores());
    }
    check_memory(run, ranks.of_this_host(run), total_and_available().0)
}

/// Weights (master and two packed forms), gradients and moments of every replica alone, shared
/// alike by all ranks, of which this machine has so many.
fn check_memory(run: &Run, ranks_here: usize, machine: u64) -> Result<(), Failure> {
    let elements: f64 = henge_spec::parameters(&run.model).iter().map(elements).sum();
    let share = ranks_here as f64 / run.layout.ranks() as f64;
    let need = 6.0 * 4.0 * elements * run.layout.data as f64 * share;
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
