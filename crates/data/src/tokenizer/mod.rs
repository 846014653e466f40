//! Text to token ids and back.
//!
//! A [`Tokenizer`] is loaded once and shared; each worker takes an [`Encoder`] of its own, which holds
//! the word cache. Byte-level BPE with GPT-2's word pattern is encoded here, many times faster than by
//! the general libraries and with the same ids; every other Hugging Face tokenizer goes through the
//! `tokenizers` crate, the later OpenAI vocabularies through `tiktoken-rs`. SentencePiece models are read here.

mod added;
mod byte_level;
mod library;
mod load;
mod merge;
mod offsets;
mod sentencepiece;
mod wordpiece;
mod words;

use crate::error::DataError;
use added::AddedTokens;
use byte_level::{ByteLevel, WordCache};
use sentencepiece::SentencePiece;
use tiktoken_rs::CoreBPE;

/// What a corpus's tokens mean.
pub struct Tokenizer {
    name: String,
    kind: Kind,
    vocabulary_size: usize,
    end_of_document: Option<u32>,
    fingerprint: String,
}

/// In front of a blank, a text may be cut ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutRule {
    /// ... behind any character that is no blank itself.
    BehindAnything,
    /// ... behind a letter.
    BehindLetters,
    /// ... perhaps behind a letter: the word pattern is not known.
    Unknown,
}

enum Kind {
    /// Text is never searched for special tokens.
    ByteLevel(Box<ByteLevel>),
    /// A `tokenizer.json` that is byte-level BPE; text that holds an added token goes to the library.
    ByteLevelWithAdded {
        model: Box<ByteLevel>,
        added: AddedTokens,
        library: Box<tokenizers::Tokenizer>,
    },
    Library(Box<tokenizers::Tokenizer>),
    Tiktoken(Box<CoreBPE>),
    SentencePiece(Box<SentencePiece>),
}

impl Tokenizer {
    /// Loads a tokenizer by name: `gpt2` (also `r50k_base`), another tiktoken vocabulary
    /// (`p50k_base`, `cl100k_base`, `o200k_base`), a `tokenizer.json`, a SentencePiece `.model`, or a folder
    /// that holds one of these or holds `vocab.json` and `merges.txt` (any names that end so).
    pub fn load(name: &str) -> Result<Self, DataError> {
        load::load(name)
    }

    /// From the text of a `tokenizer.json` that has no file of its own; `name` is for messages.
    pub fn parse(name: &str, json: &str) -> Result<Self, DataError> {
        load::parse(name, json).map_err(|fault| DataError::Tokenizer { name: name.to_string(), fault })
    }

    /// From the bytes of a SentencePiece `.model`; `name` is for messages.
    ///
    /// # Errors
    /// What is wrong with the model or not supported: word and character models, unused pieces in BPE,
    /// blanks that end words.
    pub fn from_sentencepiece(name: &str, model: &[u8]) -> Result<Self, DataError> {
        load::sentencepiece(name, model).map_err(|fault| DataError::Tokenizer { name: name.to_string(), fault })
    }

    /// The name it was loaded by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One more than the largest id it can give.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    /// The token that ends a document, where the vocabulary has one under a customary name.
    pub fn end_of_document(&self) -> Option<u32> {
        self.end_of_document
    }

    /// 32 hexadecimal digits that differ between tokenizers which give different ids.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The id of a token by its text as the vocabulary writes it.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        match &self.kind {
            Kind::ByteLevel(model) => model.token_id(token),
            Kind::ByteLevelWithAdded { library, .. } | Kind::Library(library) => library.token_to_id(token),
            Kind::Tiktoken(model) => match model.encode_with_special_tokens(token)[..] {
                [id] => Some(id),
                _ => None,
            },
            Kind::SentencePiece(model) => model.token_id(token),
        }
    }

    /// The text of one token as the vocabulary writes it, in the library's spelling where it has its own.
    pub fn token_text(&self, id: u32) -> Option<String> {
        match &self.kind {
            Kind::ByteLevelWithAdded { library, .. } | Kind::Library(library) => library.id_to_token(id),
            Kind::ByteLevel(_) | Kind::Tiktoken(_) => self.decode(&[id]).ok(),
            Kind::SentencePiece(model) => model.token_text(id).map(str::to_string),
        }
    }

    /// Where a long text may be cut without changing its ids.
    pub fn cut_rule(&self) -> CutRule {
        match &self.kind {
            Kind::ByteLevel(_) => CutRule::BehindAnything,
            Kind::ByteLevelWithAdded { added, .. } if added.may_be_cut() => CutRule::BehindAnything,
            Kind::Tiktoken(_) => CutRule::BehindLetters,
            _ => CutRule::Unknown,
        }
    }

    /// The text of `ids`; bytes that are no UTF-8 are replaced.
    pub fn decode(&self, ids: &[u32]) -> Result<String, DataError> {
        match &self.kind {
            Kind::ByteLevel(model) | Kind::ByteLevelWithAdded { model, .. } => {
                model.decode(ids).map_err(|id| self.fault(format!("id {id} is not in the vocabulary")))
            }
            Kind::SentencePiece(model) => {
                model.decode(ids).map_err(|id| self.fault(format!("id {id} is not in the vocabulary")))
            }
            Kind::Library(library) => library.decode(ids, false).map_err(|e| self.fault(e.to_string())),
            Kind::Tiktoken(model) => {
                let bytes = model.decode_bytes(ids).map_err(|e| self.fault(e.to_string()))?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }

    /// An encoder with an empty cache.
    pub fn encoder(&self) -> Encoder<'_> {
        Encoder { tokenizer: self, cache: WordCache::default() }
    }

    fn fault(&self, fault: String) -> DataError {
        DataError::Tokenizer { name: self.name.clone(), fault }
    }
}

/// Encodes texts one after another; not shared between threads.
pub struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    cache: WordCache,
}

impl Encoder<'_> {
    /// Appends the ids of `text` to `out`, without any token that the text does not hold.
    pub fn encode(&mut self, text: &str, out: &mut Vec<u32>) -> Result<(), DataError> {
        match &self.tokenizer.kind {
            Kind::ByteLevel(model) => model.encode(text, &mut self.cache, out),
            Kind::ByteLevelWithAdded { model, added, library } => {
                if added.occur_in(text) {
                    return self.through_library(library, text, out);
                }
                model.encode(text, &mut self.cache, out);
            }
            Kind::Library(library) => return self.through_library(library, text, out),
            Kind::Tiktoken(model) => out.extend(model.encode_ordinary(text)),
            Kind::SentencePiece(model) => {
                let encoded = model.encode(text, &mut self.cache, out);
                return encoded.map_err(|fault| self.tokenizer.fault(fault));
            }
        }
        Ok(())
    }

    fn through_library(
        &self,
        library: &tokenizers::Tokenizer,
        text: &str,
        out: &mut Vec<u32>,
    ) -> Result<(), DataError> {
        let encoding = library.encode_fast(text, false).map_err(|e| self.tokenizer.fault(e.to_string()))?;
        out.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}
