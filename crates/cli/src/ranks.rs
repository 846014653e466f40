//! What the ranks of a command are: threads of this process, or the processes of a launcher.

#[cfg(feature = "mpi")]
pub mod processes;

use crate::cores::{cores, threads_per_rank};
use crate::failure::Failure;
use crate::launcher::{self, Launched};
use henge_cpu::ceiling::Unit;
use henge_spec::Run;
use std::path::PathBuf;
use std::time::Duration;

/// Long enough for a steady figure, short enough not to be noticed.
const PEAK_SECONDS: f64 = 0.05;

/// Those who run a command together.
pub enum Ranks {
    /// This process alone: its ranks are threads.
    Threads,
    /// Processes under MPI, one rank each; this is one of them.
    #[cfg(feature = "mpi")]
    Processes(henge_mpi::World),
}

impl Ranks {
    /// Starts MPI where a launcher has started several processes.
    pub fn start() -> Result<Self, Failure> {
        match launcher::here() {
            None => Ok(Self::Threads),
            Some(launched) => Self::join(launched),
        }
    }

    #[cfg(feature = "mpi")]
    fn join(launched: Launched) -> Result<Self, Failure> {
        let world = henge_mpi::World::start(processes::tell).map_err(Failure::run)?;
        if world.ranks() == launched.ranks {
            return Ok(Self::Processes(world));
        }
        Err(once(
            launched,
            format!(
                "{} started {} processes and MPI sees {}: the launcher and the MPI of this build are of two kinds; \
                 start it with the mpirun of the same MPI (`henge doctor` names it), or `srun --mpi=pmix`",
                launched.by,
                launched.ranks,
                world.ranks()
            ),
        ))
    }

    #[cfg(not(feature = "mpi"))]
    fn join(launched: Launched) -> Result<Self, Failure> {
        Err(once(
            launched,
            format!(
                "{} started {} copies of this command, and the ranks of this build are threads of one process; \
                 start it once, or build with MPI: `cargo install --path crates/cli --features mpi`",
                launched.by, launched.ranks
            ),
        ))
    }

    /// What all ranks came to alike, once all are at this point. It is told before the first of
    /// them ends, since the launcher then ends all.
    pub fn end(self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        match self {
            Self::Threads => outcome,
            #[cfg(feature = "mpi")]
            Self::Processes(world) => {
                let told = outcome.map_err(|failure| if world.rank() == 0 { failure.told() } else { failure.untold() });
                world.finish();
                told
            }
        }
    }

    /// Whether this process speaks for all and writes the run's files.
    pub fn is_first(&self) -> bool {
        match self {
            Self::Threads => true,
            #[cfg(feature = "mpi")]
            Self::Processes(world) => world.rank() == 0,
        }
    }

    /// In words, for a run's first lines.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Threads => "threads",
            #[cfg(feature = "mpi")]
            Self::Processes(_) => "processes",
        }
    }

    /// How many of a run's ranks share this machine.
    pub fn of_this_host(&self, run: &Run) -> usize {
        match self {
            Self::Threads => run.layout.ranks(),
            #[cfg(feature = "mpi")]
            Self::Processes(world) => world.ranks_of_this_host(),
        }
    }

    /// Threads of each rank: its share of the cores, or of `run.threads`.
    pub fn threads(&self, run: &Run) -> usize {
        match (self, run.threads) {
            (_, threads @ 1..) => threads_per_rank(threads, run.layout.ranks()),
            (Self::Threads, 0) => threads_per_rank(cores(), run.layout.ranks()),
            #[cfg(feature = "mpi")]
            (Self::Processes(world), 0) => threads_per_rank(cores(), world.ranks_of_these_cores()),
        }
    }

    /// FLOP a second of all cores that a run will use, from registers, in the arithmetic of its
    /// precision, measured now.
    pub fn peak(&self, run: &Run) -> f64 {
        let measured = |threads: usize| {
            let team = henge_cpu::Team::new(threads.min(cores()));
            Unit::of(run.train.precision).peak(&team, PEAK_SECONDS)
        };
        match self {
            Self::Threads => measured(run.layout.ranks() * self.threads(run)),
            #[cfg(feature = "mpi")]
            Self::Processes(world) => world.sum(measured(self.threads(run))),
        }
    }

    /// How many processes there are, where they are the ranks.
    fn processes(&self) -> Option<usize> {
        match self {
            Self::Threads => None,
            #[cfg(feature = "mpi")]
            Self::Processes(world) => Some(world.ranks()),
        }
    }

    /// Refuses a run that is not for as many ranks as there are processes.
    pub fn check(&self, run: &Run) -> Result<(), Failure> {
        let layout = &run.layout;
        let Some(started) = self.processes().filter(|&started| started != layout.ranks()) else { return Ok(()) };
        Err(Failure::request(format!(
            "the launcher started {started} processes and the run's layout has {} ranks (layout.tensor {} x \
             layout.pipeline {} x layout.data {}); start as many processes as it has ranks, or change the layout, \
             as in `--set layout.data={started}`",
            layout.ranks(),
            layout.tensor,
            layout.pipeline,
            layout.data,
        )))
    }

    /// What this rank came to, if all came to something; or else the failure of the first rank
    /// that has one, in rank 0's words.
    pub fn agree<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        match self {
            Self::Threads => outcome,
            #[cfg(feature = "mpi")]
            Self::Processes(world) => processes::agree(world, outcome),
        }
    }

    /// Rank 0's path, on every rank.
    pub fn share(&self, path: Option<PathBuf>) -> Option<PathBuf> {
        match self {
            Self::Threads => path,
            #[cfg(feature = "mpi")]
            Self::Processes(world) => processes::share(world, path),
        }
    }
}

/// Refuses a command whose ranks are never processes where a launcher has started several.
pub fn refuse_copies() -> Result<(), Failure> {
    let Some(launched) = launcher::here() else { return Ok(()) };
    let Launched { by, ranks, .. } = launched;
    let words = format!(
        "{by} started {ranks} copies of this command, which is one process; only train has ranks that are processes; start it once"
    );
    Err(once(launched, words))
}

/// A failure of all copies, told by the first; the launcher ends all when one has ended, so the
/// others wait a moment.
fn once(launched: Launched, words: String) -> Failure {
    if launched.rank == 0 {
        return Failure::request(words);
    }
    std::thread::sleep(Duration::from_secs(1));
    Failure::request("")
}
