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

/// The folder in which a step's shards are written until it is published.
pub fn staged(checkpoints: &Path, step: u64) -> PathBuf {
    checkpoints.join(step_name(step) + TEMPORARY)
}

/// Removes what failed saves have staged, as far as the system lets it: the failure itself is
/// what is reported.
pub fn discard_staged(checkpoints: &Path) {
    unfinished(checkpoints).into_iter().for_each(|(_, path)| drop(fs::remove_dir_all(path)));
}

/// Step and folder of every save that is not published, as far as the system shows them.
pub(crate) fn unfinished(checkpoints: &Path) -> Vec<(u64, PathBuf)> {
    let all = folders(checkpoints).unwrap_or_default().into_iter();
    all.filter(|(_, suffix, _)| *suffix == TEMPORARY).map(|(step, _, path)| (step, path)).collect()
}

/// Whether a folder's name is that of a save that is not published.
pub(crate) fn is_staged(folder: &Path) -> bool {
    parse_name(folder).is_some_and(|(_, suffix)| suffix == TEMPORARY)
}

/// Renames the published checkpoints of later steps to `abandoned-step-N`, newest first, so that
/// a run that goes on from `step` is never overtaken by the line it left. Nothing is removed.
/// Returns the new names.
pub fn set_aside_after(checkpoints: &Path, step: u64) -> Result<Vec<PathBuf>, CheckpointError> {
    let mut aside = Vec::new();
    for (later, path) in published(checkpoints)?.into_iter().rev().filter(|(later, _)| *later > step) {
        let name = (0..).map(|again| match again {
            0 => format!("abandoned-{}", step_name(later)),
            again => format!("abandoned-{}.{again}", step_name(later)),
        });
        let free = name.map(|name| checkpoints.join(name)).find(|to| !to.exists());
        let to = free.expect("there is no end of names");
        fs::rename(&path, &to).with_path(&path, Operation::Rename)?;
        aside.push(to);
    }
    sync_folder_if_any(checkpoints, &aside)?;
    Ok(aside)
}

fn sync_folder_if_any(folder: &Path, changed: &[PathBuf]) -> Result<(), CheckpointError> {
    if changed.is_empty() { Ok(()) } else { Ok(sync_folder(folder)?) }
}

