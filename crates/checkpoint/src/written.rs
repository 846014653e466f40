//! What is known of a save before it has a manifest: notes beside the shards, one of the run and
//! one of each rank that has written its part.
//!
//! The ranks of a save may be threads or processes on several hosts; what they share for certain
//! is the folder that they save into. So whoever outlives a failure can tell whether a save is
//! whole, and publish it.

use crate::manifest::ShardRecord;
use crate::publish::{is_staged, unfinished};
use crate::{CheckpointError, RunState};
use henge_files::{Checksum, Operation, WithPath, write_atomic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const RUN: &str = "run.note";

/// A save that every rank has written, before it is published.
#[derive(Debug, PartialEq)]
pub struct Written {
    /// Where the run stood.
    pub run: RunState,
    /// What each rank wrote, in the order of ranks.
    pub records: Vec<ShardRecord>,
    /// Sums of squares of what was written, by kind, over all ranks in their order.
    pub squares: [f64; 3],
}

#[derive(Serialize, Deserialize)]
struct Part {
    record: ShardRecord,
    /// Bits of the sums of squares: they may be no numbers, which JSON cannot say.
    squares: [u64; 3],
}

/// Notes in the folder of [`crate::stage`] where the run stood.
pub fn note_run(staged: &Path, run: &RunState) -> Result<(), CheckpointError> {
    write_note(&staged.join(RUN), run)
}

/// Notes in the folder of [`crate::stage`] that a rank has written its part, with the sums of
/// squares of what it holds by kind.
pub fn note_part(staged: &Path, rank: usize, record: ShardRecord, squares: [f64; 3]) -> Result<(), CheckpointError> {
    write_note(&part_path(staged, rank), &Part { record, squares: squares.map(f64::to_bits) })
}

/// What `ranks` ranks have noted in the folder of [`crate::stage`]; `None` where the run or a rank
/// has noted nothing yet.
pub fn written(staged: &Path, ranks: usize) -> Result<Option<Written>, CheckpointError> {
    let Some(run) = read_note(&staged.join(RUN))? else { return Ok(None) };
    let (mut records, mut squares) = (Vec::with_capacity(ranks), [0.0; 3]);
    for rank in 0..ranks {
        let Some(part) = read_note::<Part>(&part_path(staged, rank))? else { return Ok(None) };
        let own = part.squares.map(f64::from_bits);
        // In the order of ranks, whoever was first: a sum depends on its order.
        squares.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        records.push(part.record);
    }
    Ok(Some(Written { run, records, squares }))
}

/// Removes the notes, which a published checkpoint does not have.
pub fn remove_notes(staged: &Path, ranks: usize) -> Result<(), CheckpointError> {
    assert!(is_staged(staged), "{} is not a folder of an unfinished save", staged.display());
    let paths = (0..ranks).map(|rank| part_path(staged, rank)).chain([staged.join(RUN)]);
    for path in paths {
        fs::remove_file(&path).with_path(&path, Operation::Remove)?;
    }
    Ok(())
}

/// The newest unfinished save whose run and all of whose `ranks` ranks have noted their part.
/// Notes that cannot be read are none.
pub fn newest_written(checkpoints: &Path, ranks: usize) -> Option<(PathBuf, Written)> {
    let mut staged = unfinished(checkpoints);
    staged.sort();
    let whole = |(_, path): (u64, PathBuf)| Some((path.clone(), written(&path, ranks).ok().flatten()?));
    staged.into_iter().rev().find_map(whole)
}

fn part_path(staged: &Path, rank: usize) -> PathBuf {
    staged.join(format!("part-{rank:05}.note"))
}

/// A line of JSON and a line with its checksum: what a manifest says comes from here.
fn write_note(path: &Path, note: &impl Serialize) -> Result<(), CheckpointError> {
    let text = serde_json::to_string(note).expect("a note is plain text and numbers");
    let lines = format!("{text}\n{}\n", checksum(&text));
    Ok(write_atomic(path, |file| file.write_all(lines.as_bytes()))?)
}

fn checksum(text: &str) -> String {
    let mut checksum = Checksum::new();
    checksum.update(text.as_bytes());
    checksum.hex()
}

fn read_note<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, CheckpointError> {
    let lines = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        lines => lines.with_path(path, Operation::Read)?,
    };
    let damaged = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    let whole = lines.strip_suffix('\n').and_then(|lines| lines.split_once('\n'));
    let note = match whole.filter(|(text, sum)| *sum == checksum(text)) {
        Some((text, _)) => serde_json::from_str(text).map_err(|error| damaged(error.to_string())),
        None => Err(damaged("its checksum is another: the note is damaged".to_string())),
    };
    Ok(Some(note.with_path(path, Operation::Read)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileRecord, stage};

    fn record(rank: usize) -> ShardRecord {
        let file = FileRecord { name: format!("shard-{rank}"), bytes: 1, header_checksum: String::new() };
        ShardRecord { file: Some(file), chunks: vec![] }
    }

    #[test]
    fn a_save_is_whole_once_the_run_and_every_rank_have_noted_their_part() {
        let folder = tempfile::tempdir().unwrap();
        let staged = stage(folder.path(), 7).unwrap();
        note_part(&staged, 1, record(1), [1e-300, f64::NAN, 0.1]).unwrap();
        note_part(&staged, 0, record(0), [1.0, 0.0, 0.2]).unwrap();
        assert_eq!(written(&staged, 2).unwrap(), None);
        note_run(&staged, &RunState { step: 7, ..RunState::default() }).unwrap();
        assert_eq!(written(&staged, 3).unwrap(), None);
        let (path, whole) = newest_written(folder.path(), 2).unwrap();
        assert_eq!((path, whole.run.step, &whole.records[..]), (staged.clone(), 7, &[record(0), record(1)][..]));
        assert!(whole.squares[0] == 1.0 && whole.squares[1].is_nan() && whole.squares[2] == 0.2 + 0.1);
        remove_notes(&staged, 2).unwrap();
        assert_eq!(fs::read_dir(&staged).unwrap().count(), 0);
        assert!(newest_written(folder.path(), 2).is_none());
    }
}
