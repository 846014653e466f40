//! `henge launch`: the `mpirun` of a run, printed or run, and run again after a failure.

mod command;
mod hosts;
mod supervise;

use crate::doctor::tools::Tool;
use crate::failure::{Failure, INTERRUPTED, print};
use crate::train::resolve;
use command::Start;
use henge_spec::Run;
use hosts::Hosts;
use std::path::PathBuf;
use supervise::{Ended, Signals};

#[derive(clap::Args)]
pub struct Args {
    /// The run file (TOML)
    run: PathBuf,
    /// Hosts by name or address; this machine alone without
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Ranks of each host; without, the layout's ranks over the hosts
    #[arg(long, value_name = "RANKS")]
    per_host: Option<usize>,
    /// Print the command and run nothing
    #[arg(long)]
    dry_run: bool,
    /// After a failure go on from the newest checkpoint, so many times at most, on the hosts that
    /// answer; with fewer data parallel replicas where the others are lost
    #[arg(long, value_name = "TIMES", default_value_t = 0)]
    restart: usize,
    /// Override a key of the run file: --set train.steps=20
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// As for `henge train`
    #[arg(long, value_name = "auto|never|PATH")]
    resume: Option<String>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let hosts = Hosts::of(&args.hosts)?;
    let run = spec(&args, &[])?;
    let per_host = per_host(&args, &run, &hosts)?;
    let mut start = Start {
        hosts,
        per_host,
        ranks: run.layout.ranks(),
        train: train_arguments(&args, args.resume.as_deref(), &[]),
    };
    if args.dry_run {
        return print(&format!("{}\n", start.words()?));
    }
    check_installed()?;
    let signals = Signals::listen()?;
    for left in (0..=args.restart).rev() {
        eprintln!("{}", start.words()?);
        let status = match supervise::run(&mut start.command()?, &signals)? {
            Ended::Done => return Ok(()),
            Ended::Stopped => return Err(Failure::new(INTERRUPTED, String::new())),
            Ended::Refused => return Err(Failure::new(2, String::new())),
            Ended::Failed(status) => status,
        };
        if left == 0 {
            return Err(last_words(&args, &status));
        }
        eprintln!("mpirun ended with {status}; restart {} of {}", args.restart - left + 1, args.restart);
        start = again(&args, &run, start)?;
    }
    unreachable!("the last round returns")
}

fn last_words(args: &Args, status: &str) -> Failure {
    let more = match args.restart {
        0 => "; the same command goes on from the newest checkpoint, and --restart N does so by itself".to_string(),
        times => format!(", and so did {times} restarts; the same command goes on from the newest checkpoint"),
    };
    Failure::run(format!("mpirun ended with {status}{more}"))
}

fn spec(args: &Args, more: &[String]) -> Result<Run, Failure> {
    Ok(Run::resolve(resolve::read(&args.run, &[args.overrides.as_slice(), more].concat())?)?)
}

fn per_host(args: &Args, run: &Run, hosts: &Hosts) -> Result<usize, Failure> {
    let (ranks, count) = (run.layout.ranks(), hosts.len());
    let per_host = match args.per_host {
        Some(0) => return Err(Failure::request("--per-host 0: give at least 1")),
        Some(per_host) => per_host,
        None => ranks.div_ceil(count),
    };
    if per_host * count == ranks {
        return Ok(per_host);
    }
    let l = &run.layout;
    Err(Failure::request(format!(
        "{count} hosts with {per_host} ranks each are {} ranks and the run's layout has {ranks} (layout.tensor {} x \
         layout.pipeline {} x layout.data {}); change --hosts or --per-host, or the layout by --set layout.data=...",
        per_host * count,
        l.tensor,
        l.pipeline,
        l.data
    )))
}

/// What `henge` is started with on every host.
fn train_arguments(args: &Args, resume: Option<&str>, more: &[String]) -> Vec<String> {
    let file = args.run.display().to_string();
    let sets = args.overrides.iter().chain(more).flat_map(|set| ["--set".to_string(), set.clone()]);
    let resume = resume.into_iter().flat_map(|resume| ["--resume".to_string(), resume.to_string()]);
    ["train".to_string(), file].into_iter().chain(sets).chain(resume).collect()
}

fn check_installed() -> Result<(), Failure> {
    if cfg!(not(feature = "mpi")) {
        let words = "the ranks of this build are threads of one process; build with MPI: `cargo install --path \
                     crates/cli --features mpi` (--dry-run prints the command without it)";
        return Err(Failure::request(words));
    }
    let Some(mpirun) = Tool::find("mpirun") else {
        let words = "there is no mpirun on PATH; install it (Debian: `apt install openmpi-bin`)";
        return Err(Failure::request(words));
    };
    if mpirun.is_open_mpi() {
        return Ok(());
    }
    let version = mpirun.version.as_deref().unwrap_or("version unknown");
    Err(Failure::request(format!(
        "{} is not Open MPI's ({version}); `henge launch` writes Open MPI's command: install it (Debian: `apt install \
         openmpi-bin`), or start `henge train` by this launcher's own command",
        mpirun.path.display()
    )))
}

/// The start after a failure: the hosts that answer, and as many replicas as they hold.
fn again(args: &Args, run: &Run, before: Start) -> Result<Start, Failure> {
    let hosts = before.hosts.that_answer()?;
    let slots = hosts.len() * before.per_host;
    let layout = &run.layout;
    let fits = |replicas: usize| layout.tensor * layout.pipeline * replicas <= slots;
    let sets = |replicas: usize| match replicas == layout.data {
        true => vec![],
        false => vec![format!("layout.data={replicas}")],
    };
    let mut refusal: Option<Failure> = None;
    for replicas in (1..=layout.data).rev().filter(|&replicas| fits(replicas)) {
        match spec(args, &sets(replicas)) {
            Ok(run) => {
                let ranks = run.layout.ranks();
                eprintln!("going on with {ranks} ranks on {}", hosts.list());
                let train = train_arguments(args, resume(args, &run), &sets(replicas));
                return Ok(Start { hosts, per_host: before.per_host, ranks, train });
            }
            Err(failure) => drop(refusal.get_or_insert(failure)),
        }
    }
    Err(refusal.unwrap_or_else(|| {
        let replica = layout.tensor * layout.pipeline;
        Failure::run(format!("{} holds {slots} ranks and one replica has {replica}; nothing goes on", hosts.list()))
    }))
}

/// A run that has saved goes on from its own; one that has not, from where it was asked to.
fn resume<'a>(args: &'a Args, run: &Run) -> Option<&'a str> {
    let own = henge_checkpoint::published(&PathBuf::from(&run.dir).join("checkpoints"));
    let has_saved = own.is_ok_and(|own| !own.is_empty());
    args.resume.as_deref().filter(|&resume| !has_saved && resume != "never")
}
