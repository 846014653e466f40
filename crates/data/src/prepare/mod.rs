//! Raw text to an indexed corpus.
//!
//! A reader thread cuts the inputs into blocks, any number of workers parse and encode them, and the
//! calling thread writes the results in the order of the blocks. The number of bytes between reader and
//! writer is bounded, so memory does not grow with the corpus.
//!
//! A text longer than a block is cut where the tokenizer is known to end a word, so that the ids are
//! those of the whole text; see [`cut`] for the rule.

mod budget;
mod cut;
mod encode;
mod inputs;
mod journal;
mod json;
mod long_line;
mod parallel;
mod parquet;
mod pipeline;
mod reader;
mod texts;

pub use cut::DOCUMENT_BUFFER;
pub use inputs::{Format, Input, InputKind, find_inputs};
pub use pipeline::{Progress, Summary, prepare, prepare_sentences};
pub use texts::each_text;

pub(crate) use encode::{each_line, each_row, line_fields};
pub(crate) use parallel::in_order;
pub(crate) use reader::{Block, Content, Position, Reader};

use std::path::PathBuf;
use std::time::Duration;

/// A customary [`PrepareOptions::record_every`]: a record flushes all files to the device.
pub const RECORD_EVERY: Duration = Duration::from_secs(5);

/// What becomes one sequence of the corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SequenceUnit {
    Document,
    /// By the sentence boundaries of Unicode's annex 29; NLTK's punkt, which Megatron takes, differs after
    /// abbreviations.
    Sentence,
}

/// What to prepare and how.
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// Files in the order in which their documents are written; see [`find_inputs`].
    pub inputs: Vec<Input>,
    /// The text field of JSON lines and the text column of Parquet files. With several, each is written
    /// to a corpus of its own, `PREFIX_key`.
    pub keys: Vec<String>,
    /// Name of the corpus without `.bin` and `.idx`.
    pub output: PathBuf,
    /// Token appended to each document that has any token.
    pub end_of_document: Option<u32>,
    /// Threads that encode; at least 1.
    pub workers: usize,
    /// Time between two records of how far the work has come, from which a killed run goes on.
    pub record_every: Duration,
}
