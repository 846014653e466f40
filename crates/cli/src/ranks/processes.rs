//! A run whose ranks are processes.

use crate::failure::Failure;
use henge_comm::Grid;
use henge_cpu::Fast;
use henge_mpi::{MpiError, World};
use henge_train::{Ended, Job, train_rank};
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

/// This rank of a job, to its end.
pub fn train(world: &World, job: Job, threads: usize) -> Result<Ended, Failure> {
    let (run, job) = (job.run.clone(), Arc::new(job));
    let comm = world.comm(Grid::new(&run.layout), Duration::from_secs(run.timeout), threads)?;
    Ok(train_rank(&job, Fast::new(threads, run.train.precision), comm)?)
}

impl From<MpiError> for Failure {
    fn from(error: MpiError) -> Self {
        Self::run(error)
    }
}
