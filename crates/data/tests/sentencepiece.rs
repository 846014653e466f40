//! SentencePiece models against the ids and texts that the library which trained them gives.
//!
//! The models (trained on plays of Shakespeare) and the golden files beside them come from the `sentencepiece`
//! package 0.2.3 for Python: BPE with byte fallback as Llama's, BPE with user-defined pieces, unigram with
//! NFKC as T5's, unigram with byte fallback.

use henge_data::tokenizer::Tokenizer;
use serde::Deserialize;
use std::fs;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Golden {
    text: String,
    ids: Vec<u32>,
    decoded: String,
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sentencepiece").join(name)
}

/// Compares encoding and decoding of a model with its golden file.
fn assert_golden(model: &str) {
    let tokenizer = Tokenizer::load(fixture(&format!("{model}.model")).to_str().unwrap()).unwrap();
    let golden: Vec<Golden> = serde_json::from_slice(&fs::read(fixture(&format!("{model}.json"))).unwrap()).unwrap();
    assert!(golden.len() > 150);
    let mut encoder = tokenizer.encoder();
    // One vector for all: what stands before a text must not change its ids.
    let mut ids = Vec::new();
    for Golden { text, ids: expected, decoded } in golden {
        let before = ids.len();
        encoder.encode(&text, &mut ids).unwrap();
        assert_eq!(ids[before..], expected, "{model}: {text:?}");
        assert_eq!(tokenizer.decode(&expected).unwrap(), decoded, "{model}: {text:?}");
    }
}

#[test]
fn bpe_with_byte_fallback() {
    assert_golden("llama");
}

#[test]
fn bpe_with_user_defined_pieces() {
    assert_golden("bpe_defined");
}

#[test]
fn unigram_with_nfkc() {
    assert_golden("unigram");
}

#[test]
fn unigram_with_byte_fallback() {
    assert_golden("unigram_bytes");
}

#[test]
fn a_folder_and_special_tokens_are_found() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(fixture("llama.model"), folder.path().join("tokenizer.model")).unwrap();
    let tokenizer = Tokenizer::load(folder.path().to_str().unwrap()).unwrap();
    assert_eq!((tokenizer.vocabulary_size(), tokenizer.end_of_document()), (640, Some(2)));
    assert_eq!((tokenizer.token_id("<s>"), tokenizer.token_text(0).as_deref()), (Some(1), Some("<unk>")));
}

#[test]
fn what_is_no_model_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(fixture("llama.model")).unwrap();
    for (name, bytes) in [("cut.model", &whole[..whole.len() - 3]), ("text.model", b"version: 1"), ("none.model", b"")]
    {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let error = Tokenizer::load(path.to_str().unwrap()).err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("not a SentencePiece model"), "{error}");
    }
}
