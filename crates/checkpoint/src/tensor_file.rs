//! One safetensors file: its header, checked, and where its tensors lie.

use crate::CheckpointError;
use crate::stored::{Element, PositionedFile, Stored};
use henge_files::{Checksum, FilesError};
use safetensors::tensor::{Metadata, TensorInfo};
use std::path::Path;

/// The longest header that is read, as in the reference implementation: a damaged length
/// must not ask for the machine's memory.
const LONGEST_HEADER: u64 = 100_000_000;

/// An open safetensors file.
#[derive(Debug)]
pub(crate) struct TensorFile {
    pub file: PositionedFile,
    pub metadata: Metadata,
    /// First byte after the header.
    pub start: u64,
    /// Checksum of the length and the header.
    pub header_checksum: String,
}

impl TensorFile {
    /// Opens a file and checks that its header describes it to the last byte.
    pub fn open(path: &Path, fix: &str) -> Result<Self, CheckpointError> {
        let file = PositionedFile::open(path)?;
        let damaged = |problem: String| CheckpointError::Damaged {
            file: path.to_path_buf(),
            place: "header".to_string(),
            problem,
            fix: fix.to_string(),
        };
        let prefix = file.bytes.min(8) as usize;
        let mut head = file.read_vec(0, prefix)?;
        let length = <[u8; 8]>::try_from(head.as_slice())
            .map(u64::from_le_bytes)
            .map_err(|_| damaged(format!("the file ends after {prefix} bytes")))?;
        if length > LONGEST_HEADER || length > file.bytes - 8 {
            return Err(damaged(format!("its length is given as {length} bytes in a file of {}", file.bytes)));
        }
        head.extend(file.read_vec(8, length as usize)?);
        let metadata: Metadata = serde_json::from_slice(&head[8..]).map_err(|error| damaged(error.to_string()))?;
        let start = 8 + length;
        let expected = start + metadata.data_len() as u64;
        if expected != file.bytes {
            return Err(damaged(format!("it describes a file of {expected} bytes, not {}", file.bytes)));
        }
        let mut checksum = Checksum::new();
        checksum.update(&head);
        Ok(Self { file, metadata, start, header_checksum: checksum.hex() })
    }

    /// Where a tensor lies.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.metadata.info(name)
    }

    /// A tensor as a matrix of the given stored shape, whose size the header has proven.
    pub fn stored(&self, info: &TensorInfo, element: Element, rows: usize, columns: usize) -> Stored<'_> {
        let offset = self.start + info.data_offsets.0 as u64;
        Stored { file: &self.file, offset, element, rows, columns }
    }
}

/// The bytes of a safetensors header: length, JSON, blanks up to a multiple of 8.
///
/// # Panics
/// If the tensors do not follow each other without gap: the caller lays them out.
pub(crate) fn header(label: (&str, &str), tensors: Vec<(String, TensorInfo)>) -> Vec<u8> {
    let label = std::iter::once((label.0.to_string(), label.1.to_string())).collect();
    let metadata = Metadata::new(Some(label), tensors).expect("tensors are laid out without gaps");
    let mut json = serde_json::to_vec(&metadata).expect("names and numbers are always JSON");
    json.resize(json.len().next_multiple_of(8), b' ');
    [&(json.len() as u64).to_le_bytes()[..], &json].concat()
}

/// Whether a file error says that the file is not there.
pub(crate) fn is_absent(error: &FilesError) -> bool {
    matches!(error, FilesError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
