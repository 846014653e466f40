//! SentencePiece's BPE: characters merged to the neighbouring pair whose piece has the highest score, the
//! leftmost of equals.
//!
//! The `tokenizers` library ranks pairs, so that two splits of one piece come one after the other instead
//! of by place; here both have the rank of their piece.

use super::super::merge::{Merge, MergeTable, Merger};
use super::{Piece, PieceKind};
use hashbrown::HashMap;

/// Symbols from here on stand for characters that are no piece, by code point.
const CHARACTERS: u32 = 1 << 24;
/// Symbols from here on stand for user-defined pieces, which nothing merges with.
const FROZEN: u32 = 1 << 26;

/// The merges of a vocabulary.
pub(super) struct Bpe {
    characters: HashMap<char, u32>,
    merges: MergeTable,
    /// Text and id of user-defined pieces, longest first.
    user_defined: Vec<(String, u32)>,
}

/// What a word is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    Piece(u32),
    /// A character that is no piece.
    Unknown(char),
}

impl Bpe {
    /// # Errors
    /// Unused pieces, whose merges SentencePiece takes back.
    pub(super) fn new(pieces: &[Piece]) -> Result<Self, String> {
        if pieces.iter().any(|piece| piece.kind == PieceKind::Unused) {
            return Err("it has unused pieces, which are not supported in BPE; use its tokenizer.json".into());
        }
        let found = |piece: &&Piece| matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined);
        let ids: HashMap<&str, u32> =
            pieces.iter().filter(found).map(|piece| (piece.text.as_str(), piece.id)).collect();
        let mut characters = HashMap::new();
        for (text, &id) in &ids {
            if let Some(character) = only_char(text) {
                characters.insert(character, id);
            }
        }
        let symbol = |text: &str| {
            ids.get(text).copied().or_else(|| only_char(text).map(|character| CHARACTERS + character as u32))
        };
        let mut scores: Vec<f32> = pieces.iter().map(|piece| piece.score).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        let mut merges = MergeTable::new();
        for piece in pieces.iter().filter(found) {
            let rank = scores.partition_point(|score| score.total_cmp(&piece.score).is_gt()) as u32;
            for (at, _) in piece.text.char_indices().skip(1) {
                if let (Some(left), Some(right)) = (symbol(&piece.text[..at]), symbol(&piece.text[at..])) {
                    merges.insert((left, right), Merge { rank, id: piece.id });
                }
            }
        }
        let mut user_defined: Vec<(String, u32)> = pieces
            .iter()
            .filter(|piece| piece.kind == PieceKind::UserDefined && !piece.text.is_empty())
            .map(|piece| (piece.text.clone(), piece.id))
            .collect();
        user_defined.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Ok(Bpe { characters, merges, user_defined })
    }

    /// Gives the symbols of a word, in order.
    pub(super) fn encode(&self, word: &str, merger: &mut Merger, take: &mut dyn FnMut(Symbol)) {
        let mut merged = Vec::new();
        merger.merge(self.symbols(word), &self.merges, &mut merged);
        for symbol in merged {
            take(match symbol {
                FROZEN.. => Symbol::Piece(symbol - FROZEN),
                CHARACTERS.. => {
                    Symbol::Unknown(char::from_u32(symbol - CHARACTERS).expect("the code point of a character"))
                }
                _ => Symbol::Piece(symbol),
            });
        }
    }

    fn symbols<'w>(&'w self, word: &'w str) -> impl Iterator<Item = u32> + 'w {
        let mut rest = word;
        std::iter::from_fn(move || {
            let character = rest.chars().next()?;
            if let Some((text, id)) = self.user_defined.iter().find(|(text, _)| rest.starts_with(text.as_str())) {
                rest = &rest[text.len()..];
                return Some(FROZEN + id);
            }
            rest = &rest[character.len_utf8()..];
            Some(self.characters.get(&character).copied().unwrap_or(CHARACTERS + character as u32))
        })
    }
}

fn only_char(text: &str) -> Option<char> {
    let mut characters = text.chars();
    characters.next().filter(|_| characters.next().is_none())
}
