//! SentencePiece models (`.model`; Kudo and Richardson, arXiv:1808.06226), read from their protocol buffer.
//!
//! Text is normalized as the library that defines the format does it, cut into words where no piece lies
//! across a cut, and each word encoded by BPE ([`bpe`]) or by the `tokenizers` library's unigram model.

mod bpe;
mod normalize;
mod proto;

use super::byte_level::WordCache;
use bpe::{Bpe, Symbol};
use hashbrown::HashMap;
use normalize::{BLANK, Normalizer};
use prost::Message;
use proto::{ModelKind, ModelProto, PieceKind};
use tokenizers::Model as _;
use tokenizers::models::unigram::Unigram;

/// Pieces beyond this are no vocabulary.
const MOST_PIECES: usize = 1 << 24;

/// One entry of the vocabulary.
struct Piece {
    id: u32,
    text: String,
    score: f32,
    kind: PieceKind,
}

/// How words become pieces.
enum Model {
    Bpe(Bpe),
    Unigram(Box<Unigram>),
}

/// A loaded model.
pub(super) struct SentencePiece {
    pieces: Vec<Piece>,
    ids: HashMap<String, u32>,
    normalizer: Normalizer,
    model: Model,
    unknown: u32,
    unknown_surface: String,
    /// Ids of the 256 bytes, for characters that are no piece.
    bytes: Option<Box<[u32; 256]>>,
    /// Whether no piece holds a blank behind another character.
    words_are_apart: bool,
}

impl SentencePiece {
    /// # Errors
    /// What is wrong with the file or not supported in it.
    pub(super) fn parse(file: &[u8]) -> Result<Self, String> {
        let proto = ModelProto::decode(file).map_err(|e| format!("not a SentencePiece model: {e}"))?;
        let pieces = read_pieces(&proto)?;
        let trainer = proto.trainer.unwrap_or_default();
        if trainer.treat_whitespace_as_suffix() {
            return Err("blanks end its words instead of beginning them, which is not supported".into());
        }
        let mut ids = HashMap::new();
        for piece in &pieces {
            if ids.insert(piece.text.clone(), piece.id).is_some() {
                return Err(format!("piece {:?} comes twice", piece.text));
            }
        }
        let unknown = pieces.iter().find(|piece| piece.kind == PieceKind::Unknown);
        let unknown = unknown.map(|piece| piece.id).ok_or("it has no piece for the unknown")?;
        let bytes = if trainer.byte_fallback() { Some(byte_ids(&ids)?) } else { None };
        let protected = pieces.iter().filter(|piece| piece.kind == PieceKind::UserDefined && !piece.text.is_empty());
        let protected = protected.map(|piece| piece.text.clone()).collect();
        let normalizer = Normalizer::new(&proto.normalizer.unwrap_or_default(), protected)?;
        let model = match trainer.model_kind() {
            ModelKind::Bpe => Model::Bpe(Bpe::new(&pieces)?),
            ModelKind::Unigram => Model::Unigram(Box::new(unigram(&pieces, unknown)?)),
            other => return Err(format!("its kind is {other:?}; only BPE and unigram models are encoded")),
        };
        let words_are_apart = ids.contains_key(BLANK.encode_utf8(&mut [0; 4]))
            && pieces.iter().all(|piece| !is_found(piece.kind) || next_word(&piece.text).is_none());
        let unknown_surface = trainer.unknown_surface.unwrap_or_else(|| " \u{2047} ".into());
        Ok(SentencePiece { pieces, ids, normalizer, model, unknown, unknown_surface, bytes, words_are_apart })
    }

