//! Text repair: the fixes that `ftfy` (which the first Megatron paper's scripts call) applies by default.
//!
//! In its order: HTML entities, where the text has no `<`; terminal escapes; UTF-8 read as Windows-1252 or
//! Latin-1 ([`mojibake`](super::mojibake)); Windows-1252 left as C1 controls; Latin ligatures; full-width
//! and half-width forms; curly quotation marks; line breaks; control characters; Unicode's form NFC. Of the
//! wrong encodings ftfy knows more (Windows-1250, -1251, MacRoman and others), and it weighs them by how
//! odd a text looks; here only the two most frequent are put back, by fixed rules.

use super::mojibake::{WINDOWS_1252, put_back};
use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// `text` repaired; borrowed where nothing was wrong.
pub fn repair(text: &str) -> Cow<'_, str> {
    let is_plain = |b: u8| matches!(b, b'\t' | b'\n' | b'\x0c' | b' '..=b'~') && b != b'&';
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut fixed = Cow::Borrowed(text);
    if !text.contains('<') && text.contains('&') {
        fixed = Cow::Owned(html_escape::decode_html_entities(text).into_owned());
    }
    if fixed.contains('\u{1b}') {
        fixed = Cow::Owned(without_escapes(&fixed));
    }
    let fixed = put_back(&fixed);
    let fixed = characters(&fixed);
    let fixed = match is_nfc_quick(fixed.chars()) {
        IsNormalized::Yes => fixed,
        _ => fixed.nfc().collect(),
    };
    if fixed == text { Cow::Borrowed(text) } else { Cow::Owned(fixed) }
}

/// Without terminal escapes: `ESC [`, digits and semicolons, a letter.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|c: char| !matches!(c, '0'..='9' | ';')).unwrap_or(part.len());
        match part[end..].chars().next() {
            Some(letter) if letter.is_ascii_alphabetic() => out.push_str(&part[end + 1..]),
            _ => out.extend(["\u{1b}[", part]),
        }
    }
    out
}

/// The fixes that go character by character.
fn characters(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let character = match character {
            '\u{80}'..='\u{9f}' => WINDOWS_1252[character as usize - 0x80],
            other => other,
        };
        match character {
            '\r' => {
                characters.next_if_eq(&'\n');
                out.push('\n');
            }
            '\u{2028}' | '\u{2029}' => out.push('\n'),
            '\u{2bc}' | '\u{2018}'..='\u{201b}' => out.push('\''),
            '\u{201c}'..='\u{201f}' => out.push('"'),
            '\u{3000}' => out.push(' '),
            '\u{ff01}'..='\u{ffef}' | '\u{fb00}'..='\u{fb06}' => out.extend([character].into_iter().nfkc()),
            '\u{132}' | '\u{133}' | '\u{1c4}'..='\u{1cc}' | '\u{1f1}'..='\u{1f3}' => {
                out.extend([character].into_iter().nfkc());
            }
            _ if is_control(character) => {}
            _ => out.push(character),
        }
    }
    out
}