/// Makes the empty folder `step-N.tmp` in which the ranks write their shards. What a killed
/// save left under that name goes.
pub fn stage(checkpoints: &Path, step: u64) -> Result<PathBuf, CheckpointError> {
    let folder = staged(checkpoints, step);
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
/// previous one; nothing old goes before the new one is on the device. A nameless folder that
/// cannot be removed yet stays for the next save to remove.
pub fn publish(checkpoints: &Path, manifest: &Manifest, keep: usize) -> Result<PathBuf, CheckpointError> {
    let step = manifest.run.step;
    for action in moves(checkpoints, step, keep)? {
        match (action.run(manifest), &action) {
            // No checkpoint's name stands for it any more; the next save tries again.
            (Err(_), Move::Remove(_)) => {}
            (done, _) => done?,
        }
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
/// a name that [`published`] still finds; an old one loses its name before its files go. What
/// killed saves left behind goes too.
fn moves(checkpoints: &Path, step: u64, keep: usize) -> Result<Vec<Move>, CheckpointError> {
    let at = |step: u64, suffix: &str| checkpoints.join(step_name(step) + suffix);
    let sync = || Move::Sync(checkpoints.to_path_buf());
    let existing = published(checkpoints)?;
    let mut moves: Vec<Move> = leftovers(checkpoints, step)?.into_iter().map(Move::Remove).collect();
    moves.push(Move::WriteManifest(at(step, TEMPORARY)));
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

/// Folders that no checkpoint's name stands for any more: half-written or half-removed ones of
/// earlier steps, and replaced ones whose replacement is published.
fn leftovers(checkpoints: &Path, step: u64) -> Result<Vec<PathBuf>, CheckpointError> {
    let stale = |(other, suffix, path): (u64, &str, PathBuf)| {
        let unfinished = suffix == TEMPORARY && other < step;
        let replaced = suffix == REPLACED && checkpoints.join(step_name(other)).is_dir();
        (unfinished || replaced).then_some(path)
    };
    Ok(folders(checkpoints)?.into_iter().filter_map(stale).collect())
}

/// The published checkpoints of a folder, oldest first; none if there is no such folder.
/// Unfinished ones are not among them.
pub fn published(checkpoints: &Path) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
    let mut found = folders(checkpoints)?;
    found.retain(|(_, suffix, _)| *suffix != TEMPORARY);
    // Of one step under two names the plain one, which sorts first, is the newer.
    found.sort();
    found.dedup_by_key(|(step, ..)| *step);
    Ok(found.into_iter().map(|(step, _, path)| (step, path)).collect())
}

/// Every folder that a save made: step, suffix of the name, path.
fn folders(checkpoints: &Path) -> Result<Vec<(u64, &'static str, PathBuf)>, CheckpointError> {
    let entries = match fs::read_dir(checkpoints) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_path(checkpoints, Operation::List)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.with_path(checkpoints, Operation::List)?.path();
        if let (Some((step, suffix)), true) = (parse_name(&path), path.is_dir()) {
            found.push((step, suffix, path));
        }
    }
    Ok(found)
}

/// Step and suffix of a checkpoint's folder, by its name.
fn parse_name(path: &Path) -> Option<(u64, &'static str)> {
    let name = path.file_name()?.to_str()?.strip_prefix("step-")?;
    let suffix = [TEMPORARY, REPLACED].into_iter().find(|suffix| name.ends_with(suffix)).unwrap_or("");
    let step = name.strip_suffix(suffix)?.parse().ok()?;
    Some((step, suffix))
}

/// Opens the newest published checkpoint of a folder; `None` if there is none.
///
/// # Errors
/// If the newest is damaged: falling back in silence would lose steps without a word, so the
/// error names the one before, for the user to choose.
pub fn latest(checkpoints: &Path) -> Result<Option<Checkpoint>, CheckpointError> {
    published(checkpoints)?.pop().map(|(_, path)| Checkpoint::open(&path)).transpose()
}

/// The folder of the checkpoint at a path: the path itself, or the newest published in it or in
/// its `checkpoints`, as in a run's folder.
pub fn newest(path: &Path) -> Result<PathBuf, CheckpointError> {
    if path.join(MANIFEST).is_file() || parse_name(path).is_some() {
        return Ok(path.to_path_buf());
    }
    for folder in [path.to_path_buf(), path.join("checkpoints")] {
        if let Some((_, newest)) = published(&folder)?.pop() {
            return Ok(newest);
        }
    }
    Err(CheckpointError::NotFound {
        path: path.to_path_buf(),
        problem: if path.exists() { "there is no checkpoint in it" } else { "there is nothing there" }.to_string(),
        fix: "give a checkpoint or a run's folder".to_string(),
    })
}

/// What to do about a damaged checkpoint: the one before it, where there is one.
pub(crate) fn way_out(checkpoint: &Path) -> String {
    let step = parse_name(checkpoint).map(|(step, _)| step);
    let folder = checkpoint.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let before = step.and_then(|step| published(folder).ok()?.into_iter().rev().find(|(other, _)| *other < step));
    match before {
        Some((_, path)) => format!("the checkpoint before it is {0}: use it with `--resume {0}`", path.display()),
        None => "there is no earlier checkpoint beside it; restore it from a copy".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Kind, RunState, ShardWriter, Slot};
    use henge_spec::{Model, parameters};

    fn model() -> Model {
        Model::gpt(1, 8, 2, 4, 10)
    }

    /// Stages a step whose every weight is `value`.
    fn staged(checkpoints: &Path, step: u64, value: f32) -> Manifest {
        let folder = stage(checkpoints, step).unwrap();
        let list = parameters(&model());
        let slots = list.iter().map(|p| Slot::new(Kind::Weight, p, Block::whole(p))).collect();
        let mut writer = ShardWriter::create(&folder, 0, slots).unwrap();
        for p in &list {
            writer.add(Kind::Weight, p, Block::whole(p), &vec![value; p.len()]).unwrap();
        }
        let run = RunState { step, ..RunState::default() };
        Manifest::assemble(&model(), run, vec![writer.finish().unwrap()]).unwrap()
    }

    /// Step and value of the newest checkpoint, every tensor of it read.
    fn load(checkpoints: &Path) -> (u64, f32) {
        let checkpoint = latest(checkpoints).unwrap().expect("some checkpoint always loads");
        let mut value = None;
        for p in parameters(&model()) {
            let mut out = vec![0.0; p.len()];
            checkpoint.read(Kind::Weight, &p.name, Block::whole(&p), &mut out).unwrap();
            assert!(out.iter().all(|v| *value.get_or_insert(*v) == *v), "{} is of another save", p.name);
        }
        (checkpoint.manifest().run.step, value.unwrap())
    }

    fn names(checkpoints: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(checkpoints).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.into_string().unwrap()).collect()
    }

    /// Saves `steps` whole, then `step` up to each prefix of its moves; each time the newest
    /// that loads must be the previous one until the rename and the new one from it on, and
    /// the same save must succeed afterwards.
    fn stop_at_every_move(steps: &[u64], step: u64, keep: usize) -> usize {
        for stop in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let at = folder.path();
            for &step in steps {
                publish(at, &staged(at, step, step as f32), 9).unwrap();
            }
            let before = load(at);
            let manifest = staged(at, step, -1.0);
            let moves = moves(at, step, keep).unwrap();
            for action in moves.iter().take(stop) {
                action.run(&manifest).unwrap();
            }
            let plain = |action: &Move| matches!(action, Move::Rename(_, to) if *to == at.join(step_name(step)));
            let published = moves.iter().take(stop).any(plain);
            assert_eq!(load(at), if published { (step, -1.0) } else { before }, "after {stop} of {moves:?}");
            // The resumed run comes to the same step again.
            publish(at, &staged(at, step, -2.0), keep).unwrap();
            assert_eq!(load(at), (step, -2.0));
            if stop == moves.len() {
                return stop;
            }
        }
        unreachable!("the moves are finitely many")
    }

    #[test]
    fn some_checkpoint_loads_after_every_move() {
        assert_eq!(stop_at_every_move(&[1, 2], 3, 9), 3);
        assert_eq!(stop_at_every_move(&[1, 2, 3], 4, 1), 9);
        // A step saved again after a resume.
        assert_eq!(stop_at_every_move(&[1, 2], 2, 9), 5);
        assert_eq!(stop_at_every_move(&[1, 2, 3], 3, 2), 7);
    }

    #[test]
    fn the_newest_stay() {
        let folder = tempfile::tempdir().unwrap();
        for step in 1..=5 {
            publish(folder.path(), &staged(folder.path(), step, step as f32), 2).unwrap();
        }
        assert_eq!(names(folder.path()), ["step-00000004", "step-00000005"]);
    }

    #[test]
    fn unfinished_and_foreign_folders_are_no_checkpoints() {
        let folder = tempfile::tempdir().unwrap();
        assert!(latest(&folder.path().join("absent")).unwrap().is_none());
        staged(folder.path(), 8, 1.0);
        fs::create_dir(folder.path().join("step-best")).unwrap();
        fs::write(folder.path().join("step-00000009"), "a file").unwrap();
        assert!(latest(folder.path()).unwrap().is_none());
    }
}
