//! Cleaning, Parquet and SentencePiece through the binary.

mod common;

use common::Place;
use serde_json::{Value, json};

/// Sentences of made-up words: texts of different seeds share next to nothing.
fn made_up(seed: u64, words: u64) -> String {
    let letter = |i: u64| char::from(b'a' + (henge_random::mix(seed, i) % 26) as u8);
    (0..words).map(|word| (0..7).map(|i| letter(8 * word + i)).chain([' ']).collect::<String>()).collect()
}

fn lines(texts: &[String]) -> String {
    texts.iter().enumerate().map(|(id, text)| format!("{}\n", json!({"id": id, "text": text}))).collect()
}

#[test]
fn cleaning_says_what_it_dropped_and_its_output_is_prepared() {
    let place = Place::new();
    let secret = made_up(99, 20);
    let sentences = |seed: u64| (0..15).map(|i| made_up(seed + i, 10) + "end. ").collect::<String>();
    let held = format!("{}{secret}. {}", sentences(300), sentences(400));
    let texts = [made_up(1, 100), "too short".into(), made_up(1, 100).replacen('a', "b", 1), held, made_up(5, 100)];
    place.write("in.jsonl", lines(&texts));
    place.write("evaluation.jsonl", format!("{}\n", json!({"question": secret, "answers": ["none"]})));
    let arguments = ["data", "clean", "--input", "in.jsonl", "--language", "all", "--against", "evaluation.jsonl"];
    let report = place.succeed(&[&arguments[..], &["--output", "clean.jsonl.gz", "--json"]].concat());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["documents"], &report["cut"], &report["repaired"]), (&json!(5), &json!(1), &json!(0)));
    for (reason, line) in [("too_short", 2), ("near_duplicate", 3)] {
        let dropped = &report["dropped"][reason];
        assert_eq!(dropped["documents"], 1, "{report}");
        assert_eq!(dropped["examples"][0]["document"], format!("in.jsonl:{line}"), "{report}");
    }
    let stored = std::fs::read(place.path("clean.jsonl.gz.report.json")).expect("the report");
    assert_eq!(serde_json::from_slice::<Value>(&stored).expect("JSON"), report);
    let words = place.succeed(&[&arguments[..], &["--output", "again.jsonl", "--workers", "1"]].concat());
    assert!(words.contains("1 dropped: near-duplicates\n    in.jsonl:3 (0."), "{words}");
    let prepare = ["data", "prepare", "--tokenizer", "gpt2", "--json", "--input"];
    let counts = |input: &str, output: &str| {
        let made = place.succeed(&[&prepare[..], &[input, "--output", output]].concat());
        serde_json::from_str::<Value>(&made).expect("JSON")["corpora"][0]["card"]["documents"].clone()
    };
    assert_eq!(counts("clean.jsonl.gz", "packed"), report["written"]);
    assert_eq!(counts("again.jsonl", "plain"), report["written"]);
}

#[test]
fn wrong_cleaning_requests_are_refused() {
    let place = Place::new();
    place.write("in.jsonl", lines(&[made_up(1, 100)]));
    place.write("a.txt", "text");
    for (more, expected) in [
        (&["--jaccard", "7"][..], "--jaccard 7: give a number above 0 and up to 1, or off"),
        (&["--bands", "0"], "--bands 0 --rows 5: give 1 to 1024 hashes in all"),
        (&["--language", "english"], "no language \"english\" is told apart; give one of"),
        (&["--against", "a.txt"], "no text of 8 words or more"),
        (&["--against", "in.jsonl", "--ngram", "3"], "shorter runs than 8 words occur by chance"),
        (&["--json-key", "body"], "in.jsonl:1: the object has no key \"body\""),
        (&["--input", "a.txt"], "a.txt is plain text"),
    ] {
        let words =
            place.fail(2, &[&["data", "clean", "--input", "in.jsonl", "--output", "out.jsonl"][..], more].concat());
        assert!(words.contains(expected), "{words}");
        assert!(!place.path("out.jsonl").exists() && !place.path("out.jsonl.tmp").exists());
    }
}

#[test]
fn a_sentencepiece_model_prepares_and_shows_a_corpus() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/tests/sentencepiece/llama.model");
    let place = Place::new();
    place.write("in.jsonl", lines(&["The king and the queen.".into(), "Hello, world!".into()]));
    let arguments = ["data", "prepare", "--input", "in.jsonl", "--tokenizer", model, "--append-eod", "--json"];
    let made = place.succeed(&[&arguments[..], &["--output", "corpus"]].concat());
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let card = &made["corpora"][0]["card"];
    assert_eq!((&card["documents"], &card["end_of_document"]), (&json!(2), &json!(2)));
    let golden = std::fs::read(model.replace(".model", ".json")).expect("the golden file");
    let golden: Vec<Value> = serde_json::from_slice(&golden).expect("JSON");
    let hello = golden.iter().find(|case| case["text"] == "Hello, world!").expect("the case");
    let bytes = std::fs::read(place.path("corpus.bin")).expect("the tokens");
    let ids: Vec<u64> = bytes.chunks(2).map(|pair| u64::from(u16::from_le_bytes([pair[0], pair[1]]))).collect();
    let expected: Vec<u64> = hello["ids"].as_array().expect("ids").iter().filter_map(Value::as_u64).collect();
    assert_eq!(ids[ids.len() - expected.len() - 1..ids.len() - 1], expected);
}

#[test]
fn a_damaged_parquet_file_is_named() {
    let place = Place::new();
    place.write("a.parquet", "PAR1 and no more");
    let arguments = ["data", "prepare", "--input", "a.parquet", "--tokenizer", "gpt2", "--output", "corpus"];
    let words = place.fail(2, &arguments);
    assert!(words.contains("a.parquet: cannot be read as Parquet"), "{words}");
    assert!(!place.path("corpus.bin").exists());
}
