//! BERT's `vocab.txt`: a WordPiece vocabulary, one token a line.

use serde_json::{Map, Value, json};

const UNKNOWN: &str = "[UNK]";
const SPECIAL: [&str; 5] = ["[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]"];

/// The `tokenizer.json` that says what a `vocab.txt` leaves to custom: BERT's normaliser and words. A
/// vocabulary without a capital letter is an uncased one, whose text is lower-cased and loses its accents.
pub(super) fn as_tokenizer_json(text: &str) -> Result<String, String> {
    let tokens: Vec<&str> = text.lines().map(|line| line.trim_end_matches('\r')).collect();
    if !tokens.contains(&UNKNOWN) {
        return Err(format!("has no line {UNKNOWN}, so it is no vocabulary of BERT's, one token a line"));
    }
    let is_cased = tokens.iter().any(|token| !is_bracketed(token) && token.contains(char::is_uppercase));
    let ids: Map<String, Value> = (0_u32..).zip(&tokens).map(|(id, token)| (token.to_string(), id.into())).collect();
    if ids.len() != tokens.len() {
        return Err(format!("holds {} tokens on {} lines; each token stands once", ids.len(), tokens.len()));
    }
    let special = |token: &str, id: &Value| {
        json!({
            "id": id, "content": token, "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        })
    };
    let added = SPECIAL.iter().filter_map(|token| Some(special(token, ids.get(*token)?)));
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": true,
            "strip_accents": !is_cased,
            "lowercase": !is_cased,
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece",
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    });
    Ok(tokenizer.to_string())
}

fn is_bracketed(token: &str) -> bool {
    token.starts_with('[') && token.ends_with(']')
}

#[cfg(test)]
mod tests {
    use super::super::Tokenizer;
    use super::as_tokenizer_json;

    fn ids(vocabulary: &str, text: &str) -> Vec<u32> {
        let json = as_tokenizer_json(vocabulary).unwrap();
        let mut ids = Vec::new();
        Tokenizer::parse("vocab.txt", &json).unwrap().encoder().encode(text, &mut ids).unwrap();
        ids
    }

    #[test]
    fn words_are_cut_at_the_longest_known_pieces() {
        let vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\n##ed\n,\ncafe";
        assert_eq!(ids(vocabulary, "Playing, played CAF\u{c9} [MASK] xyz"), [5, 6, 8, 5, 7, 9, 4, 1]);
    }

    #[test]
    fn a_capital_letter_keeps_the_case_of_text() {
        assert_eq!(ids("[UNK]\nPlay\nplay", "Play play PLAY"), [1, 2, 0]);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(as_tokenizer_json("once upon a time\n").unwrap_err().contains("[UNK]"));
        assert!(as_tokenizer_json("[UNK]\na\na").unwrap_err().contains("2 tokens on 3 lines"));
    }
}
