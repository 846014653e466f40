//! What exports to any format share: their options, their account, and the tokenizer.

use crate::stored::Element;
use crate::{CheckpointError, Source, TokenizerFile};
use henge_files::{Operation, WithPath};
use henge_spec::DType;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Elements converted at a time.
pub(crate) const PANEL: usize = 1 << 20;

/// How to write weights for others.
#[derive(Clone, Debug)]
pub struct Export {
    /// Element type: F32, F16 or BF16.
    pub dtype: DType,
    /// Largest size of a file in bytes; one tensor may exceed it.
    pub shard_bytes: u64,
    /// Tokenizer file or folder, in place of the one that the source knows.
    pub tokenizer: Option<PathBuf>,
}

impl Export {
    /// float32, in files of 5 GB, with the source's own tokenizer.
    pub fn float32() -> Self {
        Self { dtype: DType::F32, shard_bytes: 5_000_000_000, tokenizer: None }
    }

    /// How the numbers are coded.
    pub(crate) fn element(&self, source: &dyn Source) -> Result<Element, CheckpointError> {
        match self.dtype {
            DType::F32 => Ok(Element::F32),
            DType::F16 => Ok(Element::F16),
            DType::BF16 => Ok(Element::BF16),
            DType::F64 => {
                let fix = "export as f32, f16 or bf16";
                Err(unsupported(source, "weights are held in f32".to_string(), fix))
            }
        }
    }

    /// Copies the tokenizer that was asked for, else the one that the source knows.
    pub(crate) fn lay_tokenizer(&self, source: &dyn Source, folder: &Path) -> Result<Vec<String>, CheckpointError> {
        let known = match &self.tokenizer {
            Some(path) => Some(TokenizerFile::Path(path.clone())),
            None => source.tokenizer()?,
        };
        known.map_or_else(|| Ok(Vec::new()), |tokenizer| tokenizer.lay(folder))
    }
}

/// What an export wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Files of weights.
    pub weights: Vec<String>,
    /// Tensors in them.
    pub tensors: usize,
    /// Their bytes without headers.
    pub bytes: u64,
    /// Files of the tokenizer that were copied.
    pub tokenizer: Vec<String>,
}

/// Something that the format or Henge does not do.
pub(crate) fn unsupported(source: &dyn Source, what: String, fix: &str) -> CheckpointError {
    CheckpointError::Unsupported { file: source.path().to_path_buf(), what, fix: fix.to_string() }
}

pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    Ok(std::fs::write(path, bytes).with_path(path, Operation::Write)?)
}