    pub(super) fn size(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn token_id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    pub(super) fn token_text(&self, id: u32) -> Option<&str> {
        self.pieces.get(id as usize).map(|piece| piece.text.as_str())
    }

    /// Appends the ids of `text`.
    ///
    /// # Errors
    /// What the unigram model says.
    pub(super) fn encode(&self, text: &str, cache: &mut WordCache, out: &mut Vec<u32>) -> Result<(), String> {
        let normalized = self.normalizer.normalize(text);
        let (mut rest, mut fault) = (normalized.as_str(), None);
        while !rest.is_empty() {
            let end = if self.words_are_apart { next_word(rest).unwrap_or(rest.len()) } else { rest.len() };
            let (word, behind) = rest.split_at(end);
            cache.ids_of(word.as_bytes(), out, |merger, out| match &self.model {
                Model::Bpe(bpe) => {
                    let start = out.len();
                    bpe.encode(word, merger, &mut |symbol| self.push(symbol, start, out));
                }
                Model::Unigram(unigram) => fault = self.encode_unigram(unigram, word, out).err(),
            });
            if let Some(fault) = fault {
                return Err(fault);
            }
            rest = behind;
        }
        Ok(())
    }

    fn encode_unigram(&self, unigram: &Unigram, word: &str, out: &mut Vec<u32>) -> Result<(), String> {
        let start = out.len();
        for token in unigram.tokenize(word).map_err(|e| e.to_string())? {
            if token.id == self.unknown {
                token.value.chars().for_each(|character| self.push(Symbol::Unknown(character), start, out));
            } else {
                out.push(token.id);
            }
        }
        Ok(())
    }

    /// Appends a symbol of the word whose ids begin at `start`: a character that is no piece as its bytes, or
    /// a run of such as one unknown. Where words are apart a run never goes on in the next one.
    fn push(&self, symbol: Symbol, start: usize, out: &mut Vec<u32>) {
        match (symbol, &self.bytes) {
            (Symbol::Piece(id), _) => out.push(id),
            (Symbol::Unknown(character), Some(bytes)) => {
                out.extend(character.encode_utf8(&mut [0; 4]).bytes().map(|byte| bytes[usize::from(byte)]));
            }
            (Symbol::Unknown(_), None) if out[start..].last() == Some(&self.unknown) => {}
            (Symbol::Unknown(_), None) => out.push(self.unknown),
        }
    }

    /// The text of `ids`; bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// The first id that is not in the vocabulary.
    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, u32> {
        let mut text = Vec::new();
        let mut at_start = self.normalizer.strips_first_blank();
        for &id in ids {
            let piece = self.pieces.get(id as usize).ok_or(id)?;
            match piece.kind {
                PieceKind::Control => continue,
                PieceKind::Unknown => text.extend_from_slice(self.unknown_surface.as_bytes()),
                PieceKind::Byte => text.extend(byte_of(&piece.text)),
                _ => {
                    let stripped = if at_start { piece.text.strip_prefix(BLANK) } else { None };
                    let shown = stripped.unwrap_or(&piece.text).replace(BLANK, " ");
                    text.extend_from_slice(shown.as_bytes());
                    at_start = self.normalizer.strips_every_first_blank();
                }
            }
            at_start &= text.is_empty();
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn read_pieces(proto: &ModelProto) -> Result<Vec<Piece>, String> {
    let count = proto.pieces.len();
    if count == 0 || count > MOST_PIECES {
        return Err(format!("not a SentencePiece model: it has {count} pieces"));
    }
    let read = |(id, piece): (usize, &proto::PieceProto)| {
        let kind = piece.kind.unwrap_or(PieceKind::Normal as i32);
        let kind = PieceKind::try_from(kind).map_err(|_| format!("piece {id} is of an unknown kind ({kind})"))?;
        let (text, score) = (piece.piece().to_string(), piece.score());
        if !score.is_finite() {
            return Err(format!("piece {text:?} has the score {score}"));
        }
        Ok(Piece { id: id as u32, text, score, kind })
    };
    proto.pieces.iter().enumerate().map(read).collect()
}

/// Whether a piece may be found in text.
fn is_found(kind: PieceKind) -> bool {
    matches!(kind, PieceKind::Normal | PieceKind::UserDefined)
}

/// Where a word begins behind the first one: at a blank that follows no blank.
fn next_word(text: &str) -> Option<usize> {
    let mut behind_blank = true;
    text.char_indices().find_map(|(at, character)| {
        let begins = character == BLANK && !behind_blank;
        behind_blank = character == BLANK;
        begins.then_some(at)
    })
}

fn byte_ids(ids: &HashMap<String, u32>) -> Result<Box<[u32; 256]>, String> {
    let mut found = Box::new([0; 256]);
    for (byte, id) in found.iter_mut().enumerate() {
        let name = format!("<0x{byte:02X}>");
        *id = ids.get(&name).copied().ok_or_else(|| format!("it falls back to bytes but has no piece {name}"))?;
    }
    Ok(found)
}

/// The byte that a piece `<0xE2>` stands for.
fn byte_of(text: &str) -> Option<u8> {
    u8::from_str_radix(text.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()
}

/// The library's model. Pieces that are never found in text are given names that text cannot hold once its
/// blanks are escaped; user-defined ones the score that SentencePiece gives them, above any other path.
fn unigram(pieces: &[Piece], unknown: u32) -> Result<Unigram, String> {
    let normal = pieces.iter().filter(|piece| piece.kind == PieceKind::Normal);
    let highest = normal.map(|piece| piece.score).fold(f32::NEG_INFINITY, f32::max);
    let highest = if highest.is_finite() { f64::from(highest) } else { 0.0 };
    let entry = |piece: &Piece| match piece.kind {
        PieceKind::Normal => (piece.text.clone(), f64::from(piece.score)),
        PieceKind::UserDefined => (piece.text.clone(), piece.text.len() as f64 * highest - 0.1),
        _ => (format!(" {}", piece.id), 0.0),
    };
    if let Some(empty) = pieces.iter().find(|piece| is_found(piece.kind) && piece.text.is_empty()) {
        return Err(format!("piece {} is empty", empty.id));
    }
    Unigram::from(pieces.iter().map(entry).collect(), Some(unknown as usize), false).map_err(|e| e.to_string())
}
