//! What is there.

use crate::manifest::TensorRecord;
use crate::{Checkpoint, CheckpointError, Kind, newest, published};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A checkpoint in a few numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Its folder.
    pub path: PathBuf,
    /// Optimizer steps taken.
    pub step: u64,
    /// Samples consumed.
    pub samples: u64,
    /// Tokens consumed.
    pub tokens: u64,
    /// Loss of the last step.
    pub loss: Option<f64>,
    /// Parameters of the model.
    pub parameters: u64,
    /// Whether the optimizer's moments are there.
    pub moments: bool,
    /// Bytes of all shards.
    pub bytes: u64,
    /// Number of shards.
    pub shards: usize,
}

/// The summary of an open checkpoint.
pub fn summarize(checkpoint: &Checkpoint) -> Summary {
    let manifest = checkpoint.manifest();
    let size = |tensor: &TensorRecord| tensor.shape.iter().map(|&n| n as u64).product::<u64>();
    let weights = manifest.tensors.iter().filter(|tensor| tensor.kind == Kind::Weight);
    Summary {
        path: checkpoint.folder().to_path_buf(),
        step: manifest.run.step,
        samples: manifest.run.samples,
        tokens: manifest.run.tokens,
        loss: manifest.run.loss,
        parameters: weights.map(size).sum(),
        moments: manifest.has_moments(),
        bytes: manifest.files.iter().map(|file| file.bytes).sum(),
        shards: manifest.files.len(),
    }
}

/// The checkpoints at a path, oldest first: the one it is, those in it, or those of a run's
/// folder. A damaged one stands in the list as its error.
pub fn list(path: &Path) -> Result<Vec<Result<Summary, CheckpointError>>, CheckpointError> {
    let open = |folder: &Path| Checkpoint::open(folder).map(|checkpoint| summarize(&checkpoint));
    let newest = newest(path)?;
    if newest == path {
        return Ok(vec![open(path)]);
    }
    let folder = newest.parent().expect("a published checkpoint lies in a folder");
    let found = published(folder)?;
    Ok(found.iter().map(|(_, folder)| open(folder)).collect())
}
