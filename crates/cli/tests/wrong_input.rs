//! What a person gets wrong: status 2, one message with place and way out, nothing half written.

mod common;

use common::Place;

const RUN: &str = r#"
run = { dir = "run" }
model = { layers = 2, hidden = 32, heads = 4, seq_len = 16, vocab_size = 50257 }
data = { train = ["corpus"] }
train = { steps = 2, global_batch = 4, micro_batch = 2 }
"#;

fn prepared() -> Place {
    let place = Place::new();
    place.write("text.txt", "The quick brown fox jumps over the lazy dog. ".repeat(100));
    place.succeed(&["data", "prepare", "--input", "text.txt", "--tokenizer", "gpt2", "--output", "corpus"]);
    place.write("run.toml", RUN);
    place
}

/// Every refusal names what is expected, and leaves no run folder.
fn refused(place: &Place, arguments: &[&str], words: &[&str]) {
    let mut command = vec!["train", "run.toml"];
    command.extend(arguments);
    let said = place.fail(2, &command);
    for word in words {
        assert!(said.contains(word), "{arguments:?}\n  said  {said}\n  wanted {word}");
    }
    assert_eq!(said.matches("error:").count(), 1, "one message: {said}");
    assert!(!place.path("run").exists(), "{arguments:?} left a run folder");
}

#[test]
fn impossible_runs_are_refused_before_any_work() {
    let place = prepared();
    let cases: &[(&str, &[&str])] = &[
        ("train.step=3", &["--set", "did you mean `train.steps`"]),
        ("layout.tensor=3", &["model.heads = 4 is not divisible"]),
        ("layout.pipeline=3", &["2 is not divisible by layout.pipeline"]),
        ("layout.chunks=2", &["one chunk a rank", "interleaved"]),
        ("train.global_batch=5", &["5 is not divisible by train.micro_batch"]),
        ("model.kv_heads=2", &["gpt has no grouped queries"]),
        ("model.vocab_size=200", &["run.toml:4", "is not below model.vocab_size = 200", "set it to at least"]),
        ("model.seq_len=4000", &["corpus", "token"]),
        ("data.train=[\"nowhere\"]", &["nowhere"]),
        ("model.hidden=1073741824", &["this machine has", "GiB"]),
        ("model.dropout=0.999999999999", &["a rate from 0 to below 1"]),
        (
            "train.ramp_up={ start = 3, increment = 1, samples = 9 }",
            &["`train.ramp_up.start = 3`", "3 is not divisible"],
        ),
        (
            "layout={ pipeline = 2, schedule = \"interleaved\", chunks = 1, data = 2 }",
            &["1 microbatches are not divisible"],
        ),
        ("data.tokenizer=/nonexistent", &["/nonexistent"]),
        ("data.split=[1,0,0]", &[]),
    ];
    for (key, words) in cases.iter().filter(|(_, words)| !words.is_empty()) {
        refused(&place, &["--set", key], words);
    }
    refused(
        &place,
        &["--set", "layout.tensor=4", "--set", "model.ffn_hidden=130"],
        &["model.ffn_hidden = 130 is not divisible"],
    );
    refused(&place, &["--resume", "nowhere"], &["nowhere"]);
    refused(&place, &["--dump-logits", "nowhere/logits.json"], &["--dump-logits", "nowhere"]);
    place.succeed(&["train", "run.toml", "--set", "data.split=[1,0,0]"]);
}

#[test]
fn a_missing_or_broken_run_file_names_itself() {
    let place = Place::new();
    let said = place.fail(2, &["train", "absent.toml"]);
    assert!(said.contains("absent.toml"), "{said}");
    place.write("broken.toml", "[model]\nlayers = \n");
    let said = place.fail(2, &["train", "broken.toml"]);
    assert!(said.contains("broken.toml:2"), "{said}");
}

