//! Inputs to blocks: whole lines, or pieces of a text.

use super::cut::{self, DOCUMENT_BUFFER};
use super::inputs::{Input, InputKind, Packing};
use super::long_line::LongLine;
use super::parquet::ParquetInput;
use crate::error::DataError;
use crate::tokenizer::{CutRule, Encoder};
use henge_files::{FilesError, Operation, WithPath};
use memchr::{memchr, memchr_iter, memrchr};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a block where lines and words allow it.
pub(super) const BLOCK_BYTES: usize = 1 << 20;
/// Bytes asked of the operating system at a time.
const READ_BYTES: usize = 1 << 18;

/// A place between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Which input, counted from 0.
    pub(crate) input: usize,
    /// Bytes of it before the place, after unpacking.
    pub(crate) byte: u64,
    /// Number of the line the place is in.
    pub(crate) line: u64,
    /// Whether the place is inside a document.
    pub(crate) in_document: bool,
}

impl Position {
    /// The start of an input.
    pub(crate) fn start_of(input: usize) -> Self {
        Position { input, byte: 0, line: 1, in_document: false }
    }

    fn after(self, bytes: &[u8], in_document: bool) -> Self {
        let lines = memchr_iter(b'\n', bytes).count() as u64;
        Position { byte: self.byte + bytes.len() as u64, line: self.line + lines, in_document, ..self }
    }
}

/// Raw input, a unit of work.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) path: Arc<Path>,
    pub(crate) first_line: u64,
    pub(crate) first_byte: u64,
    pub(crate) content: Content,
    /// Where the next block begins; `None` inside a line too long to hold, from which no later run can go on.
    pub(crate) end: Option<Position>,
    /// Packed bytes read from all inputs so far.
    pub(crate) bytes_read: u64,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// Whole lines.
    Lines(Vec<u8>),
    /// Part of a text, or all of it.
    Piece { bytes: Vec<u8>, document_tokens_before: bool, ends_document: bool },
    /// Whole rows: the bytes before each end are one field of one row, row by row, all keys of each.
    Rows { bytes: Vec<u8>, ends: Vec<usize> },
}

impl Block {
    /// What the block counts for in the budget.
    pub(crate) fn bytes(&self) -> usize {
        match &self.content {
            Content::Lines(bytes) | Content::Piece { bytes, .. } | Content::Rows { bytes, .. } => bytes.len(),
        }
    }
}

/// Where blocks go; false when no more are wanted.
pub(crate) type Sink<'s> = dyn FnMut(Block) -> bool + 's;

/// Reads inputs one after another.
pub(crate) struct Reader<'a> {
    pub(crate) inputs: &'a [Input],
    /// The fields to take of JSON lines.
    pub(crate) keys: &'a [String],
    pub(crate) rule: CutRule,
    /// For cuts of unknown tokenizers.
    pub(crate) encoder: Option<Encoder<'a>>,
    pub(crate) bytes_read: Arc<AtomicU64>,
}

