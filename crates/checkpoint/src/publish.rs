//! From a folder of finished shards to a published checkpoint, and back to free space.
//!
//! The order is a value, a list of moves, each of which the file system does as a whole. A
//! test stops after every prefix of the list and loads.

use crate::manifest::{MANIFEST, Manifest};
use crate::{Checkpoint, CheckpointError};
use henge_files::{FilesError, Operation, WithPath, sync_folder, write_atomic};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const TEMPORARY: &str = ".tmp";
const REPLACED: &str = ".replaced";

/// The name of a step's folder.
fn step_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// Makes the empty folder `step-N.tmp` in which the ranks write their shards. What a killed
/// save left under that name goes.
pub fn stage(checkpoints: &Path, step: u64) -> Result<PathBuf, CheckpointError> {
    let folder = checkpoints.join(step_name(step) + TEMPORARY);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_path(&folder, Operation::Remove)?;
    }
    fs::create_dir_all(&folder).with_path(&folder, Operation::Create)?;
    Ok(folder)
}

/// Publishes the folder of [`stage`] as `step-N`, once every rank has finished its shard, and
/// then removes all but the `keep` newest checkpoints. Returns the published folder.
///
/// Until the rename, and at every moment of it, the newest checkpoint that loads is the
/// previous one; nothing old goes before the new one is on the device.
pub fn publish(checkpoints: &Path, manifest: &Manifest, keep: usize) -> Result<PathBuf, CheckpointError> {
    let step = manifest.run.step;
    for action in moves(checkpoints, step, keep)? {
        action.run(manifest)?;
    }
    Ok(checkpoints.join(step_name(step)))
}

/// One step of publishing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Move {
    /// Writes the manifest into a folder and flushes the folder.
    WriteManifest(PathBuf),
    /// Renames a folder.
    Rename(PathBuf, PathBuf),
    /// Flushes the names in a folder.
    Sync(PathBuf),
    /// Removes a folder that no longer has a checkpoint's name.
    Remove(PathBuf),
}

impl Move {
    fn run(&self, manifest: &Manifest) -> Result<(), FilesError> {
        match self {
            Self::WriteManifest(folder) => {
                write_atomic(&folder.join(MANIFEST), |file| file.write_all(manifest.to_text().as_bytes()))
            }
            Self::Rename(from, to) => fs::rename(from, to).with_path(from, Operation::Rename),
            Self::Sync(folder) => sync_folder(folder),
            Self::Remove(folder) => fs::remove_dir_all(folder).with_path(folder, Operation::Remove),
        }
    }
}

/// The moves in order. A checkpoint of the same step, from before a resume, is set aside under
/// a name that [`published`] still finds; an old one loses its name before its files go.
fn moves(checkpoints: &Path, step: u64, keep: usize) -> Result<Vec<Move>, CheckpointError> {
    let at = |step: u64, suffix: &str| checkpoints.join(step_name(step) + suffix);
    let sync = || Move::Sync(checkpoints.to_path_buf());
    let existing = published(checkpoints)?;
    let mut moves = vec![Move::WriteManifest(at(step, TEMPORARY))];
    if let Some(same) = existing.iter().find(|(other, _)| *other == step) {
        let aside = at(step, REPLACED);
        moves.extend((same.1 != aside).then(|| Move::Rename(same.1.clone(), aside.clone())));
        moves.extend([Move::Rename(at(step, TEMPORARY), at(step, "")), sync(), Move::Remove(aside)]);
    } else {
        moves.extend([Move::Rename(at(step, TEMPORARY), at(step, "")), sync()]);
    }
    let older: Vec<_> = existing.into_iter().filter(|(other, _)| *other < step).collect();
    let excess = (older.len() + 1).saturating_sub(keep.max(1));
    for (old, path) in older.into_iter().take(excess) {
        moves.extend([Move::Rename(path, at(old, TEMPORARY)), Move::Remove(at(old, TEMPORARY))]);
    }
    Ok(moves)
}

/// The published checkpoints of a folder, oldest first; none if there is no such folder.
/// Unfinished ones are not among them.
pub fn published(checkpoints: &Path) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
    let entries = match fs::read_dir(checkpoints) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_path(checkpoints, Operation::List)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.with_path(checkpoints, Operation::List)?;
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix("step-")) else { continue };
        let digits = name.strip_suffix(REPLACED).unwrap_or(name);
        if let (Ok(step), true) = (digits.parse::<u64>(), entry.path().is_dir()) {
            found.push((step, name.len(), entry.path()));
        }
    }
    // Of one step under two names the plain one, which is the shorter and the newer, counts.
    found.sort();
    found.dedup_by_key(|(step, ..)| *step);
    Ok(found.into_iter().map(|(step, _, path)| (step, path)).collect())
}

/// Opens the newest published checkpoint of a folder; `None` if there is none.
///
/// # Errors
/// If the newest is damaged: falling back in silence would lose steps without a word, so the
/// error names the one before, for the user to choose.
pub fn latest(checkpoints: &Path) -> Result<Option<Checkpoint>, CheckpointError> {
    published(checkpoints)?.pop().map(|(_, path)| Checkpoint::open(&path)).transpose()
}

/// What to do about a damaged checkpoint: the one before it, where there is one.
pub(crate) fn way_out(checkpoint: &Path) -> String {
    let name = checkpoint.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let step = name.strip_prefix("step-").map(|name| name.strip_suffix(REPLACED).unwrap_or(name));
    let step = step.and_then(|digits| digits.parse::<u64>().ok());
    let folder = checkpoint.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let before = step.and_then(|step| published(folder).ok()?.into_iter().rev().find(|(other, _)| *other < step));
    match before {
        Some((_, path)) => format!("the checkpoint before it is {0}: use it with `--resume {0}`", path.display()),
        None => "there is no earlier checkpoint beside it; restore it from a copy".to_string(),
    }
}
