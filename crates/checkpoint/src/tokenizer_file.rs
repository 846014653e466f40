//! Tokenizers that come with weights.

use crate::CheckpointError;
use henge_files::{Operation, WithPath, write_atomic};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The name under which a tokenizer lies beside weights.
const TOKENIZER: &str = "tokenizer.json";

/// The files that together are a tokenizer.
const FILES: [&str; 8] = [
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
];

/// A tokenizer that comes with weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerFile {
    /// A `tokenizer.json`, or a folder with the files of a tokenizer.
    Path(PathBuf),
    /// The text of a `tokenizer.json`.
    Json(String),
}

impl TokenizerFile {
    /// What lies in a folder, where it holds any file of a tokenizer.
    pub(crate) fn in_folder(folder: &Path) -> Option<Self> {
        FILES.iter().any(|name| folder.join(name).is_file()).then(|| Self::Path(folder.to_path_buf()))
    }

    /// Lays it into a folder. Returns the names of the files there.
    pub(crate) fn lay(&self, folder: &Path) -> Result<Vec<String>, CheckpointError> {
        let from = match self {
            Self::Json(text) => {
                write_atomic(&folder.join(TOKENIZER), |file| file.write_all(text.as_bytes()))?;
                return Ok(vec![TOKENIZER.to_string()]);
            }
            Self::Path(path) => path,
        };
        let copy = |from: &Path, name: &str| -> Result<String, CheckpointError> {
            std::fs::copy(from, folder.join(name)).with_path(from, Operation::Read)?;
            Ok(name.to_string())
        };
        if !from.is_dir() {
            return Ok(vec![copy(from, TOKENIZER)?]);
        }
        let there = FILES.into_iter().filter(|name| from.join(name).is_file());
        there.map(|name| copy(&from.join(name), name)).collect()
    }
}
