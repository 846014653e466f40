//! Megatron's indexed corpora: `PREFIX.bin` with the token ids of all sequences one after another, and
//! `PREFIX.idx` with where they begin.
//!
//! The index, little-endian: magic `MMIDIDX\0\0`, u64 version 1, u8 type code, u64 number of sequences
//! `n`, u64 number of document entries `d + 1`, i32 lengths in tokens `[n]`, i64 byte offsets `[n]`, i64
//! first sequence of each document `[d + 1]` (the last entry is `n`), and, in multimodal corpora only,
//! i8 modes `[n]`. Nothing in the header tells whether modes are there; the file's length does.

mod layout;
mod reader;
mod token_type;
mod writer;

pub use layout::IndexLayout;
pub use reader::IndexedCorpus;
pub use token_type::TokenType;
pub use writer::{IndexedWriter, WriterState};

use std::path::{Path, PathBuf};

/// `prefix` with `suffix` joined to its last component, whatever dots that holds.
pub(crate) fn beside(prefix: &Path, suffix: &str) -> PathBuf {
    let mut name = prefix.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}
