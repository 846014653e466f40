//! What can be done with checkpoints on one core, in memory bounded by the largest tensor.

mod cut;
mod diff;
mod list;
mod rewrite;
mod verify;

pub use cut::Cut;
pub use diff::{Numbers, TensorDiff, diff};
pub use list::{Summary, list, summarize};
pub use rewrite::{import, reshape};
pub use verify::{Verified, verify};

use crate::CheckpointError;
use henge_files::{FilesError, Operation, WithPath, publish_folder, temporary_name};
use std::path::Path;

/// Fills a new folder beside its name and renames it; a failure leaves nothing.
pub(crate) fn write_folder<T>(
    out: &Path,
    fill: impl FnOnce(&Path) -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    if out.exists() {
        return Err(FilesError::Exists { path: out.to_path_buf() }.into());
    }
    let folder = temporary_name(out);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_path(&folder, Operation::Remove)?;
    }
    std::fs::create_dir_all(&folder).with_path(&folder, Operation::Create)?;
    let filled = fill(&folder).and_then(|done| Ok(publish_folder(&folder, out).map(|()| done)?));
    if filled.is_err() {
        // The error that led here is the one worth reporting.
        let _ = std::fs::remove_dir_all(&folder);
    }
    filled
}
