//! `PREFIX.progress.json`: how far an unfinished preparation has come, so that the same command goes on.

use super::PrepareOptions;
use super::reader::Position;
use crate::error::DataError;
use crate::indexed::{TokenType, WriterState, beside};
use crate::tokenizer::Tokenizer;
use henge_files::{Checksum, FilesError, Operation, WithPath, write_atomic};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// What is known to be on the device.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    /// Names the request: inputs with size and time, tokenizer, options. Another request starts afresh.
    pub(super) request: String,
    pub(super) position: Position,
    /// One a key.
    pub(super) writers: Vec<WriterState>,
    pub(super) empty_documents: u64,
}

impl Journal {
    pub(super) fn path(options: &PrepareOptions) -> PathBuf {
        beside(&options.output, ".progress.json")
    }

    /// The journal of an interrupted run of the same request; anything else counts as none.
    pub(super) fn read(options: &PrepareOptions, request: &str) -> Option<Self> {
        let text = std::fs::read(Self::path(options)).ok()?;
        let journal: Journal = serde_json::from_slice(&text).ok()?;
        let fits = journal.request == request && journal.writers.len() == options.keys.len();
        fits.then_some(journal)
    }

    pub(super) fn write(&self, options: &PrepareOptions) -> Result<(), DataError> {
        let text = serde_json::to_vec(self).expect("a journal is plain data");
        Ok(write_atomic(&Self::path(options), |file| file.write_all(&text))?)
    }

    pub(super) fn remove(options: &PrepareOptions) -> Result<(), DataError> {
        let path = Self::path(options);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(FilesError::new(&path, Operation::Remove, error).into())
            }
            _ => Ok(()),
        }
    }
}

/// A name of the request; `None` where it cannot be repeated (standard input).
pub(super) fn name_request(
    options: &PrepareOptions,
    tokenizer: &Tokenizer,
    token_type: TokenType,
) -> Result<Option<String>, DataError> {
    let mut checksum = Checksum::new();
    let settings = (&options.keys, options.end_of_document, tokenizer.fingerprint(), token_type);
    checksum.update(format!("{settings:?}").as_bytes());
    for input in &options.inputs {
        if input.is_standard_input() {
            return Ok(None);
        }
        let metadata = std::fs::metadata(&input.path).with_path(&input.path, Operation::Read)?;
        let changed = metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        checksum.update(format!("{input:?} {} {changed:?}\n", metadata.len()).as_bytes());
    }
    Ok(Some(checksum.hex()))
}