impl Reader<'_> {
    /// Cuts everything from `start` on into blocks.
    pub(crate) fn run(&mut self, start: Position, sink: &mut Sink<'_>) -> Result<(), DataError> {
        for index in start.input..self.inputs.len() {
            let position = if index == start.input { start } else { Position::start_of(index) };
            if !self.read_input(position, sink)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_input(&mut self, start: Position, sink: &mut Sink<'_>) -> Result<bool, DataError> {
        let input = &self.inputs[start.input];
        if input.kind == InputKind::Parquet {
            return self.read_parquet(start, sink);
        }
        let path: Arc<Path> = Arc::from(input.path.as_path());
        let mut source = open(input, &self.bytes_read)?;
        skip(&mut source, start.byte, &path)?;
        let mut window = Window { source, path: Arc::clone(&path), buffer: Vec::new(), ended: false };
        if input.kind == InputKind::JsonLines {
            self.read_lines(&mut window, start, sink)
        } else {
            self.read_text(&mut window, start, sink)
        }
    }

    fn read_parquet(&self, start: Position, sink: &mut Sink<'_>) -> Result<bool, DataError> {
        let input = &self.inputs[start.input];
        if input.is_standard_input() || input.packing != Packing::Plain {
            return Err(DataError::UnreadableInput {
                path: input.path.clone(),
                fault: "Parquet is read from its end, so not packed or from standard input; give an unpacked file"
                    .into(),
            });
        }
        ParquetInput::open(&input.path, self.keys)?.read(start, &self.bytes_read, sink)
    }

    fn block(&self, window: &Window, start: Position, end: Option<Position>, content: Content) -> Block {
        let bytes_read = self.bytes_read.load(Ordering::Relaxed);
        let path = Arc::clone(&window.path);
        Block { path, first_line: start.line, first_byte: start.byte, content, end, bytes_read }
    }

    fn read_lines(&mut self, window: &mut Window, mut at: Position, sink: &mut Sink<'_>) -> Result<bool, DataError> {
        let mut wanted = BLOCK_BYTES;
        loop {
            window.fill(wanted)?;
            let cut = match memrchr(b'\n', &window.buffer) {
                _ if window.ended => window.buffer.len(),
                Some(newline) => newline + 1,
                None if wanted >= DOCUMENT_BUFFER => {
                    let Some(end) = self.read_long_line(window, at, sink)? else { return Ok(false) };
                    (at, wanted) = (end, BLOCK_BYTES);
                    continue;
                }
                None => {
                    wanted = (wanted * 2).min(DOCUMENT_BUFFER);
                    continue;
                }
            };
            if cut == 0 {
                return Ok(true);
            }
            wanted = BLOCK_BYTES;
            let bytes = window.take(cut);
            let end = at.after(&bytes, false);
            if !sink(self.block(window, at, Some(end), Content::Lines(bytes))) {
                return Ok(false);
            }
            at = end;
        }
    }

    fn read_text(&mut self, window: &mut Window, mut at: Position, sink: &mut Sink<'_>) -> Result<bool, DataError> {
        let first = self.piece_bytes();
        let mut wanted = first;
        loop {
            window.fill(wanted)?;
            let cut = match window.ended {
                true => Some(window.buffer.len()),
                false => self.cut(&window.buffer, &window.path)?,
            };
            let Some(cut) = cut else {
                wanted = (wanted * 2).min(DOCUMENT_BUFFER);
                continue;
            };
            if cut == 0 {
                return Ok(true);
            }
            wanted = first;
            let bytes = window.take(cut);
            let ends_document = window.ended && window.buffer.is_empty();
            let end = at.after(&bytes, !ends_document);
            let content = Content::Piece { bytes, document_tokens_before: at.in_document, ends_document };
            if !sink(self.block(window, at, Some(end), content)) {
                return Ok(false);
            }
            at = end;
        }
    }

    /// The length at which a text is worth cutting.
    fn piece_bytes(&self) -> usize {
        if self.rule == CutRule::Unknown { DOCUMENT_BUFFER } else { BLOCK_BYTES }
    }

    /// Where to cut a text that goes on; `None` when more of it may show a place.
    fn cut(&mut self, text: &[u8], path: &Path) -> Result<Option<usize>, DataError> {
        let found = match (self.rule, &mut self.encoder) {
            (CutRule::Unknown, Some(encoder)) => cut::last_tried_cut(text, encoder)?,
            (rule, _) => cut::last_cut(text, rule),
        };
        if found.is_none() && text.len() >= DOCUMENT_BUFFER {
            return Err(DataError::Uncuttable { path: path.to_path_buf(), limit: DOCUMENT_BUFFER });
        }
        Ok(found)
    }

    /// A JSON line beyond the buffer: its text goes on in pieces. `None` when no more blocks are wanted.
    fn read_long_line(
        &mut self,
        window: &mut Window,
        start: Position,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Position>, DataError> {
        let path = Arc::clone(&window.path);
        let bad_line = |fault: String| DataError::BadLine { path: path.to_path_buf(), line: start.line, fault };
        let [key] = self.keys else {
            return Err(bad_line(format!(
                "the line is longer than {DOCUMENT_BUFFER} bytes, which is read for one key only; split the document"
            )));
        };
        let mut decoder = LongLine::new(key);
        let mut text = LongText { bytes: Vec::new(), start, given: false };
        let mut end = start;
        loop {
            let line_end = memchr(b'\n', &window.buffer).map(|newline| newline + 1);
            let bytes = window.take(line_end.unwrap_or(window.buffer.len()));
            for part in bytes.chunks(BLOCK_BYTES) {
                decoder.feed(part, &mut text.bytes).map_err(bad_line)?;
                if !self.give_pieces(&mut text, window, sink)? {
                    return Ok(None);
                }
            }
            end = end.after(&bytes, false);
            if line_end.is_some() || window.ended {
                break;
            }
            window.fill(BLOCK_BYTES)?;
        }
        decoder.finish().map_err(bad_line)?;
        let wanted = self.give_piece(&mut text, usize::MAX, Some(end), window, sink)?;
        Ok(wanted.then_some(end))
    }

    fn give_pieces(&mut self, text: &mut LongText, window: &Window, sink: &mut Sink<'_>) -> Result<bool, DataError> {
        while text.bytes.len() >= self.piece_bytes() {
            let Some(cut) = self.cut(&text.bytes, &window.path)? else { break };
            if !self.give_piece(text, cut, None, window, sink)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives away the text before `cut`; the document ends there when `end` says where the line does.
    fn give_piece(
        &self,
        text: &mut LongText,
        cut: usize,
        end: Option<Position>,
        window: &Window,
        sink: &mut Sink<'_>,
    ) -> Result<bool, DataError> {
        let rest = text.bytes.split_off(cut.min(text.bytes.len()));
        let bytes = std::mem::replace(&mut text.bytes, rest);
        if std::str::from_utf8(&bytes).is_err() {
            let (line, offset) = (text.start.line, text.start.byte);
            return Err(DataError::InvalidUtf8 { path: window.path.to_path_buf(), line, offset });
        }
        let (document_tokens_before, ends_document) = (text.given, end.is_some());
        text.given = true;
        let content = Content::Piece { bytes, document_tokens_before, ends_document };
        Ok(sink(self.block(window, text.start, end, content)))
    }
}

/// The decoded text of a long line that has not been given away yet.
struct LongText {
    bytes: Vec<u8>,
    /// Where the line begins.
    start: Position,
    /// Whether some of the text has been given away.
    given: bool,
}

/// What has been read of an input and not yet been given away.
struct Window {
    source: Box<dyn Read + Send>,
    path: Arc<Path>,
    buffer: Vec<u8>,
    ended: bool,
}

impl Window {
    /// Reads until `wanted` bytes are there or the input ends.
    fn fill(&mut self, wanted: usize) -> Result<(), DataError> {
        while self.buffer.len() < wanted && !self.ended {
            let before = self.buffer.len();
            self.buffer.resize(before + READ_BYTES.min(wanted - before), 0);
            let read = loop {
                match self.source.read(&mut self.buffer[before..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            self.buffer.truncate(before + read.as_ref().copied().unwrap_or(0));
            self.ended = read.map_err(|error| unreadable(&self.path, error))? == 0;
        }
        Ok(())
    }

    /// Removes the first `length` bytes.
    fn take(&mut self, length: usize) -> Vec<u8> {
        let mut rest = Vec::with_capacity(BLOCK_BYTES + READ_BYTES);
        rest.extend_from_slice(&self.buffer[length..]);
        self.buffer.truncate(length);
        std::mem::replace(&mut self.buffer, rest)
    }
}

/// Damage in packed data is the file's fault, everything else the system's.
fn unreadable(path: &Path, error: io::Error) -> DataError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::Other => {
            let fault = format!("the packed data is damaged or cut short ({error}); copy the file again");
            DataError::UnreadableInput { path: path.to_path_buf(), fault }
        }
        _ => FilesError::new(path, Operation::Read, error).into(),
    }
}

fn open(input: &Input, bytes_read: &Arc<AtomicU64>) -> Result<Box<dyn Read + Send>, DataError> {
    let raw: Box<dyn Read + Send> = if input.is_standard_input() {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(&input.path).with_path(&input.path, Operation::Open)?)
    };
    let counted = Counted { inner: raw, count: Arc::clone(bytes_read) };
    Ok(match input.packing {
        Packing::Plain => Box::new(counted),
        Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(READ_BYTES, counted))),
        Packing::Zstd => {
            let decoder = zstd::stream::read::Decoder::new(counted).map_err(|e| unreadable(&input.path, e))?;
            Box::new(decoder)
        }
    })
}

/// Passes over what an earlier run has done.
fn skip(source: &mut impl Read, bytes: u64, path: &Path) -> Result<(), DataError> {
    let skipped = io::copy(&mut source.take(bytes), &mut io::sink()).map_err(|error| unreadable(path, error))?;
    if skipped < bytes {
        let fault =
            format!("ends after {skipped} bytes where {bytes} had been read before; it has changed, start afresh");
        return Err(DataError::UnreadableInput { path: path.to_path_buf(), fault });
    }
    Ok(())
}

struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
