//! The thread that writes a rank's part of a checkpoint, and its copy of the state.

use crate::receipt::sum_of_squares;
use crate::{Job, TrainError};
use henge_checkpoint::{Block, Kind, ShardRecord, ShardWriter, Slot};
use henge_spec::Parameter;
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

/// How far a save is; the same on every rank between steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is none.
    #[default]
    Idle,
    /// The ranks write their parts.
    Writing,
    /// Rank 0 writes the manifest, renames and removes what is too old.
    Publishing,
}

/// What a thread comes back with.
enum Done {
    Written(Vec<f32>),
    Published(Option<(u64, PathBuf)>),
}

/// The save in flight of a rank. Dropping it waits for the thread: what is being written is
/// written to its end, or has failed.
#[derive(Default)]
pub(crate) struct Saver {
    pub phase: Phase,
    /// The copy of the state, `[elements of the parts]`, kept between saves; away with the thread
    /// while that writes.
    pub copy: Vec<f32>,
    /// Bytes of the copy, wherever it is.
    pub bytes: u64,
    /// Step and folder, once published, on rank 0.
    pub published: Option<(u64, PathBuf)>,
    /// Seconds for which saves have held the step up since last asked.
    pub held_up: f64,
    thread: Option<JoinHandle<Result<Done, TrainError>>>,
}

impl Saver {
    /// Takes the memory that every save of these parts will use.
    pub fn reserve(&mut self, parts: &[Part]) {
        self.copy = vec![0.0; parts.iter().map(|part| part.block.len()).sum()];
        self.bytes = size_of_val(&self.copy[..]) as u64;
    }

    /// Starts to write `copy`, whose blocks lie in the order of `parts`.
    pub fn write(&mut self, job: Arc<Job>, staged: PathBuf, rank: usize, parts: Vec<Part>, copy: Vec<f32>) {
        self.start("henge-save", move || {
            let (record, squares) = write_shard(&staged, rank, &parts, &copy)?;
            job.written(rank, record, squares);
            Ok(Done::Written(copy))
        });
        self.phase = Phase::Writing;
    }

    /// Starts to publish what all ranks have written.
    pub fn publish(&mut self, job: Arc<Job>) {
        self.start("henge-publish", move || Ok(Done::Published(job.publish()?)));
    }

    fn start(&mut self, name: &str, work: impl FnOnce() -> Result<Done, TrainError> + Send + 'static) {
        assert!(self.thread.is_none(), "one save at a time");
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(work);
        self.thread = Some(thread.expect("the system gives a thread where it gave those of the ranks"));
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
                    Done::Written(copy) => self.copy = copy,
                    Done::Published(published) => self.published = published,
                }
                Ok(false)
            }
        }
    }

    /// Seconds for which saves have held the step up since the last call; `None` without any.
    pub fn take_held_up(&mut self) -> Option<f64> {
        Some(std::mem::take(&mut self.held_up)).filter(|&seconds| seconds > 0.0)
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        // Its failure is not the one to report: another led here.
        self.thread.take().map(JoinHandle::join);
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
