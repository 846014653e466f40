//! SentencePiece's normalization: replacements by the longest match in a compiled trie, blanks to U+2581.
//!
//! The trie is a double array in the form of darts-clone. The `tokenizers` library reads it, too, but asks
//! it for grapheme clusters; SentencePiece asks for the longest prefix, and the two differ.

use super::proto::NormalizerSpec;

/// What stands for a blank.
pub(super) const BLANK: char = '\u{2581}';

/// Text to the form that pieces are found in.
pub(super) struct Normalizer {
    /// Double array; empty for text that is taken as it is.
    units: Vec<u32>,
    /// Replacements, each ended by a zero byte.
    replacements: Vec<u8>,
    add_dummy_prefix: bool,
    remove_extra_blanks: bool,
    /// Pieces that are taken as they are, longest first.
    protected: Vec<String>,
}

impl Normalizer {
    /// # Errors
    /// A trie whose stated size is not there; blanks that are not escaped.
    pub(super) fn new(spec: &NormalizerSpec, mut protected: Vec<String>) -> Result<Self, String> {
        if !spec.escape_whitespaces() {
            return Err("blanks are not escaped in this model, which is not supported; use its tokenizer.json".into());
        }
        let map = spec.precompiled_charsmap();
        let (units, replacements) = if map.is_empty() { (Vec::new(), Vec::new()) } else { read_map(map)? };
        protected.sort_by_key(|piece| std::cmp::Reverse(piece.len()));
        Ok(Normalizer {
            units,
            replacements,
            add_dummy_prefix: spec.add_dummy_prefix(),
            remove_extra_blanks: spec.remove_extra_whitespaces(),
            protected,
        })
    }

    /// Whether decoded text begins with a blank that the original had not.
    pub(super) fn strips_first_blank(&self) -> bool {
        self.add_dummy_prefix || self.remove_extra_blanks
    }

    /// Whether more than one such blank goes.
    pub(super) fn strips_every_first_blank(&self) -> bool {
        self.remove_extra_blanks
    }

    pub(super) fn normalize(&self, text: &str) -> String {
        let mut rest = text;
        while self.remove_extra_blanks && !rest.is_empty() {
            let (replacement, length) = self.next(rest);
            if replacement != " " {
                break;
            }
            rest = &rest[length..];
        }
        let mut out = String::with_capacity(text.len() + text.len() / 4);
        if rest.is_empty() {
            return out;
        }
        if self.add_dummy_prefix {
            out.push(BLANK);
        }
        let mut behind_blank = self.remove_extra_blanks;
        while !rest.is_empty() {
            let (replacement, length) = self.next(rest);
            let kept = if behind_blank { replacement.trim_start_matches(' ') } else { replacement };
            if !kept.is_empty() {
                out.extend(kept.chars().map(|c| if c == ' ' { BLANK } else { c }));
                behind_blank = self.remove_extra_blanks && kept.ends_with(' ');
            }
            rest = &rest[length..];
        }
        if self.remove_extra_blanks {
            out.truncate(out.trim_end_matches(BLANK).len());
        }
        out
    }

    /// What the beginning of `text`, which is not empty, becomes, and how long that beginning is.
    fn next<'t>(&'t self, text: &'t str) -> (&'t str, usize) {
        if let Some(piece) = self.protected.iter().find(|piece| text.starts_with(piece.as_str())) {
            return (piece, piece.len());
        }
        let length = text.chars().next().map_or(0, char::len_utf8);
        self.longest_match(text.as_bytes())
            .filter(|&(_, length)| text.is_char_boundary(length))
            .unwrap_or((&text[..length], length))
    }

    fn longest_match(&self, text: &[u8]) -> Option<(&str, usize)> {
        let mut found = None;
        let mut at = offset(*self.units.first()?);
        for (i, &byte) in text.iter().enumerate() {
            at ^= usize::from(byte);
            let Some(&unit) = self.units.get(at).filter(|&&unit| label(unit) == u32::from(byte)) else { break };
            at ^= offset(unit);
            if has_leaf(unit)
                && let Some(&leaf) = self.units.get(at)
            {
                found = Some(((leaf & 0x7fff_ffff) as usize, i + 1));
            }
        }
        let (value, length) = found?;
        let from = self.replacements.get(value..)?;
        let end = from.iter().position(|&byte| byte == 0)?;
        Some((std::str::from_utf8(&from[..end]).ok()?, length))
    }
}

fn read_map(map: &[u8]) -> Result<(Vec<u32>, Vec<u8>), String> {
    let short = || format!("its normalization table of {} bytes is cut short", map.len());
    let (size, rest) = map.split_at_checked(4).ok_or_else(short)?;
    let size = u32::from_le_bytes(size.try_into().expect("four bytes")) as usize;
    let (trie, replacements) = rest.split_at_checked(size).ok_or_else(short)?;
    let units = trie.chunks_exact(4).map(|unit| u32::from_le_bytes(unit.try_into().expect("four bytes")));
    Ok((units.collect(), replacements.to_vec()))
}

fn has_leaf(unit: u32) -> bool {
    unit >> 8 & 1 == 1
}

fn label(unit: u32) -> u32 {
    unit & (1 << 31 | 0xff)
}

fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}
