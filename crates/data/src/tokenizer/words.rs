//! GPT-2's word pattern as a scanner:
//!
//! `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
//!
//! A regular expression engine with look-ahead takes most of the time of encoding; the pattern needs
//! one table of character classes and no backtracking. The classes come from `regex-syntax`, so a
//! character that Unicode assigned after that crate's tables counts as neither letter nor number.

use regex_syntax::hir::{Class, HirKind};

/// What the pattern distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum CharClass {
    Other,
    Space,
    Letter,
    Number,
}

/// The scanner's table.
pub(super) struct Words {
    /// Class of each code point.
    classes: Vec<CharClass>,
}

impl Words {
    pub(super) fn new() -> Self {
        let mut classes = vec![CharClass::Other; char::MAX as usize + 1];
        for (pattern, class) in
            [(r"\p{L}", CharClass::Letter), (r"\p{N}", CharClass::Number), (r"\s", CharClass::Space)]
        {
            fill(pattern, class, &mut classes);
        }
        Words { classes }
    }

    /// Where the word that starts at byte `start` ends; `start` is a character boundary inside `text`.
    pub(super) fn end(&self, text: &str, start: usize) -> usize {
        let bytes = text.as_bytes();
        let (class, length) = self.class_at(text, start);
        if bytes[start] == b'\''
            && let Some(length) = contraction(&bytes[start + 1..])
        {
            return start + 1 + length;
        }
        if class != CharClass::Space {
            return self.run_end(text, start + length, class);
        }
        if bytes[start] == b' ' && start + 1 < bytes.len() {
            let (next, length) = self.class_at(text, start + 1);
            if next != CharClass::Space {
                return self.run_end(text, start + 1 + length, next);
            }
        }
        self.blank_end(text, start)
    }

    /// A run of blanks leaves its last one to the word behind it, unless it is alone or ends the text.
    fn blank_end(&self, text: &str, start: usize) -> usize {
        let (mut last, mut end) = (start, start);
        while end < text.len() {
            let (class, length) = self.class_at(text, end);
            if class != CharClass::Space {
                return if last == start { end } else { last };
            }
            last = end;
            end += length;
        }
        end
    }

    fn run_end(&self, text: &str, mut end: usize, class: CharClass) -> usize {
        while end < text.len() {
            let (next, length) = self.class_at(text, end);
            if next != class {
                break;
            }
            end += length;
        }
        end
    }

    /// Class and length in bytes of the character at `at`.
    #[inline(always)]
    fn class_at(&self, text: &str, at: usize) -> (CharClass, usize) {
        let byte = text.as_bytes()[at];
        if byte < 0x80 {
            return (self.classes[byte as usize], 1);
        }
        match text[at..].chars().next() {
            Some(character) => (self.classes[character as usize], character.len_utf8()),
            None => (CharClass::Other, 1),
        }
    }
}

/// Length of the contraction behind an apostrophe.
fn contraction(after: &[u8]) -> Option<usize> {
    match after {
        [b's' | b't' | b'm' | b'd', ..] => Some(1),
        [b'r' | b'v', b'e', ..] | [b'l', b'l', ..] => Some(2),
        _ => None,
    }
}

fn fill(pattern: &str, class: CharClass, classes: &mut [CharClass]) {
    let parsed = regex_syntax::parse(pattern).expect("the three patterns are constants and parse");
    let HirKind::Class(Class::Unicode(ranges)) = parsed.kind() else {
        unreachable!("a Unicode class parses to a Unicode class")
    };
    for range in ranges.ranges() {
        classes[range.start() as usize..=range.end() as usize].fill(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str) -> Vec<&str> {
        let words = Words::new();
        let (mut start, mut found) = (0, Vec::new());
        while start < text.len() {
            let end = words.end(text, start);
            found.push(&text[start..end]);
            start = end;
        }
        found
    }

    fn by_pattern(text: &str) -> Vec<&str> {
        let pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
        let pattern = fancy_regex::Regex::new(pattern).unwrap();
        pattern.find_iter(text).map(|found| found.unwrap().as_str()).collect()
    }

    #[test]
    fn words_of_a_sentence() {
        let text = "I'll say  it's 12\u{a0}o'clock!!\n\n\tYes 'twas\u{2003} ";
        assert_eq!(split(text), by_pattern(text));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn equals_the_pattern(text in "[ '\n\t\u{a0}\u{3000}a-mrstvel\u{df}\u{4e2d}0-9\u{bd}\u{2160}!.\u{301}\u{1f600}-]{0,40}") {
            prop_assert_eq!(split(&text), by_pattern(&text));
        }

        #[test]
        fn equals_the_pattern_on_any_text(text in "\\PC{0,30}") {
            prop_assert_eq!(split(&text), by_pattern(&text));
        }
    }
}
