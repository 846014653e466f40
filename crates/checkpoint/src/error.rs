//! What can be wrong with a checkpoint: which file, which tensor, where, and the way out.

use henge_files::{FilesError, Operation};
use std::path::PathBuf;
use thiserror::Error;

/// Why weights or a checkpoint could not be read or written.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The operating system refused.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Nothing at this path is a checkpoint or a folder of weights.
    #[error("{}: {problem}; {fix}", path.display())]
    NotFound {
        /// The path given.
        path: PathBuf,
        /// What was looked for.
        problem: String,
        /// What to do.
        fix: String,
    },
    /// Bytes of a file are not what was written.
    #[error("{}: damaged: {place}: {problem}; {fix}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The tensor and its first byte, or the part of the file.
        place: String,
        /// What differs.
        problem: String,
        /// What to do.
        fix: String,
    },
    /// A shard that the manifest names is not there.
    #[error("{}: missing: it holds {holds}; {fix}", file.display())]
    MissingShard {
        /// The shard.
        file: PathBuf,
        /// The tensors lost with it.
        holds: String,
        /// What to do.
        fix: String,
    },
    /// A manifest whose chunks do not cover a tensor exactly once.
    #[error("{}: tensor `{tensor}`: {problem}; {fix}", file.display())]
    Uncovered {
        /// The manifest.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is missing or twice there.
        problem: String,
        /// What to do.
        fix: String,
    },
    /// Keys that describe no model.
    #[error("{}: it describes no model: {source}", file.display())]
    Model {
        /// The file or folder.
        file: PathBuf,
        /// The key and what is wrong with it.
        source: Box<henge_spec::SpecError>,
    },
    /// Written by a later Henge.
    #[error("{}: format version {found}, but this Henge reads up to {known}; use a newer Henge", file.display())]
    NewerVersion {
        /// The manifest.
        file: PathBuf,
        /// Its version.
        found: u64,
        /// The newest version known here.
        known: u64,
    },
    /// A checkpoint of another model.
    #[error("{}: is of another model: `{key}` is {found} there and {expected} here; \
             set `{key} = {found}` or choose another checkpoint", file.display())]
    OtherModel {
        /// The manifest or configuration.
        file: PathBuf,
        /// The first key that differs.
        key: String,
        /// Its value in the checkpoint.
        found: String,
        /// Its value in the run.
        expected: String,
    },
    /// A tensor that is not there.
    #[error("{}: has no tensor `{tensor}`; {fix}", file.display())]
    NoTensor {
        /// The file or folder.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// What to do.
        fix: String,
    },
    /// A tensor of another shape.
    #[error("{}: tensor `{tensor}` has shape {found:?} where the model has {expected:?}; \
             the configuration and the weights are not of one model", file.display())]
    Shape {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape there.
        found: Vec<usize>,
        /// The shape that the model asks for.
        expected: Vec<usize>,
    },
    /// Something that this version does not read or write.
    #[error("{}: {what}; {fix}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// What it asks for.
        what: String,
        /// What to do.
        fix: String,
    },
}

impl CheckpointError {
    /// Whether the machine failed (a full disk, a refused write) rather than the request
    /// being wrong (an unreadable or damaged input).
    pub fn is_machine(&self) -> bool {
        match self {
            Self::Files(FilesError::DiskFull { .. }) => true,
            Self::Files(FilesError::Io { operation, .. }) => {
                !matches!(operation, Operation::Open | Operation::Read | Operation::List | Operation::Map)
            }
            _ => false,
        }
    }
}