fn is_control(character: char) -> bool {
    matches!(
        character,
        '\0'..='\u{8}' | '\u{b}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffc}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Texts and what ftfy 6.3.1's `fix_text` makes of them.
    const FTFY: [(&str, &str); 32] = [
        ("plain ASCII text\u{a}", "plain ASCII text\u{a}"),
        ("caf\u{c3}\u{a9} au lait", "caf\u{e9} au lait"),
        (
            "it\u{e2}\u{20ac}\u{2122}s \u{e2}\u{20ac}\u{153}quoted\u{e2}\u{20ac}\u{9d} text",
            "it's \u{22}quoted\u{22} text",
        ),
        ("\u{c3}\u{a2}\u{e2}\u{201a}\u{ac}\u{e2}\u{201e}\u{a2} twice", "' twice"),
        ("sch\u{c3}\u{b6}n und gro\u{c3}\u{178}", "sch\u{f6}n und gro\u{df}"),
        (
            "\u{d0}\u{178}\u{d1}\u{20ac}\u{d0}\u{b8}\u{d0}\u{b2}\u{d0}\u{b5}\u{d1}\u{201a}",
            "\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442}",
        ),
        ("a\u{c2}\u{a0}b", "a\u{a0}b"),
        ("\u{c2}\u{a3}5 and 20\u{c2}\u{b0}C", "\u{a3}5 and 20\u{b0}C"),
        ("AT&amp;T &lt;b&gt; &eacute; &#233; &#x2014;", "AT&T <b> \u{e9} \u{e9} \u{2014}"),
        ("<p>AT&amp;T</p>", "<p>AT&amp;T</p>"),
        ("e\u{301}tude", "\u{e9}tude"),
        ("\u{fb01}ne of\u{fb01}ce", "fine office"),
        ("\u{ff26}\u{ff35}\u{ff2c}\u{ff2c} \u{ff57}\u{ff49}\u{ff44}\u{ff54}\u{ff48}", "FULL width"),
        ("\u{201c}curly\u{201d} \u{2018}quotes\u{2019}", "\u{22}curly\u{22} 'quotes'"),
        ("one\u{d}\u{a}two\u{d}three\u{2028}four", "one\u{a}two\u{a}three\u{a}four"),
        ("bell\u{7} and nul\u{0}", "bell and nul"),
        ("\u{1b}[31mred\u{1b}[0m", "red"),
        ("\u{feff}mark", "mark"),
        (
            "caf\u{e9} na\u{ef}ve \u{65e5}\u{672c}\u{8a9e} \u{1f600}",
            "caf\u{e9} na\u{ef}ve \u{65e5}\u{672c}\u{8a9e} \u{1f600}",
        ),
        ("CAF\u{c9}\u{2026}", "CAF\u{c9}\u{2026}"),
        ("\u{e9}\u{e8}\u{e0} d\u{e9}j\u{e0} vu", "\u{e9}\u{e8}\u{e0} d\u{e9}j\u{e0} vu"),
        ("\u{f0}\u{178}\u{2dc}\u{20ac} smile", "\u{1f600} smile"),
        ("\u{91}quoted\u{92} \u{85}", "'quoted' \u{2026}"),
        ("S\u{c3}O PAULO", "S\u{c3}O PAULO"),
        ("l\u{2019}\u{c2}me", "l'\u{c2}me"),
        ("\u{ff76}\u{ff80}\u{ff76}\u{ff85}", "\u{30ab}\u{30bf}\u{30ab}\u{30ca}"),
        ("M\u{fc}nchen \u{bb} sch\u{f6}n \u{ab}", "M\u{fc}nchen \u{bb} sch\u{f6}n \u{ab}"),
        ("\u{1c6} \u{132}", "d\u{17e} IJ"),
        ("na\u{c3}\u{af}ve r\u{c3}\u{a9}sum\u{c3}\u{a9}", "na\u{ef}ve r\u{e9}sum\u{e9}"),
        ("tab\u{9}and\u{c}feed", "tab\u{9}and\u{c}feed"),
        ("\u{e2}\u{20ac}\u{201d} dash \u{e2}\u{20ac}\u{201c}", "\u{2014} dash \u{2013}"),
        ("\u{e0} la carte \u{20ac}5", "\u{e0} la carte \u{20ac}5"),
    ];

    #[test]
    fn repairs_what_ftfy_repairs() {
        for (text, expected) in FTFY {
            assert_eq!(repair(text), expected, "{text:?}");
        }
    }

    fn as_windows_1252(text: &str) -> String {
        let read = |byte: u8| match byte {
            0x80..=0x9f => WINDOWS_1252[byte as usize - 0x80],
            _ => char::from(byte),
        };
        text.bytes().map(read).collect()
    }

    proptest! {
        /// Words with accents, Cyrillic, Chinese and emoji between ASCII words.
        #[test]
        fn a_wrong_reading_is_put_back(words in proptest::collection::vec("[a-z]{1,5}|[a-z\u{e0}-\u{ff}]{2,6}|[\u{410}-\u{44f}]{2,6}|[\u{4e00}-\u{9fff}]{1,4}|[\u{1f600}-\u{1f64f}]", 1..8)) {
            let text = words.join(" ");
            let windows_1252 = as_windows_1252(&text);
            prop_assert_eq!(put_back(&windows_1252), text.as_str());
            let latin_1: String = text.bytes().map(char::from).collect();
            prop_assert_eq!(put_back(&latin_1), text.as_str());
        }

        #[test]
        fn what_is_repaired_needs_no_repair(text in "\\PC{0,40}") {
            // Decoding an entity may write another one; ftfy stops there, too.
            prop_assume!(!text.contains('&'));
            let once = repair(&text).into_owned();
            prop_assert_eq!(repair(&once), once.as_str());
        }
    }
}
