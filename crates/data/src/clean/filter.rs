//! The judgement of one document at a time: repair, language, length, contamination.

use super::CleanOptions;
use super::minhash::{MinHash, shingles};
use super::repair::repair;
use super::splice::replace_text;
use crate::error::DataError;
use crate::prepare::{Block, Content, DOCUMENT_BUFFER, each_line, each_row, line_fields};
use crate::tokenizer::{CutRule, Encoder, Tokenizer};
use whatlang::Lang;

/// The language is told from this many bytes at the most.
const LANGUAGE_BYTES: usize = 1 << 16;
/// Bytes of a text that are surely enough to show `min_tokens` of it, a token.
const BYTES_A_TOKEN: usize = 16;

/// Why a document is not in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    OtherLanguage,
    TooShort,
    Contaminated,
    NearDuplicate,
}

/// What became of the documents of a block.
#[derive(Default)]
pub(super) struct Filtered {
    pub(super) kept: Vec<Survivor>,
    /// Reason, line and particulars.
    pub(super) dropped: Vec<(Reason, u64, String)>,
    pub(super) documents: u64,
    pub(super) text_bytes: u64,
    /// Documents whose text was repaired.
    pub(super) repaired: u64,
    /// Documents that contamination was cut out of.
    pub(super) cut: u64,
}

/// A document to be written, unless it turns out a near-duplicate.
pub(super) struct Survivor {
    pub(super) line: u64,
    /// The JSON object.
    pub(super) json: Vec<u8>,
    /// One hash a band.
    pub(super) bands: Vec<u64>,
}

/// What all workers share.
pub(super) struct Filter<'a> {
    pub(super) options: &'a CleanOptions,
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) language: Option<Lang>,
    pub(super) hashes: Option<MinHash>,
}

/// Whether a text stays, and in which pieces.
enum Verdict {
    Kept(Vec<String>),
    Dropped(Reason, String),
}

impl Filter<'_> {
    /// A function from blocks to what becomes of them.
    pub(super) fn worker<'w>(
        &'w self,
        keys: &'w [String],
    ) -> impl FnMut(&Block) -> Result<Filtered, DataError> + use<'w> {
        let mut encoder = self.tokenizer.encoder();
        move |block| {
            let mut filtered = Filtered::default();
            match &block.content {
                Content::Lines(_) => each_line(block, &mut |line, json| {
                    let fields = line_fields(block, line, json, keys)?;
                    self.take(line, Some(json), &fields[0], &mut encoder, &mut filtered)
                })?,
                Content::Rows { .. } => each_row(block, keys, &mut |row, fields| {
                    self.take(row, None, &fields[0], &mut encoder, &mut filtered)
                })?,
                Content::Piece { .. } => {
                    let fault = format!("the line is longer than {DOCUMENT_BUFFER} bytes; split the document");
                    let (path, line) = (block.path.to_path_buf(), block.first_line);
                    return Err(DataError::BadLine { path, line, fault });
                }
            };
            Ok(filtered)
        }
    }

    /// Judges one document, of the line `json` where it comes from one.
    fn take(
        &self,
        line: u64,
        json: Option<&str>,
        text: &str,
        encoder: &mut Encoder<'_>,
        filtered: &mut Filtered,
    ) -> Result<bool, DataError> {
        filtered.documents += 1;
        filtered.text_bytes += text.len() as u64;
        let repaired = repair(text);
        filtered.repaired += u64::from(repaired != text);
        match self.judge(&repaired, encoder)? {
            Verdict::Dropped(reason, why) => filtered.dropped.push((reason, line, why)),
            Verdict::Kept(pieces) => {
                filtered.cut += u64::from(pieces[..] != [repaired.as_ref()]);
                filtered.kept.extend(pieces.iter().map(|piece| self.survivor(line, json, text, piece)));
            }
        }
        Ok(true)
    }

    fn judge(&self, text: &str, encoder: &mut Encoder<'_>) -> Result<Verdict, DataError> {
        if let Some(wanted) = self.language {
            let found = whatlang::detect_lang(beginning(text, LANGUAGE_BYTES));
            if found != Some(wanted) {
                let found = found.map_or_else(|| "none".to_string(), |lang| lang.code().to_string());
                return Ok(Verdict::Dropped(Reason::OtherLanguage, found));
            }
        }
        if let Some(tokens) = self.too_few_tokens(text, encoder)? {
            return Ok(Verdict::Dropped(Reason::TooShort, format!("{tokens} tokens")));
        }
        let Some(contamination) = &self.options.contamination else {
            return Ok(Verdict::Kept(vec![text.to_string()]));
        };
        let cut = contamination.cut(text);
        if cut.pieces.is_empty() {
            return Ok(Verdict::Dropped(Reason::Contaminated, format!("{} matches", cut.matches)));
        }
        Ok(Verdict::Kept(cut.pieces.into_iter().map(str::to_string).collect()))
    }

    /// The number of tokens if it is less than wanted. A long text is counted no further than it must be:
    /// where its tokenizer's words end, the tokens of a part are a part of the tokens.
    fn too_few_tokens(&self, text: &str, encoder: &mut Encoder<'_>) -> Result<Option<usize>, DataError> {
        let wanted = self.options.min_tokens;
        let mut ids = Vec::new();
        let part = beginning(text, wanted.saturating_mul(BYTES_A_TOKEN));
        if part.len() < text.len()
            && self.tokenizer.cut_rule() != CutRule::Unknown
            && let Some(end) = part.rfind(|c: char| c.is_ascii_whitespace())
            && part[..end].ends_with(char::is_alphabetic)
        {
            encoder.encode(&part[..end], &mut ids)?;
            if ids.len() >= wanted {
                return Ok(None);
            }
            ids.clear();
        }
        encoder.encode(text, &mut ids)?;
        Ok((ids.len() < wanted).then_some(ids.len()))
    }

    fn survivor(&self, line: u64, json: Option<&str>, original: &str, text: &str) -> Survivor {
        let key = &self.options.key;
        let json = match json {
            Some(json) if original == text => json.as_bytes().to_vec(),
            Some(json) => replace_text(json, key, text).into_bytes(),
            None => {
                let object = serde_json::Map::from_iter([(key.clone(), text.into())]);
                serde_json::Value::Object(object).to_string().into_bytes()
            }
        };
        let bands = self.hashes.as_ref().map_or_else(Vec::new, |hashes| hashes.bands_of(&shingles(text)));
        Survivor { line, json, bands }
    }
}

/// At most `bytes` bytes of a text, cut between characters.
fn beginning(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}
