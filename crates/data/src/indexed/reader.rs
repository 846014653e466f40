//! Reading an indexed corpus through memory maps.

use super::beside;
use super::layout::{HEADER_BYTES, IndexLayout, read_u32, read_u64};
use super::token_type::TokenType;
use crate::error::DataError;
use henge_files::{Operation, WithPath};
use memmap2::Mmap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An open pair of `.bin` and `.idx`.
///
/// Opening checks the header, the lengths of both files, and the first and last pointer, in constant
/// time; [`crate::verify`] checks the rest.
#[derive(Debug)]
pub struct IndexedCorpus {
    prefix: PathBuf,
    bin_path: PathBuf,
    idx_path: PathBuf,
    bin: Mapped,
    idx: Mapped,
    layout: IndexLayout,
}

impl IndexedCorpus {
    /// Opens `PREFIX.bin` and `PREFIX.idx`.
    pub fn open(prefix: &Path) -> Result<Self, DataError> {
        let (bin_path, idx_path) = (beside(prefix, ".bin"), beside(prefix, ".idx"));
        let idx = Mapped::open(&idx_path)?;
        let layout = IndexLayout::parse(&idx_path, idx.bytes(), idx.bytes().len() as u64)?;
        let bin = Mapped::open(&bin_path)?;
        let corpus = IndexedCorpus { prefix: prefix.to_path_buf(), bin_path, idx_path, bin, idx, layout };
        corpus.check_ends()?;
        Ok(corpus)
    }

    /// The first and last entry of each table against each other and against the `.bin`.
    fn check_ends(&self) -> Result<(), DataError> {
        let (n, d) = (self.layout.sequences, self.layout.documents);
        if self.document_start(0) != 0 || self.document_start(d) != n {
            let at = if self.document_start(0) != 0 { 0 } else { d };
            return Err(self.corrupt(self.layout.document_at(at), format!("the documents do not span 0 to {n}")));
        }
        let actual = self.bin.bytes().len() as u64;
        let mut expected = 0;
        if n > 0 {
            if self.pointer(0) != 0 {
                return Err(self.corrupt(self.layout.pointer_at(0), "the first pointer is not 0".into()));
            }
            let length = u64::from(self.checked_length(n - 1)?) * self.width();
            expected = self.pointer(n - 1).checked_add(length).ok_or_else(|| {
                self.corrupt(self.layout.pointer_at(n - 1), "the last pointer lies beyond any file".into())
            })?;
        }
        if actual != expected {
            let (bin, idx) = (self.bin_path.clone(), self.idx_path.clone());
            return Err(DataError::BinLength { bin, idx, actual, expected });
        }
        Ok(())
    }

    /// The corpus's name without `.bin` or `.idx`.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Path of the `.bin` file, for messages.
    pub fn bin_path(&self) -> &Path {
        &self.bin_path
    }

    /// Counts and element type.
    pub fn layout(&self) -> &IndexLayout {
        &self.layout
    }

    /// Element type of the `.bin`.
    pub fn token_type(&self) -> TokenType {
        self.layout.token_type
    }

    /// Tokens in the `.bin`.
    pub fn tokens(&self) -> u64 {
        self.bin.bytes().len() as u64 / self.width()
    }

    /// Number of sequences.
    pub fn sequences(&self) -> u64 {
        self.layout.sequences
    }

    /// Number of documents.
    pub fn documents(&self) -> u64 {
        self.layout.documents
    }

    fn width(&self) -> u64 {
        self.layout.token_type.width() as u64
    }

    /// Length of sequence `i` in tokens; a length below zero in a corrupt file reads as above 2^31.
    ///
    /// # Panics
    /// When `i` is not below the number of sequences, as do the other accessors by number.
    pub fn length(&self, i: u64) -> u32 {
        assert!(i < self.layout.sequences, "sequence {i} of {}", self.layout.sequences);
        read_u32(self.idx.bytes(), self.layout.length_at(i) as usize)
    }

    fn checked_length(&self, i: u64) -> Result<u32, DataError> {
        let length = self.length(i);
        if length > i32::MAX as u32 {
            let fault = format!("the length of sequence {i} is negative ({})", length as i32);
            return Err(self.corrupt(self.layout.length_at(i), fault));
        }
        Ok(length)
    }

    /// Byte offset of sequence `i` in the `.bin`.
    pub fn pointer(&self, i: u64) -> u64 {
        assert!(i < self.layout.sequences, "sequence {i} of {}", self.layout.sequences);
        read_u64(self.idx.bytes(), self.layout.pointer_at(i) as usize)
    }

