//! What can be wrong with a corpus, a tokenizer or a request for samples.

use henge_files::FilesError;
use std::path::PathBuf;
use thiserror::Error;

/// An error of this crate; each names the file and the place, and says what to do.
#[derive(Debug, Error)]
pub enum DataError {
    #[error(transparent)]
    Files(#[from] FilesError),

    #[error("{}: {fault} at byte {offset}; prepare the corpus again", path.display())]
    CorruptIndex { path: PathBuf, offset: u64, fault: String },
    #[error(
        "{} has {actual} bytes but {} describes {expected}; the pair does not belong together or was cut short, \
         copy both files again or prepare the corpus again",
        bin.display(), idx.display()
    )]
    BinLength { bin: PathBuf, idx: PathBuf, actual: u64, expected: u64 },
    #[error("{} has no documents; a corpus needs at least one", path.display())]
    EmptyCorpus { path: PathBuf },
    #[error(
        "{}: token {position} is {value}, which is no token id; ids are whole numbers from 0 to 4294967295",
        path.display()
    )]
    NotAToken { path: PathBuf, position: u64, value: String },
    #[error(
        "token id {id} does not fit the {dtype} ids of {}; choose a wider type",
        path.display()
    )]
    IdTooWide { path: PathBuf, id: u32, dtype: &'static str },
    #[error(
        "document {document} holds a sequence of {tokens} tokens; the index format holds at most 2147483647 a sequence, \
         split the document"
    )]
    SequenceTooLong { document: u64, tokens: u64 },

    #[error("{}:{line}: {fault}", path.display())]
    BadLine { path: PathBuf, line: u64, fault: String },
    #[error(
        "{}: invalid UTF-8 on line {line} (byte {offset} of the text); convert the file to UTF-8 or remove the line",
        path.display()
    )]
    InvalidUtf8 { path: PathBuf, line: u64, offset: u64 },
    #[error("no input file matches {pattern}; check the path")]
    NoInput { pattern: String },
    #[error("the input holds no text ({inputs}); there is nothing to prepare")]
    EmptyInput { inputs: String },
    #[error("{}: {fault}", path.display())]
    UnreadableInput { path: PathBuf, fault: String },
    #[error("{what}; {remedy}")]
    BadRequest { what: String, remedy: String },
    #[error("stopped before the end; run the same command again to go on where it stopped")]
    Cancelled,
    #[error(
        "{}: a document of more than {limit} bytes cannot be cut without changing its tokens with this tokenizer; \
         split the document into smaller ones",
        path.display()
    )]
    Uncuttable { path: PathBuf, limit: usize },

    #[error("cannot load tokenizer {name}: {fault}")]
    Tokenizer { name: String, fault: String },
    #[error("tokenizer {name} has no end-of-document token among {tried}; name one or leave the mark out")]
    NoEndOfDocument { name: String, tried: String },

    #[error(
        "the {part} part of {} has {tokens} tokens but one sample needs {needed}; give it a larger share of the split, \
         shorten seq_len or add text",
        path.display()
    )]
    NoFullSample { path: PathBuf, part: &'static str, tokens: u64, needed: u64 },
    #[error("a split needs three shares of at least 0 and a positive sum, not {given}")]
    BadSplit { given: String },
    #[error("corpus weights must be positive numbers, not {weight}")]
    BadWeight { weight: f64 },
}

impl DataError {
    /// Whether the machine failed (a full disk, a dying device) rather than the request.
    pub fn is_machine_failure(&self) -> bool {
        match self {
            DataError::Files(error) => error.is_disk_full(),
            DataError::Cancelled => true,
            _ => false,
        }
    }
}
