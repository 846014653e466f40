//! What each fuzz target does with its bytes; an ordinary test replays the seeds through the same.
//!
//! Whatever the bytes, the outcome is a value or an error: a panic, an abort or a hang is a fault.

use henge_data::Corpus;
use henge_data::prepare::{Format, Input, InputKind, each_text};
use henge_data::tokenizer::Tokenizer;
use std::path::Path;

/// Bytes of the token file that goes with the index.
const BIN_BYTES: usize = 64;

/// A `.idx` file beside a short `.bin`; what opens is read through.
pub fn index(folder: &Path, bytes: &[u8]) {
    let prefix = folder.join("corpus");
    std::fs::write(prefix.with_extension("idx"), bytes).expect("a writable folder");
    std::fs::write(prefix.with_extension("bin"), [7; BIN_BYTES]).expect("a writable folder");
    let Ok(corpus) = Corpus::open(&prefix) else { return };
    let indexed = corpus.indexed();
    let mut ids = Vec::new();
    for sequence in 0..indexed.sequences().min(100) {
        let _ = indexed.read_sequence(sequence, &mut ids);
    }
    for document in 0..indexed.documents().min(100) {
        let _ = indexed.document(document);
    }
}

/// A file of JSON lines, read for one key and for two.
pub fn json_lines(folder: &Path, bytes: &[u8]) {
    let path = folder.join("lines.jsonl");
    std::fs::write(&path, bytes).expect("a writable folder");
    let inputs = [Input::new(&path, Format::Given(InputKind::JsonLines))];
    for keys in [&["text"][..], &["text", "title"]] {
        let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        let _ = each_text(&inputs, &keys, &mut |_| true);
    }
}

/// A `tokenizer.json` where the bytes are text that begins with a brace, else a SentencePiece model; what
/// loads encodes and decodes a text.
pub fn tokenizer(bytes: &[u8]) {
    let loaded = match std::str::from_utf8(bytes) {
        Ok(text) if text.starts_with('{') => Tokenizer::parse("fuzzed", text),
        _ => Tokenizer::from_sentencepiece("fuzzed", bytes),
    };
    let Ok(tokenizer) = loaded else { return };
    let mut ids = Vec::new();
    if tokenizer.encoder().encode("Of 12 caf\u{e9}s,\n two  \u{4e2d} \u{1f600} remain.", &mut ids).is_ok() {
        let _ = tokenizer.decode(&ids);
        ids.iter().for_each(|&id| drop(tokenizer.token_text(id)));
    }
}
