//! Reading every byte.

use crate::checkpoint::open_parts;
use crate::shard::key;
use crate::{Checkpoint, CheckpointError};
use serde::Serialize;
use std::path::Path;

/// What was read and found whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Shards.
    pub files: usize,
    /// Tensors, moments counted apart.
    pub tensors: usize,
    /// Chunks.
    pub chunks: usize,
    /// Bytes read.
    pub bytes: u64,
}

/// Reads a checkpoint whole: every chunk against its checksum, every shard's own keys against
/// the manifest.
///
/// # Errors
/// Everything that is wrong, not only the first.
pub fn verify(folder: &Path) -> Result<Verified, Vec<CheckpointError>> {
    let (checkpoint, mut problems) = open_parts(folder).map_err(|error| vec![error])?;
    let manifest = checkpoint.manifest();
    let mut verified = Verified { files: manifest.files.len(), tensors: manifest.tensors.len(), chunks: 0, bytes: 0 };
    for record in &manifest.tensors {
        for chunk in record.chunks.iter().filter(|chunk| checkpoint.has_file(&chunk.file)) {
            problems.extend(checkpoint.check_chunk(record, chunk).err());
            verified.chunks += 1;
            verified.bytes += chunk.bytes;
        }
    }
    problems.extend(check_keys(&checkpoint));
    if problems.is_empty() { Ok(verified) } else { Err(problems) }
}

/// Holds the keys and offsets by which the shards explain themselves against the manifest.
fn check_keys(checkpoint: &Checkpoint) -> Vec<CheckpointError> {
    let manifest = checkpoint.manifest();
    let mut problems = Vec::new();
    for record in &manifest.tensors {
        for chunk in &record.chunks {
            let Some(found) = checkpoint.own_offset(chunk, &key(record.kind, &record.name, &record.shape, chunk.block))
            else {
                continue;
            };
            if found != Some(chunk.offset) {
                let found = found.map_or("nowhere".to_string(), |found| format!("at byte {found}"));
                problems.push(CheckpointError::Damaged {
                    file: checkpoint.folder().join(&chunk.file),
                    place: format!("{} `{}`, {}", record.kind, record.name, chunk.block),
                    problem: format!("the shard has it {found}, the manifest at byte {}", chunk.offset),
                    fix: "the shard and the manifest are of two saves; restore both from one".to_string(),
                });
            }
        }
    }
    problems
}
