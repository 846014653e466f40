//! Raw token files as datatrove writes and nanotron reads them: the ids alone (u16, or u32 for larger
//! vocabularies), little-endian, documents one after another; beside them `FILE.index` with the end of
//! each document in tokens (u64). Without that index the end-of-document token tells documents apart.

use crate::card::CorpusCard;
use crate::error::DataError;
use crate::indexed::{IndexedWriter, TokenType, WriterState, beside};
use henge_files::{FilesError, LockFile, Operation, WithPath};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// Bytes read at a time.
const STRIDE: usize = 1 << 18;

/// Width of the ids of a raw file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawWidth {
    U16,
    U32,
}

impl RawWidth {
    fn bytes(self) -> usize {
        match self {
            RawWidth::U16 => 2,
            RawWidth::U32 => 4,
        }
    }

    fn decode(self, bytes: &[u8], ids: &mut Vec<u32>) {
        match self {
            RawWidth::U16 => ids.extend(bytes.as_chunks::<2>().0.iter().map(|&b| u32::from(u16::from_le_bytes(b)))),
            RawWidth::U32 => ids.extend(bytes.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b))),
        }
    }
}

/// Turns a raw token file into an indexed corpus, in constant memory.
///
/// # Errors
/// A length that is no whole number of ids, an index that does not end where the file does, or neither an
/// index nor an end-of-document token.
pub fn import_raw(
    raw: &Path,
    width: RawWidth,
    end_of_document: Option<u32>,
    output: &Path,
) -> Result<WriterState, DataError> {
    let fault = |fault: String| DataError::UnreadableInput { path: raw.to_path_buf(), fault };
    let bytes = std::fs::metadata(raw).with_path(raw, Operation::Read)?.len();
    if !bytes.is_multiple_of(width.bytes() as u64) {
        return Err(fault(format!("{bytes} bytes are no whole number of {}-byte ids", width.bytes())));
    }
    let mut ends = match (DocumentEnds::open(&beside(raw, ".index"), bytes / width.bytes() as u64)?, end_of_document) {
        (Some(index), _) => Ends::Index(index),
        (None, Some(token)) => Ends::Token(token),
        (None, None) => return Err(fault("has no .index beside it; name the token that ends a document".into())),
    };
    let token_type = match width {
        RawWidth::U16 => TokenType::U16,
        RawWidth::U32 => TokenType::I32,
    };
    let _lock = LockFile::acquire(&beside(output, ".lock"))?;
    let mut writer = IndexedWriter::create(output, token_type)?;
    let mut source = BufReader::with_capacity(STRIDE, File::open(raw).with_path(raw, Operation::Open)?);
    let (mut left, mut buffer, mut ids) = (bytes, vec![0; STRIDE], Vec::new());
    while left > 0 {
        let part = &mut buffer[..left.min(STRIDE as u64) as usize];
        source.read_exact(part).with_path(raw, Operation::Read)?;
        left -= part.len() as u64;
        ids.clear();
        width.decode(part, &mut ids);
        ends.write(&ids, &mut writer)?;
    }
    if writer.state().open_tokens > 0 {
        end(&mut writer)?;
    }
    // One that lies there speaks of a corpus that is about to be replaced.
    CorpusCard::remove(output)?;
    writer.finish()
}

fn end(writer: &mut IndexedWriter) -> Result<(), DataError> {
    writer.end_sequence()?;
    writer.end_document()
}

/// How documents are told apart.
enum Ends {
    Index(DocumentEnds),
    Token(u32),
}

impl Ends {
    fn write(&mut self, ids: &[u32], writer: &mut IndexedWriter) -> Result<(), DataError> {
        match self {
            Ends::Token(token) => {
                for document in ids.split_inclusive(|id| id == token) {
                    writer.push(document)?;
                    if document.last() == Some(token) {
                        end(writer)?;
                    }
                }
            }
            Ends::Index(index) => {
                let mut rest = ids;
                while let Some(next) = index.next {
                    let missing = next - writer.state().tokens;
                    if missing > rest.len() as u64 {
                        break;
                    }
                    let (document, behind) = rest.split_at(missing as usize);
                    writer.push(document)?;
                    end(writer)?;
                    rest = behind;
                    index.advance()?;
                }
                writer.push(rest)?;
            }
        }
        Ok(())
    }
}

/// The ends of documents, read as they are needed.
struct DocumentEnds {
    path: std::path::PathBuf,
    source: BufReader<File>,
    left: u64,
    tokens: u64,
    /// The end that comes next.
    next: Option<u64>,
}

impl DocumentEnds {
    fn open(path: &Path, tokens: u64) -> Result<Option<Self>, DataError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FilesError::new(path, Operation::Open, error).into()),
        };
        let bytes = file.metadata().with_path(path, Operation::Read)?.len();
        let path = path.to_path_buf();
        if !bytes.is_multiple_of(8) {
            return Err(DataError::UnreadableInput {
                path,
                fault: format!("{bytes} bytes are no whole number of 8-byte ends"),
            });
        }
        let source = BufReader::new(file);
        let mut ends = DocumentEnds { path, source, left: bytes / 8, tokens, next: Some(0) };
        ends.advance()?;
        Ok(Some(ends))
    }

    fn advance(&mut self) -> Result<(), DataError> {
        let before = self.next.unwrap_or(0);
        if self.left == 0 {
            self.next = None;
            return match before == self.tokens {
                true => Ok(()),
                false => Err(self.fault(format!("ends at token {before}, the tokens at {}", self.tokens))),
            };
        }
        let mut word = [0; 8];
        self.source.read_exact(&mut word).with_path(&self.path, Operation::Read)?;
        self.left -= 1;
        let next = u64::from_le_bytes(word);
        if next < before || next > self.tokens {
            return Err(self.fault(format!("a document ends at token {next}, after {before} of {}", self.tokens)));
        }
        self.next = Some(next);
        Ok(())
    }

    fn fault(&self, fault: String) -> DataError {
        DataError::UnreadableInput { path: self.path.clone(), fault }
    }
}
