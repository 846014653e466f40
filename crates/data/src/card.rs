//! `PREFIX.json`: what the two Megatron files cannot hold. Corpora made elsewhere have none.

use crate::error::DataError;
use crate::indexed::beside;
use henge_files::{FilesError, Operation, WithPath, write_atomic};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// What is recorded when a corpus is prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorpusCard {
    pub tokens: u64,
    pub sequences: u64,
    pub documents: u64,
    /// numpy's name of the element type.
    pub dtype: String,
    pub largest_id: u32,
    /// The token that ends each document, if one was appended.
    pub end_of_document: Option<u32>,
    pub tokenizer: TokenizerCard,
}

/// Which tokenizer made the ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerCard {
    pub name: String,
    pub fingerprint: String,
    pub vocabulary_size: usize,
}

impl CorpusCard {
    /// Reads `PREFIX.json`; `None` where there is none.
    pub fn read(prefix: &Path) -> Result<Option<Self>, DataError> {
        let path = beside(prefix, ".json");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FilesError::new(&path, Operation::Read, error).into()),
        };
        serde_json::from_str(&text).map(Some).map_err(|error| DataError::BadLine {
            path,
            line: error.line() as u64,
            fault: format!("{error}; prepare the corpus again or remove this file"),
        })
    }

    /// Writes `PREFIX.json`.
    pub fn write(&self, prefix: &Path) -> Result<(), DataError> {
        let path = beside(prefix, ".json");
        let mut text = serde_json::to_string_pretty(self).expect("a card is plain data");
        text.push('\n');
        Ok(write_atomic(&path, |file| file.write_all(text.as_bytes()))?)
    }

    /// Removes `PREFIX.json`, if it is there: the corpus it spoke of is about to be replaced.
    pub fn remove(prefix: &Path) -> Result<(), DataError> {
        let path = beside(prefix, ".json");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Ok(Err(error).with_path(&path, Operation::Remove)?),
            _ => Ok(()),
        }
    }
}
