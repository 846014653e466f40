//! Where in the text each token stands.

use super::{Encoder, Kind};
use crate::error::DataError;
use std::ops::Range;

impl Encoder<'_> {
    /// As [`Encoder::encode`], and appends for each id the bytes of `text` it was made from. Case, accents
    /// and other marks that the tokenizer drops are those of `text`; a word outside the vocabulary is one
    /// token over all of its bytes.
    ///
    /// # Errors
    /// A tokenizer that is no `tokenizer.json`: the built-in vocabularies keep no places.
    pub fn encode_with_places(
        &mut self,
        text: &str,
        ids: &mut Vec<u32>,
        places: &mut Vec<Range<usize>>,
    ) -> Result<(), DataError> {
        let library = match &self.tokenizer.kind {
            Kind::ByteLevelWithAdded { library, .. } | Kind::Library(library) => library,
            Kind::ByteLevel(_) | Kind::Tiktoken(_) | Kind::SentencePiece(_) => {
                return Err(self.tokenizer.fault("it does not say where tokens stand; give a tokenizer.json".into()));
            }
        };
        let encoding = library.encode(text, false).map_err(|e| self.tokenizer.fault(e.to_string()))?;
        ids.extend_from_slice(encoding.get_ids());
        places.extend(encoding.get_offsets().iter().map(|&(start, end)| start..end));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::tokenizer::Tokenizer;

    /// A WordPiece tokenizer that its publisher cuts to two tokens and pads to four, as sentence encoders
    /// are published.
    const JSON: &str = r###"{
        "version": "1.0",
        "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100,
                  "vocab": {"[PAD]": 0, "[UNK]": 1, "cafe": 2, "##s": 3, ",": 4, "the": 5}}
    }"###;

    #[test]
    fn places_are_bytes_of_the_text_and_nothing_is_cut_or_padded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, JSON).unwrap();
        let tokenizer = Tokenizer::load(path.to_str().unwrap()).unwrap();
        let text = "The Caf\u{e9}s, \u{65e5}zzz the";
        let (mut ids, mut places) = (Vec::new(), Vec::new());
        tokenizer.encoder().encode_with_places(text, &mut ids, &mut places).unwrap();
        assert_eq!(ids, [5, 2, 3, 4, 1, 1, 5]);
        let words: Vec<&str> = places.iter().map(|place| &text[place.clone()]).collect();
        assert_eq!(words, ["The", "Caf\u{e9}", "s", ",", "\u{65e5}", "zzz", "the"]);
        let mut plain = Vec::new();
        tokenizer.encoder().encode(text, &mut plain).unwrap();
        assert_eq!(plain, ids);
    }

    #[test]
    fn a_built_in_vocabulary_says_that_it_keeps_no_places() {
        let tokenizer = Tokenizer::load("gpt2").unwrap();
        let error = tokenizer.encoder().encode_with_places("a", &mut Vec::new(), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("give a tokenizer.json"), "{error}");
    }
}