#[test]
fn damaged_corpora_name_file_and_place() {
    let place = prepared();
    let bin = std::fs::read(place.path("corpus.bin")).expect("corpus.bin");
    std::fs::write(place.path("corpus.bin"), &bin[..bin.len() - 7]).expect("written");
    refused(&place, &[], &["corpus.bin"]);
    std::fs::write(place.path("corpus.bin"), &bin).expect("written");
    let idx = std::fs::read(place.path("corpus.idx")).expect("corpus.idx");
    for (damage, bytes) in
        [("cut", idx[..idx.len() / 2].to_vec()), ("magic", [b"X", &idx[1..]].concat()), ("empty", vec![])]
    {
        std::fs::write(place.path("corpus.idx"), bytes).expect("written");
        let said = place.fail(2, &["train", "run.toml"]);
        assert!(said.contains("corpus.idx"), "{damage}: {said}");
    }
}

#[test]
fn bad_text_is_named_by_line_and_nothing_is_left() {
    let cases: &[(&str, &[u8], &[&str])] = &[
        ("bad.txt", b"fine\nalso fine\nnot \xff fine\n", &["bad.txt", "3"]),
        ("bad.jsonl", b"{\"text\": \"fine\"}\n{\"text\": \n", &["bad.jsonl", "2"]),
        ("key.jsonl", b"{\"text\": \"fine\"}\n{\"body\": \"x\"}\n", &["key.jsonl", "2", "text"]),
        ("empty.txt", b"", &["empty"]),
    ];
    for (name, bytes, words) in cases {
        let place = Place::new();
        place.write(name, bytes);
        let said =
            place.fail(2, &["data", "prepare", "--input", name, "--tokenizer", "gpt2", "--output", "out/corpus"]);
        for word in *words {
            assert!(said.contains(word), "{name}: {said}");
        }
        for ending in ["bin", "idx", "json"] {
            assert!(!place.path(&format!("out/corpus.{ending}")).exists(), "{name} left out/corpus.{ending}");
        }
    }
}

#[test]
fn given_batches_are_checked_whole() {
    let place = Place::new();
    let run = RUN
        .replace("data = { train = [\"corpus\"] }", "data = { batches = \"given.json\" }")
        .replace("50257", "10")
        .replace("global_batch = 4, ", "");
    place.write("run.toml", run);
    let cases = [
        (r#"{"batches": [{"tokens": [[1, 99]], "labels": [[1, 2]]}]}"#, "token 99 at batch 0, sequence 0"),
        (r#"{"batches": [{"tokens": [[1, 2]], "labels": [[1, 99]]}]}"#, "token 99"),
        (r#"{"batches": [{"tokens": [[1, 2]], "labels": [[1]]}]}"#, "2 tokens and 1 labels"),
        (r#"{"batches": []}"#, "no batch"),
        (r#"{"batches": [{"tokens": [[1, 2]]}]}"#, "labels"),
        (r#"{"batches": [{"tokens": [[1, 2]], "labels": [[1, 2]]}]}"#, "1 is not divisible by train.micro_batch"),
    ];
    for (given, words) in cases {
        place.write("given.json", given);
        refused(&place, &[], &[words]);
    }
    place.write("given.json", r#"{"batches": [{"tokens": [[1, 2], [3, 4]], "labels": [[1, 2], [3, 4]]}]}"#);
    refused(&place, &[], &["train.steps = 2 but there are 1 batches"]);
}

#[test]
fn schedules_that_do_not_exist_are_refused() {
    let place = Place::new();
    let schedule = |extra: &[&str]| {
        let mut arguments = vec!["schedule", "--pipeline", "4"];
        arguments.extend(extra);
        place.fail(2, &arguments)
    };
    assert!(schedule(&["--kind", "zigzag", "--microbatches", "8"]).contains("zigzag"));
    let said = schedule(&["--kind", "interleaved", "--chunks", "2", "--microbatches", "6"]);
    assert!(said.contains("6 is not divisible by 4"), "{said}");
}
