//! What a worker does: a block of raw input to ids.

use super::SequenceUnit;
use super::cut::DOCUMENT_BUFFER;
use super::json;
use super::reader::{BLOCK_BYTES, Block, Content};
use crate::error::DataError;
use crate::tokenizer::Encoder;
use memchr::memchr_iter;
use std::borrow::Cow;
use std::path::Path;
use unicode_segmentation::UnicodeSegmentation;

/// Fewer bytes than an id of ordinary text stands for.
const BYTES_AN_ID: usize = 2;

/// The ids of one block for one corpus, with where sequences and documents end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Encoded {
    pub(super) ids: Vec<u32>,
    /// Ids before each end of a sequence; ids behind the last belong to a sequence that goes on.
    pub(super) sequence_ends: Vec<usize>,
    /// Sequences ended in this block before each end of a document.
    pub(super) document_ends: Vec<usize>,
}

impl Encoded {
    /// Adds a whole document, as one sequence or as one a sentence.
    fn add_document(
        &mut self,
        text: &str,
        options: &EncodeOptions<'_>,
        encoder: &mut Encoder<'_>,
    ) -> Result<(), DataError> {
        let before = self.ids.len();
        if options.unit == SequenceUnit::Document {
            encoder.encode(text, &mut self.ids)?;
            self.end_document(self.ids.len() > before, options.end_of_document);
            return Ok(());
        }
        for sentence in text.unicode_sentences() {
            let start = self.ids.len();
            encoder.encode(sentence.trim(), &mut self.ids)?;
            if self.ids.len() > start {
                self.sequence_ends.push(self.ids.len());
            }
        }
        if let (Some(end), Some(token)) = (self.sequence_ends.last_mut(), options.end_of_document)
            && self.ids.len() > before
        {
            self.ids.push(token);
            *end += 1;
        }
        self.document_ends.push(self.sequence_ends.len());
        Ok(())
    }

    /// Ends the document; one without a token of its own is written as a document of no sequence, as
    /// Megatron writes it.
    fn end_document(&mut self, has_tokens: bool, end_of_document: Option<u32>) {
        if has_tokens {
            self.ids.extend(end_of_document);
            self.sequence_ends.push(self.ids.len());
        }
        self.document_ends.push(self.sequence_ends.len());
    }
}

/// What all workers share.
pub(super) struct EncodeOptions<'a> {
    pub(super) unit: SequenceUnit,
    pub(super) keys: &'a [String],
    pub(super) end_of_document: Option<u32>,
}

/// Encodes a block into one [`Encoded`] a key.
pub(super) fn encode_block(
    block: &Block,
    options: &EncodeOptions<'_>,
    encoder: &mut Encoder<'_>,
) -> Result<Vec<Encoded>, DataError> {
    // Room for all ids at once and of one size, so that the allocator meets the same request again and again.
    let room = block.bytes().max(BLOCK_BYTES) / BYTES_AN_ID / options.keys.len();
    let empty = |_| Encoded { ids: Vec::with_capacity(room), ..Encoded::default() };
    let mut encoded: Vec<Encoded> = options.keys.iter().map(empty).collect();
    match &block.content {
        Content::Lines(_) | Content::Rows { .. } => encode_texts(block, options, encoder, &mut encoded)?,
        // A line beyond the buffer: a piece of it may end inside a sentence.
        Content::Piece { .. } if options.unit == SequenceUnit::Sentence => {
            return Err(DataError::Uncuttable { path: block.path.to_path_buf(), limit: DOCUMENT_BUFFER });
        }
        Content::Piece { bytes, document_tokens_before, ends_document } => {
            let text = utf8(bytes, &block.path, block.first_line, block.first_byte)?;
            let target = &mut encoded[0];
            encoder.encode(text, &mut target.ids)?;
            if *ends_document {
                let has_tokens = *document_tokens_before || !target.ids.is_empty();
                target.end_document(has_tokens, options.end_of_document);
            }
        }
    }
    Ok(encoded)
}

fn encode_texts(
    block: &Block,
    options: &EncodeOptions<'_>,
    encoder: &mut Encoder<'_>,
    encoded: &mut [Encoded],
) -> Result<(), DataError> {
    each_document(block, options.keys, &mut |_, fields| {
        for (text, target) in fields.iter().zip(encoded.iter_mut()) {
            target.add_document(text, options, encoder)?;
        }
        Ok(true)
    })?;
    Ok(())
}

/// Takes the line or row and the fields of one document; false when no more are wanted.
pub(crate) type TakeFields<'t> = dyn FnMut(u64, &[Cow<'_, str>]) -> Result<bool, DataError> + 't;

/// Calls `take` with the fields of each line or row until it returns false; false then.
pub(super) fn each_document(block: &Block, keys: &[String], take: &mut TakeFields<'_>) -> Result<bool, DataError> {
    match &block.content {
        Content::Lines(_) => each_line(block, &mut |line, text| take(line, &line_fields(block, line, text, keys)?)),
        Content::Rows { .. } => each_row(block, keys, take),
        Content::Piece { .. } => unreachable!("a piece is no whole document"),
    }
}

/// Calls `take` with the number and fields of each row until it returns false; false then.
pub(crate) fn each_row(block: &Block, keys: &[String], take: &mut TakeFields<'_>) -> Result<bool, DataError> {
    let Content::Rows { bytes, ends } = &block.content else { unreachable!("a block of rows") };
    let mut start = 0;
    for (row, ends) in (block.first_line..).zip(ends.chunks(keys.len())) {
        let mut fields = Vec::with_capacity(keys.len());
        for (&end, key) in ends.iter().zip(keys) {
            fields.push(row_text(&bytes[start..end], block, row, key)?);
            start = end;
        }
        if !take(row, &fields)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The fields of one JSON line.
pub(crate) fn line_fields<'t>(
    block: &Block,
    line: u64,
    text: &'t str,
    keys: &[String],
) -> Result<Vec<Cow<'t, str>>, DataError> {
    json::fields(text, keys).map_err(|fault| DataError::BadLine { path: block.path.to_path_buf(), line, fault })
}

fn row_text<'t>(bytes: &'t [u8], block: &Block, row: u64, key: &str) -> Result<Cow<'t, str>, DataError> {
    std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| DataError::BadLine {
        path: block.path.to_path_buf(),
        line: row,
        fault: format!("column {key:?} is no UTF-8 in this row; leave the row out of the file"),
    })
}

/// Calls `take` with the number and text of each line that is not blank until it returns false; false then.
pub(crate) fn each_line(
    block: &Block,
    take: &mut dyn FnMut(u64, &str) -> Result<bool, DataError>,
) -> Result<bool, DataError> {
    let Content::Lines(bytes) = &block.content else { unreachable!("a block of lines") };
    let mut start = 0;
    let unended = (!bytes.ends_with(b"\n")).then_some(bytes.len());
    for (i, end) in memchr_iter(b'\n', bytes).chain(unended).enumerate() {
        let line = block.first_line + i as u64;
        let text = utf8(&bytes[start..end], &block.path, line, block.first_byte + start as u64)?;
        start = end + 1;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim();
        if !text.is_empty() && !take(line, text)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The bytes as text; an invalid one is named by the line it is in.
pub(super) fn utf8<'b>(bytes: &'b [u8], path: &Path, first_line: u64, first_byte: u64) -> Result<&'b str, DataError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = error.valid_up_to();
        DataError::InvalidUtf8 {
            path: path.to_path_buf(),
            line: first_line + memchr_iter(b'\n', &bytes[..valid]).count() as u64,
            offset: first_byte + valid as u64,
        }
    })
}
