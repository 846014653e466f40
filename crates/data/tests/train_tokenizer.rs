//! Vocabularies learnt from real text.

mod common;

use common::test_data;
use henge_data::DataError;
use henge_data::prepare::{Format, Input};
use henge_data::tokenizer::{CutRule, Tokenizer};
use henge_data::train_tokenizer::{TrainTokenizerOptions, VocabularyKind, train_tokenizer};
use std::fs;
use std::path::Path;

fn options(input: &Path, output: &Path, kind: VocabularyKind) -> TrainTokenizerOptions {
    TrainTokenizerOptions {
        inputs: vec![Input::new(input, Format::FromName)],
        key: "text".into(),
        kind,
        vocabulary_size: 600,
        least_count: 2,
        output: output.to_path_buf(),
    }
}

#[test]
fn a_byte_level_vocabulary_takes_the_fast_path_and_gives_the_text_back() {
    let Some(data) = test_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("tokenizer.json");
    let input = data.join("tinyshakespeare/input.txt");
    assert_eq!(train_tokenizer(&options(&input, &output, VocabularyKind::ByteLevelBpe)).unwrap(), 600);
    let tokenizer = Tokenizer::load(output.to_str().unwrap()).unwrap();
    assert_eq!((tokenizer.cut_rule(), tokenizer.end_of_document()), (CutRule::BehindAnything, Some(0)));
    let text = fs::read_to_string(input).unwrap() + "\u{4e2d}\u{1f600}";
    let mut ids = Vec::new();
    tokenizer.encoder().encode(&text, &mut ids).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    assert!(ids.len() * 2 < text.len());
}

#[test]
fn a_word_piece_vocabulary_splits_words() {
    let Some(data) = test_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("tokenizer.json");
    let input = data.join("tinystories/cs336_sample.txt");
    train_tokenizer(&options(&input, &output, VocabularyKind::WordPieceUncased)).unwrap();
    let tokenizer = Tokenizer::load(output.to_str().unwrap()).unwrap();
    assert_eq!(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(|t| tokenizer.token_id(t)),
        [0, 1, 2, 3, 4].map(Some)
    );
    let mut ids = Vec::new();
    tokenizer.encoder().encode("ONCE upon a time", &mut ids).unwrap();
    assert!(!ids.contains(&1));
    assert_eq!(tokenizer.decode(&ids).unwrap(), "once upon a time");
}

#[test]
fn what_cannot_be_learnt_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("a.jsonl");
    fs::write(&input, "{\"text\": \"fine\"}\n{\"text\": }\n").unwrap();
    let mut options = options(&input, &folder.path().join("t.json"), VocabularyKind::ByteLevelBpe);
    let message = train_tokenizer(&options).unwrap_err().to_string();
    assert!(message.contains("a.jsonl:2: broken JSON"), "{message}");
    fs::write(&input, "").unwrap();
    assert!(matches!(train_tokenizer(&options).unwrap_err(), DataError::EmptyInput { .. }));
    options.vocabulary_size = 100;
    assert!(train_tokenizer(&options).unwrap_err().to_string().contains("ask for 300 or more"));
    assert!(!options.output.exists());
}
