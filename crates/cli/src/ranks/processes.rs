//! A run whose ranks are processes.

use crate::failure::Failure;
use henge_comm::threads::{Cause, outcome_of};
use henge_comm::{CommError, Grid};
use henge_cpu::Fast;
use henge_mpi::{Failed, MpiError, Verdict, World};
use henge_train::{Ended, Job, TrainError, train_rank};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A failure travels as its status and its words.
pub fn agree<T>(world: &World, outcome: Result<T, Failure>) -> Result<T, Failure> {
    let objection = outcome.as_ref().err().map(|failure| [&[failure.status()], failure.words().as_bytes()].concat());
    let Some((rank, told)) = world.first_objection(objection) else { return outcome };
    let words = String::from_utf8_lossy(&told[1..]);
    Err(Failure::new(told[0], if rank == 0 { words.into_owned() } else { format!("rank {rank}: {words}") }))
}

pub fn share(world: &World, path: Option<PathBuf>) -> Option<PathBuf> {
    let words = path.map_or(Vec::new(), |path| path.as_os_str().as_bytes().to_vec());
    let words = world.share(words);
    (!words.is_empty()).then(|| OsString::from_vec(words).into())
}

/// The words that all processes end with, said once.
pub fn tell(verdict: &Verdict) {
    drop(Failure::new(verdict.status, verdict.words.clone()).told());
}

/// This rank of a job, to its end. A failure has then ended all ranks, and is told already.
pub fn train(world: &World, job: Job, threads: usize) -> Result<Ended, Failure> {
    let (run, job) = (job.run.clone(), Arc::new(job));
    world.set_heartbeat_timeout(Duration::from_secs(run.heartbeat_timeout));
    let comm = world.comm(Grid::new(&run.layout), Duration::from_secs(run.timeout), threads)?;
    let outcome = outcome_of(|| train_rank(&job, Fast::new(threads, run.train.precision), comm));
    outcome.map_err(|cause| {
        let failed = failed(world.rank(), cause);
        let verdict = world.fail(failed.clone());
        if world.rank() == 0 {
            // Other processes may still be writing: a save that is whole is published, no other
            // is touched.
            job.settle(true);
        }
        match verdict {
            Some(verdict) => Failure::new(verdict.status, String::new()),
            None => Failure::new(failed.status, failed.words),
        }
    })
}

/// A rank's own failure, and whether it may come from another's.
fn failed(rank: usize, cause: Cause<TrainError>) -> Failed {
    let follows = matches!(
        cause,
        Cause::Error(TrainError::Comm(
            CommError::TimedOut { .. } | CommError::Transport { .. } | CommError::Poisoned { .. }
        ))
    );
    let failure = match cause {
        Cause::Error(error) => Failure::from(error),
        cause => Failure::run(format!("rank {rank} {cause}")),
    };
    Failed { status: failure.status(), words: failure.words().to_owned(), follows }
}

impl From<MpiError> for Failure {
    fn from(error: MpiError) -> Self {
        Self::run(error)
    }
}