    /// First sequence of document `d`; the number of sequences for `d` equal to the number of documents.
    pub fn document_start(&self, d: u64) -> u64 {
        assert!(d <= self.layout.documents, "document {d} of {}", self.layout.documents);
        read_u64(self.idx.bytes(), self.layout.document_at(d) as usize)
    }

    /// Mode of sequence `i`, if the corpus has modes.
    pub fn mode(&self, i: u64) -> Option<i8> {
        assert!(i < self.layout.sequences, "sequence {i} of {}", self.layout.sequences);
        self.layout.has_modes.then(|| self.idx.bytes()[self.layout.mode_at(i) as usize] as i8)
    }

    /// Position in tokens at which sequence `i` begins; all tokens for `i` equal to the number of sequences.
    pub fn sequence_start(&self, i: u64) -> Result<u64, DataError> {
        if i == self.layout.sequences {
            return Ok(self.tokens());
        }
        let pointer = self.pointer(i);
        if !pointer.is_multiple_of(self.width()) || pointer > self.bin.bytes().len() as u64 {
            let fault = format!("pointer {pointer} of sequence {i} lies outside the corpus or between two tokens");
            return Err(self.corrupt(self.layout.pointer_at(i), fault));
        }
        Ok(pointer / self.width())
    }

    /// Sequences of document `d`.
    pub fn document(&self, d: u64) -> Result<Range<u64>, DataError> {
        let (first, end) = (self.document_start(d), self.document_start(d + 1));
        if first > end || end > self.layout.sequences {
            let fault = format!("document {d} spans sequences {first} to {end}");
            return Err(self.corrupt(self.layout.document_at(d), fault));
        }
        Ok(first..end)
    }

    /// Appends `count` tokens from position `first` of the whole `.bin` to `out`.
    pub fn read(&self, first: u64, count: usize, out: &mut Vec<u32>) -> Result<(), DataError> {
        let end = first.checked_add(count as u64).filter(|&end| end <= self.tokens());
        let Some(end) = end else {
            let fault = format!("tokens {first} to {first} + {count} are asked for but there are {}", self.tokens());
            return Err(self.corrupt(HEADER_BYTES, fault));
        };
        let bytes = &self.bin.bytes()[(first * self.width()) as usize..(end * self.width()) as usize];
        self.layout.token_type.decode(bytes, out).map_err(|(position, value)| DataError::NotAToken {
            path: self.bin_path.clone(),
            position: first + position as u64,
            value,
        })
    }

    /// Appends the tokens of sequence `i` to `out`.
    pub fn read_sequence(&self, i: u64, out: &mut Vec<u32>) -> Result<(), DataError> {
        let length = self.checked_length(i)?;
        self.read(self.sequence_start(i)?, length as usize, out)
    }

    /// Appends tokens `skip..skip + count` of sequence `i` to `out`.
    pub fn read_part(&self, i: u64, skip: u64, count: usize, out: &mut Vec<u32>) -> Result<(), DataError> {
        let length = u64::from(self.checked_length(i)?);
        assert!(skip + count as u64 <= length, "tokens {skip} + {count} of sequence {i} of {length}");
        self.read(self.sequence_start(i)? + skip, count, out)
    }

    /// The document that holds sequence `i`, by bisection of the document table.
    pub fn document_of(&self, i: u64) -> u64 {
        partition_point(self.layout.documents, |d| self.document_start(d + 1) <= i)
    }

    /// The sequence that holds token `position` of the `.bin`, by bisection of the pointers.
    pub fn sequence_of(&self, position: u64) -> u64 {
        let byte = position * self.width();
        partition_point(self.layout.sequences, |i| i + 1 < self.layout.sequences && self.pointer(i + 1) <= byte)
    }

    pub(crate) fn corrupt(&self, offset: u64, fault: String) -> DataError {
        DataError::CorruptIndex { path: self.idx_path.clone(), offset, fault }
    }
}

/// The first number below `end` for which `before` is false, or `end`; `before` must be true, then false.
fn partition_point(end: u64, before: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// A file's bytes; an empty file cannot be mapped and has none.
#[derive(Debug)]
struct Mapped(Option<Mmap>);

impl Mapped {
    fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).with_path(path, Operation::Open)?;
        if file.metadata().with_path(path, Operation::Read)?.len() == 0 {
            return Ok(Mapped(None));
        }
        // SAFETY: corpora are written beside and renamed, never changed in place, so the mapped bytes
        // stay as they are while mapped. Should someone cut the file short by hand, the process gets a
        // bus error; no lock that works on every file system could prevent that.
        let map = unsafe { Mmap::map(&file) }.with_path(path, Operation::Map)?;
        Ok(Mapped(Some(map)))
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}
