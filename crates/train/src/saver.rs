//! The thread that writes a rank's part of a checkpoint, and its copy of the state.

use crate::receipt::sum_of_squares;
use crate::{Job, TrainError};
use henge_checkpoint::{Block, Kind, RunState, ShardRecord, ShardWriter, Slot};
use henge_spec::Parameter;
use henge_tensor::{Kind as Held, Pool, Pooled};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A block of a weight or of a moment that a rank writes.
pub(crate) struct Part {
    pub kind: Kind,
    pub parameter: Parameter,
    pub block: Block,
    /// First element in the rank's buffer.
    pub start: usize,
}

/// Where a save goes.
pub(crate) struct Target {
    /// Its folder until it is published.
    pub staged: PathBuf,
    /// Who writes.
    pub rank: usize,
    /// Where the run stands, which rank 0 notes beside its shard.
    pub run: Option<RunState>,
}

/// How far a save is; the same on every rank between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is none.
    Idle,
    /// The ranks write their parts.
    Writing,
    /// Rank 0 writes the manifest, renames and removes what is too old.
    Publishing,
}

/// What a thread comes back with.
enum Done {
    Written(Pooled),
    Published((u64, PathBuf)),
}

/// The save in flight of a rank. Dropping it waits for the thread: what is being written is
/// written to its end, or has failed, and the observer hears which.
pub(crate) struct Saver {
    pub phase: Phase,
    /// The folder of the save in flight.
    staged: PathBuf,
    /// Step and folder, once published, on rank 0.
    pub published: Option<(u64, PathBuf)>,
    /// Seconds for which saves have held the step up since last asked.
    pub held_up: f64,
    /// Bytes of the copy, wherever it is.
    pub bytes: u64,
    /// The copy of the state, `[elements of the parts]`, kept between saves; away with the thread
    /// while that writes.
    copy: Option<Pooled>,
    job: Arc<Job>,
    thread: Option<JoinHandle<Result<Done, TrainError>>>,
}

impl Saver {
    pub fn new(job: Arc<Job>) -> Self {
        Self {
            phase: Phase::Idle,
            staged: PathBuf::new(),
            published: None,
            held_up: 0.0,
            bytes: 0,
            copy: None,
            job,
            thread: None,
        }
    }

    /// Takes the memory that every save of these parts will use, on huge pages where there are
    /// any, and touches it: the first save is held up by no more than a copy.
    pub fn reserve(&mut self, parts: &[Part]) {
        let bytes = size_of::<f32>() * parts.iter().map(|part| part.block.len()).sum::<usize>();
        let mut copy = Pool::new().take(bytes, Held::Buffer);
        copy.fill(0);
        (self.copy, self.bytes) = (Some(copy), bytes as u64);
    }

    /// Starts to write `parts` into the target from a copy, which `fill` makes of each part in their
    /// order.
    pub fn write(
        &mut self,
        target: Target,
        parts: Vec<Part>,
        fill: impl Fn(&Part, &mut [f32]),
    ) -> Result<(), TrainError> {
        let mut copy = self.copy.take().expect("reserved, and back from the save before");
        let mut rest = copy.as_mut_slice::<f32>();
        for part in &parts {
            let (out, after) = rest.split_at_mut(part.block.len());
            fill(part, out);
            rest = after;
        }
        self.staged.clone_from(&target.staged);
        self.start("henge-save", move || {
            let Target { staged, rank, run } = target;
            run.map_or(Ok(()), |run| henge_checkpoint::note_run(&staged, &run))?;
            let (record, squares) = write_shard(&staged, rank, &parts, copy.as_slice())?;
            henge_checkpoint::note_part(&staged, rank, record, squares)?;
            Ok(Done::Written(copy))
        })?;
        self.phase = Phase::Writing;
        Ok(())
    }

    /// Starts to publish what all ranks have written.
    pub fn publish(&mut self) -> Result<(), TrainError> {
        let (job, staged) = (self.job.clone(), self.staged.clone());
        self.start("henge-publish", move || Ok(Done::Published(job.publish(&staged)?)))
    }

    fn start(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<Done, TrainError> + Send + 'static,
    ) -> Result<(), TrainError> {
        assert!(self.thread.is_none(), "one save at a time");
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(work);
        self.thread = Some(thread.map_err(TrainError::Thread)?);
        Ok(())
    }

    /// Whether this rank is still at work.
    ///
    /// # Errors
    /// What the thread failed of.
    pub fn is_busy(&mut self) -> Result<bool, TrainError> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            None => Ok(self.thread.is_some()),
            Some(thread) => {
                match thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))? {
                    Done::Written(copy) => self.copy = Some(copy),
                    Done::Published(published) => self.published = Some(published),
                }
                Ok(false)
            }
        }
    }

    /// Leaves the thread to itself, which may never come back from its disk; returns the folder
    /// that it writes to.
    pub fn leave(&mut self) -> PathBuf {
        drop(self.thread.take());
        self.staged.clone()
    }

    /// Seconds for which saves have held the step up since the last call; `None` without any.
    pub fn take_held_up(&mut self) -> Option<f64> {
        Some(std::mem::take(&mut self.held_up)).filter(|&seconds| seconds > 0.0)
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Ok(Done::Published(published)))) => self.published = Some(published),
            // Another failure led here and ends the run; this one is told beside it.
            Some(Ok(Err(error))) => self.job.observer.save_failed(&error),
            Some(Ok(Ok(Done::Written(_))) | Err(_)) | None => {}
        }
        if let Some((step, folder)) = self.published.take() {
            self.job.observer.saved(step, &folder);
        }
    }
}

/// The shard's record, and the sums of squares of what it holds, by kind.
fn write_shard(
    folder: &Path,
    rank: usize,
    parts: &[Part],
    copy: &[f32],
) -> Result<(ShardRecord, [f64; 3]), TrainError> {
    let slots = parts.iter().map(|part| Slot::new(part.kind, &part.parameter, part.block)).collect();
    let mut writer = ShardWriter::create(folder, rank, slots)?;
    let (mut rest, mut squares) = (copy, [0.0; 3]);
    for part in parts {
        let (values, after) = rest.split_at(part.block.len());
        writer.add(part.kind, &part.parameter, part.block, values)?;
        squares[part.kind as usize] += sum_of_squares(values);
        rest = after;
    }
    Ok((writer.finish()?, squares))
}
