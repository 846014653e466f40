//! Files and a tokenizer to test with.

use henge_data::tokenizer::Tokenizer;
use henge_eval::EvalError;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The test data's folder, where there is one.
pub fn test_data() -> Option<PathBuf> {
    let folder = std::env::var_os("HENGE_TEST_DATA").map(|folder| PathBuf::from(folder).join("data"));
    if folder.is_none() {
        eprintln!("skipped: HENGE_TEST_DATA names no folder of test data");
    }
    folder
}

/// A folder with one file.
pub fn file(name: &str, text: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// An error's message with the folder's name taken out.
pub fn message<T>(result: Result<T, EvalError>, folder: &Path) -> String {
    let error = result.err().expect("this is refused");
    assert!(error.is_request(), "{error}");
    error.to_string().replace(&format!("{}/", folder.display()), "")
}

pub const PAD: u32 = 0;
pub const UNKNOWN: u32 = 1;
pub const CLS: u32 = 2;
pub const SEP: u32 = 3;
/// Id of the first of the given words.
pub const FIRST: u32 = 4;

/// A BERT tokenizer of the given pieces.
pub fn tokenizer<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Tokenizer {
    let marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
    let pieces = marks.into_iter().chain(pieces).zip(0u32..);
    let vocab: serde_json::Map<String, serde_json::Value> =
        pieces.map(|(piece, id)| (piece.into(), id.into())).collect();
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "post_processor": null,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab}
    });
    let (_folder, path) = file("tokenizer.json", &json.to_string());
    Tokenizer::load(path.to_str().unwrap()).unwrap()
}

/// A tokenizer with a token for each letter, digit and mark of ASCII.
pub fn spelling_tokenizer() -> Tokenizer {
    let letters: Vec<String> = (b'!'..=b'~').map(|byte| char::from(byte).to_string()).collect();
    let inside: Vec<String> = letters.iter().map(|letter| format!("##{letter}")).collect();
    tokenizer(letters.iter().chain(&inside).map(String::as_str))
}
