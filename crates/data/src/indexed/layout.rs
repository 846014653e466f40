//! Where things lie in an index file: pure arithmetic on its header and length.

use super::token_type::TokenType;
use crate::error::DataError;
use std::path::Path;

pub(crate) const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
pub(crate) const VERSION: u64 = 1;
/// Magic, version, type code, two counts.
pub(crate) const HEADER_BYTES: u64 = 9 + 8 + 1 + 8 + 8;
const TYPE_AT: usize = 17;
const SEQUENCES_AT: usize = 18;
const DOCUMENTS_AT: usize = 26;

/// What the header of an index and its length say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLayout {
    pub token_type: TokenType,
    /// Number of sequences.
    pub sequences: u64,
    /// Number of documents: one less than the entries of the document table.
    pub documents: u64,
    /// Whether a mode stands behind each sequence (multimodal corpora).
    pub has_modes: bool,
}

impl IndexLayout {
    /// Reads and checks the header of an index file of `length` bytes that begins with `head`.
    pub fn parse(path: &Path, head: &[u8], length: u64) -> Result<Self, DataError> {
        let fault = |offset: u64, fault: String| DataError::CorruptIndex { path: path.to_path_buf(), offset, fault };
        if length < HEADER_BYTES || (head.len() as u64) < HEADER_BYTES {
            return Err(fault(length, format!("the file ends inside its header of {HEADER_BYTES} bytes")));
        }
        if head[..9] != MAGIC[..] {
            return Err(fault(0, "this is no Megatron index (wrong magic)".into()));
        }
        let version = read_u64(head, 9);
        if version != VERSION {
            return Err(fault(9, format!("index version {version} is unknown, 1 is read")));
        }
        let code = head[TYPE_AT];
        let token_type = TokenType::from_code(code)
            .ok_or_else(|| fault(TYPE_AT as u64, format!("type code {code} is unknown, 1 to 8 are read")))?;
        let (sequences, entries) = (read_u64(head, SEQUENCES_AT), read_u64(head, DOCUMENTS_AT));
        if entries == 0 {
            return Err(fault(DOCUMENTS_AT as u64, "the document table has no entry, not even its end".into()));
        }
        let mut layout = IndexLayout { token_type, sequences, documents: entries - 1, has_modes: false };
        let (plain, with_modes) = (layout.checked_bytes(false), layout.checked_bytes(true));
        layout.has_modes = sequences > 0 && with_modes == Some(length);
        if layout.has_modes || plain == Some(length) {
            return Ok(layout);
        }
        let expected = plain.map_or("more than 2^64".to_string(), |bytes| bytes.to_string());
        Err(fault(
            length,
            format!("{sequences} sequences and {} documents need {expected} bytes but the file ends", layout.documents),
        ))
    }

    /// The header as bytes.
    pub fn header(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEADER_BYTES as usize);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.push(self.token_type.code());
        head.extend_from_slice(&self.sequences.to_le_bytes());
        head.extend_from_slice(&(self.documents + 1).to_le_bytes());
        head
    }

    fn checked_bytes(&self, modes: bool) -> Option<u64> {
        let per_sequence = if modes { 13 } else { 12 };
        let sequences = self.sequences.checked_mul(per_sequence)?;
        let documents = self.documents.checked_add(1)?.checked_mul(8)?;
        HEADER_BYTES.checked_add(sequences)?.checked_add(documents)
    }

    /// Byte offset of the length of sequence `i`.
    pub fn length_at(&self, i: u64) -> u64 {
        HEADER_BYTES + 4 * i
    }

    /// Byte offset of the pointer of sequence `i`.
    pub fn pointer_at(&self, i: u64) -> u64 {
        HEADER_BYTES + 4 * self.sequences + 8 * i
    }

    /// Byte offset of entry `d` of the document table.
    pub fn document_at(&self, d: u64) -> u64 {
        HEADER_BYTES + 12 * self.sequences + 8 * d
    }

    /// Byte offset of the mode of sequence `i`.
    pub fn mode_at(&self, i: u64) -> u64 {
        HEADER_BYTES + 12 * self.sequences + 8 * (self.documents + 1) + i
    }
}

/// The little-endian u64 at `at`; the caller has checked that it lies inside.
pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The little-endian u32 at `at`; the caller has checked that it lies inside.
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of corpora far too large to write: offsets stay right past 2^32 tokens and 2^31 documents.
    #[test]
    fn layouts_of_huge_corpora() {
        for (sequences, documents, has_modes) in [(1 << 33, 1 << 32, false), ((1 << 31) + 7, 3, true), (0, 0, false)] {
            let layout = IndexLayout { token_type: TokenType::I32, sequences, documents, has_modes };
            let length = layout.mode_at(if has_modes { sequences } else { 0 });
            let parsed = IndexLayout::parse(Path::new("huge.idx"), &layout.header(), length).unwrap();
            assert_eq!(parsed, layout);
            let short = IndexLayout::parse(Path::new("huge.idx"), &layout.header(), length - 1);
            assert!(short.is_err());
        }
    }

    #[test]
    fn counts_that_overflow_are_corrupt_not_a_panic() {
        let layout =
            IndexLayout { token_type: TokenType::U16, sequences: u64::MAX, documents: u64::MAX - 1, has_modes: false };
        let error = IndexLayout::parse(Path::new("bad.idx"), &layout.header(), 34).unwrap_err();
        assert!(error.to_string().contains("more than 2^64"), "{error}");
    }
}
