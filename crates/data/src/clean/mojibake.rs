//! UTF-8 that was read as Windows-1252 or Latin-1, put back: an A with tilde and a copyright sign where an
//! e with acute should be.
//!
//! Within a text, each stretch of characters that spells a UTF-8 sequence in one of those encodings is
//! replaced by what it spells, unless it is likely to be meant: a sequence of two whose first character is
//! no A with circumflex or tilde (a capital with an accent before dots, say) counts only beside another
//! such, and one behind a capital that ends in a closing quotation mark or dots does not. Twice-wrong text
//! is put back twice.

use std::borrow::Cow;

/// Times a text is put back at the most.
const ROUNDS: usize = 4;

/// Windows-1252 from 0x80 to 0x9f; the five it leaves open are control characters, as browsers read them.
pub(super) const WINDOWS_1252: [char; 32] = [
    '\u{20ac}', '\u{81}', '\u{201a}', '\u{192}', '\u{201e}', '\u{2026}', '\u{2020}', '\u{2021}', '\u{2c6}', '\u{2030}',
    '\u{160}', '\u{2039}', '\u{152}', '\u{8d}', '\u{17d}', '\u{8f}', '\u{90}', '\u{2018}', '\u{2019}', '\u{201c}',
    '\u{201d}', '\u{2022}', '\u{2013}', '\u{2014}', '\u{2dc}', '\u{2122}', '\u{161}', '\u{203a}', '\u{153}', '\u{9d}',
    '\u{17e}', '\u{178}',
];

/// `text` as it was before it was read wrongly.
pub(super) fn put_back(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for _ in 0..ROUNDS {
        match put_back_once(&text) {
            Some(better) => text = Cow::Owned(better),
            None => break,
        }
    }
    text
}

/// `None` when nothing in it is wrong.
fn put_back_once(text: &str) -> Option<String> {
    if text.is_ascii() {
        return None;
    }
    let characters: Vec<char> = text.chars().collect();
    let bytes: Vec<Option<u8>> = characters.iter().map(|&c| byte_of(c)).collect();
    let (mut out, mut at, mut found) = (String::with_capacity(text.len()), 0, false);
    while at < characters.len() {
        match sequence(&bytes[at..]).filter(|_| is_wrong(&characters, &bytes, at)) {
            Some((character, length)) => {
                out.push(character);
                at += length;
                found = true;
            }
            None => {
                out.push(characters[at]);
                at += 1;
            }
        }
    }
    found.then_some(out)
}

/// The byte beyond ASCII that one of the two encodings reads as this character.
fn byte_of(character: char) -> Option<u8> {
    match character {
        '\u{80}'..='\u{ff}' => Some(character as u8),
        '\0'..='\u{7f}' => None,
        _ => WINDOWS_1252.iter().position(|&c| c == character).map(|at| 0x80 + at as u8),
    }
}

/// The UTF-8 sequence that the bytes begin with, and its length.
fn sequence(bytes: &[Option<u8>]) -> Option<(char, usize)> {
    let length = match bytes.first().copied().flatten()? {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    let mut spelt = [0; 4];
    for (to, from) in spelt.iter_mut().zip(bytes.get(..length)?) {
        *to = (*from)?;
    }
    let character = std::str::from_utf8(&spelt[..length]).ok()?.chars().next()?;
    Some((character, length))
}

/// Whether the sequence at `at` is likely to be no one's intention.
fn is_wrong(characters: &[char], bytes: &[Option<u8>], at: usize) -> bool {
    let first = characters[at] as u32;
    let two = matches!(bytes[at], Some(0xc2..=0xdf));
    if !two {
        return true;
    }
    if first > 0xc3 {
        let is_pair = |at: usize| {
            bytes.get(at).is_some_and(|byte| matches!(byte, Some(0xc4..=0xdf))) && sequence(&bytes[at..]).is_some()
        };
        return is_pair(at + 2) || (at >= 2 && is_pair(at - 2));
    }
    let after_capital = at > 0 && characters[at - 1].is_uppercase();
    let closes = matches!(bytes[at + 1], Some(0x85 | 0x91..=0x94 | 0xbb));
    let before_letter = characters.get(at + 2).is_some_and(|c| c.is_alphabetic());
    !(after_capital && closes && !before_letter)
}
