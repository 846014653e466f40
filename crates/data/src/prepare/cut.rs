//! Where a long text may be cut so that its ids are those of the whole.
//!
//! The rule: in front of an ASCII blank (space, tab, line end), behind a character that the tokenizer's
//! word pattern cannot join with a blank. For GPT-2's pattern that is any character that is no blank;
//! for the later OpenAI patterns, which let punctuation take the line end behind it, any letter. For
//! tokenizers without a known pattern, and only when a document exceeds [`DOCUMENT_BUFFER`], a place
//! behind a letter is tried: it is taken if the text around it gives the same ids cut and uncut, and a
//! document in which no place passes is refused.

use crate::error::DataError;
use crate::tokenizer::{CutRule, Encoder};

/// The longest stretch of one document held in memory: 64 MiB.
pub const DOCUMENT_BUFFER: usize = 64 << 20;
/// Bytes on each side of a place that is tried.
const WINDOW: usize = 2048;
/// Places tried before a document is given up.
const TRIES: usize = 64;

/// The last place at which `text` may be cut under a known pattern, if there is one.
pub(super) fn last_cut(text: &[u8], rule: CutRule) -> Option<usize> {
    cuts(text, rule).next()
}

/// The last place at which this encoder gives the same ids cut and uncut.
pub(super) fn last_tried_cut(text: &[u8], encoder: &mut Encoder<'_>) -> Result<Option<usize>, DataError> {
    for at in cuts(text, CutRule::Unknown).take(TRIES) {
        if is_same(text, at, encoder)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn cuts(text: &[u8], rule: CutRule) -> impl Iterator<Item = usize> {
    (1..text.len()).rev().filter(move |&at| {
        matches!(text[at], b' ' | b'\n' | b'\t' | b'\r')
            && last_char(&text[..at]).is_some_and(|before| match rule {
                CutRule::BehindAnything => !before.is_whitespace(),
                CutRule::BehindLetters | CutRule::Unknown => before.is_alphabetic(),
            })
    })
}

/// The character that ends `text`, if its bytes are valid.
fn last_char(text: &[u8]) -> Option<char> {
    let from = (text.len().saturating_sub(4)..text.len()).rev().find(|&i| text[i] & 0xc0 != 0x80)?;
    std::str::from_utf8(&text[from..]).ok()?.chars().next()
}

fn is_same(text: &[u8], at: usize, encoder: &mut Encoder<'_>) -> Result<bool, DataError> {
    let start = (at.saturating_sub(WINDOW)..at).find(|&i| text[i] & 0xc0 != 0x80).unwrap_or(at);
    let end = (at..text.len().min(at + WINDOW)).rev().find(|&i| text[i].is_ascii()).unwrap_or(at);
    let (Ok(before), Ok(after)) = (std::str::from_utf8(&text[start..at]), std::str::from_utf8(&text[at..end])) else {
        return Ok(false);
    };
    let (mut apart, mut whole) = (Vec::new(), Vec::new());
    encoder.encode(before, &mut apart)?;
    encoder.encode(after, &mut apart)?;
    encoder.encode(&format!("{before}{after}"), &mut whole)?;
    Ok(apart == whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_lie_between_word_and_blank() {
        let cut = |text: &str, rule| last_cut(text.as_bytes(), rule);
        assert_eq!(cut("one two", CutRule::BehindAnything), Some(3));
        assert_eq!(cut("one. \n", CutRule::BehindAnything), Some(4));
        assert_eq!(cut("one. \n", CutRule::BehindLetters), None);
        assert_eq!(cut("\u{e9} \u{3000} ", CutRule::BehindAnything), Some(2));
        assert_eq!(cut(" x", CutRule::BehindAnything), None);
        assert_eq!(cut("", CutRule::BehindAnything), None);
    }
}
