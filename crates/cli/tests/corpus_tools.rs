//! `henge data` through the binary: corpora rearranged, and which documents a run reads when.

mod common;

use common::{Place, henge_command, test_data};
use henge_data::Corpus;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

/// Documents of rising length, all different.
fn documents(name: &str, count: usize) -> String {
    let document = |i: usize| json!({ "text": format!("{name} {i} tells of {i} things. ").repeat(1 + i % 7) });
    (0..count).map(|i| document(i).to_string() + "\n").collect()
}

fn prepare(place: &Place, name: &str, count: usize) {
    let file = format!("{name}.jsonl");
    place.write(&file, documents(name, count));
    place.succeed(&["data", "prepare", "--input", &file, "--tokenizer", "gpt2", "--append-eod", "--output", name]);
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn open(prefix: &Path) -> Arc<Corpus> {
    Corpus::open(prefix).expect("a corpus")
}

#[test]
fn parts_of_a_corpus_merge_to_its_bytes_and_never_onto_it() {
    let place = Place::new();
    prepare(&place, "books", 40);
    let split = place.succeed(&["data", "split", "books", "--ratio", "6,3,1", "--output", "cut/books", "--json"]);
    let documents: Vec<u64> =
        parsed(&split)["corpora"].as_array().expect("parts").iter().filter_map(|c| c["documents"].as_u64()).collect();
    assert_eq!(documents, [24, 12, 4]);
    let parts = ["cut/books_train", "cut/books_valid", "cut/books_test"];
    place.succeed(&[&["data", "merge"][..], &parts, &["--output", "whole"]].concat());
    for ending in [".bin", ".idx", ".json"] {
        let read = |name: &str| std::fs::read(place.path(&format!("{name}{ending}"))).expect("a file");
        assert!(read("books") == read("whole"), "whole{ending} differs");
    }
    let sound = place.succeed(&["data", "verify", "whole", parts[0], "--tokenizer", "gpt2", "--json"]);
    assert_eq!(parsed(&sound)["corpora"][1]["documents"], 24);
    for output in ["whole", "./cut/../whole"] {
        let said = place.fail(2, &["data", "merge", "books", "whole", "--output", output]);
        assert!(said.contains("is input and output; name another output"), "{said}");
    }
    place.succeed(&["data", "verify", "whole"]);
    let said = place.fail(2, &["data", "split", "books", "--ratio", "6,3", "--output", "x"]);
    assert!(said.contains("write three numbers, as in 969,30,1"), "{said}");
}

#[test]
fn what_is_wrong_inside_a_corpus_is_named() {
    let place = Place::new();
    prepare(&place, "books", 5);
    let said = place.fail(2, &["data", "verify", "books", "--vocab-size", "5000"]);
    assert!(said.contains("books.bin: token") && said.contains("beyond a vocabulary of 5000"), "{said}");
    let other = place.fail(2, &["data", "verify", "books", "--tokenizer", "p50k_base"]);
    assert!(other.contains("was prepared with tokenizer gpt2") && other.contains("not p50k_base"), "{other}");
    let mut bytes = std::fs::read(place.path("books.idx")).expect("the index");
    bytes[34] ^= 1; // the first length
    place.write("books.idx", bytes);
    let said = place.fail(2, &["data", "verify", "books"]);
    assert!(said.contains("books.idx: sequence 1 is said to begin at byte") && said.contains("at byte"), "{said}");
}

#[test]
fn raw_token_files_become_corpora() {
    let place = Place::new();
    let ids = [5u16, 6, 0, 7, 0, 8, 9, 9, 0];
    place.write("raw.ds", ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>());
    let said = place.fail(2, &["data", "import", "raw.ds", "--output", "raw"]);
    assert!(said.contains("name the token that ends a document"), "{said}");
    let printed = place.succeed(&["data", "import", "raw.ds", "--end-of-document", "0", "--output", "raw", "--json"]);
    assert_eq!(
        (&parsed(&printed)["corpora"][0]["documents"], &parsed(&printed)["corpora"][0]["tokens"]),
        (&json!(3), &json!(9))
    );
    let said = place.fail(2, &["data", "import", "raw.ds", "--token-bytes", "4", "--output", "raw"]);
    assert!(said.contains("18 bytes are no whole number of 4-byte ids"), "{said}");
}

#[test]
fn inspect_shows_lengths_vocabulary_and_text() {
    let place = Place::new();
    prepare(&place, "books", 20);
    let found = parsed(&place.succeed(&["data", "inspect", "books", "--samples", "2", "--json"]));
    assert_eq!(
        (&found["documents"], &found["dtype"], &found["end_of_document"]),
        (&json!(20), &json!("uint16"), &json!(50256))
    );
    assert_eq!(found["samples"][1]["sequence"], 10);
    assert!(found["samples"][1]["text"].as_str().expect("text").starts_with("books 10 tells of 10 things."));
    assert!(found["unigram_entropy"].as_f64().expect("a number") > 1.0);
    let text = place.succeed(&["data", "inspect", "books"]);
    assert!(text.contains("distinct ids, the largest 50256") && text.contains("sequence 0: \"books 0 tells"), "{text}");
}

#[test]
fn sentences_become_sequences() {
    let place = Place::new();
    place.write("a.jsonl", "{\"text\": \"One two. Three!\"}\n{\"text\": \"Four.\"}\n");
    let prepare = ["data", "prepare", "--input", "a.jsonl", "--tokenizer", "gpt2", "--output", "a", "--sentences"];
    let card = parsed(&place.succeed(&[&prepare[..], &["--json"]].concat()));
    assert_eq!(
        (&card["corpora"][0]["card"]["sequences"], &card["corpora"][0]["card"]["documents"]),
        (&json!(3), &json!(2))
    );
}

#[test]
fn two_runs_cannot_write_one_corpus() {
    let place = Place::new();
    place.write("a.txt", "some text");
    let arguments = |input| ["data", "prepare", "--input", input, "--tokenizer", "gpt2", "--output", "a"];
    let mut first = henge_command(&place, &arguments("-")).stdin(Stdio::piped()).spawn().expect("the binary starts");
    let lock = place.path("a.lock");
    while !lock.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let said = place.fail(2, &arguments("a.txt"));
    assert!(said.contains("is being written by another run (process"), "{said}");
    first.stdin.take().expect("its input").write_all(b"other text").expect("it reads");
    assert!(first.wait().expect("it ends").success());
    assert_eq!(open(&place.path("a")).indexed().tokens(), 2);
}

/// A run whose steps are asked for.
struct Asked<'a> {
    place: &'a Place,
    sets: Vec<String>,
}

impl Asked<'_> {
    fn ask(&self, question: &[&str]) -> Value {
        let mut arguments = vec!["data", question[0], "run.toml"];
        self.sets.iter().for_each(|set| arguments.extend(["--set", set]));
        arguments.extend(&question[1..]);
        arguments.push("--json");
        parsed(&self.place.succeed(&arguments))
    }

    fn step(&self, step: usize) -> Vec<Value> {
        self.ask(&["where", "--step", &step.to_string()])["samples"].as_array().expect("samples").clone()
    }

    /// The tokens of a sample, from the documents that `where` names.
    fn tokens(&self, sample: &Value) -> Vec<u32> {
        let corpus = open(&self.place.path(sample["corpus"].as_str().expect("a name")));
        let mut tokens = Vec::new();
        for piece in sample["pieces"].as_array().expect("pieces") {
            let number = |key: &str| piece[key].as_u64().expect("a number");
            let sequence = corpus.indexed().document(number("document")).expect("a document").start;
            let count = number("tokens") as usize;
            corpus.indexed().read_part(sequence, number("offset"), count, &mut tokens).expect("tokens");
        }
        tokens
    }
}

const RUN: &str = r#"
model = { layers = 1, hidden = 16, heads = 2, seq_len = 16, vocab_size = 50257 }
data = { train = ["books", { prefix = "web", weight = 0.5 }] }
layout = { data = 2 }
train = { steps = 7, global_batch = 8, micro_batch = 2, ramp_up = { start = 4, increment = 4, samples = 12 } }
"#;

/// What `where` names is what training reads: batches written from it give the same losses to the
/// last bit, in both orders, over stages and a growing batch.
#[test]
fn where_names_what_training_reads_and_when_turns_it_around() {
    let place = Place::new();
    prepare(&place, "books", 60);
    prepare(&place, "web", 50);
    prepare(&place, "late", 30);
    place.write("run.toml", RUN);
    let stages = "data.stages=[{ from = 22, train = ['late', { prefix = 'web', weight = 3 }] }]";
    for (case, sets) in [("formula", vec![]), ("megatron", vec!["data.order=megatron"]), ("stages", vec![stages])] {
        let asked = Asked { place: &place, sets: sets.iter().map(ToString::to_string).collect() };
        let steps: Vec<Vec<Value>> = (1..=7).map(|step| asked.step(step)).collect();
        let sizes: Vec<usize> = steps.iter().map(Vec::len).collect();
        assert_eq!(sizes, [4, 4, 4, 8, 8, 8, 8], "{case}");
        check_where(&asked, &steps);
        check_when(&asked, &steps);
        check_training(&asked, case, &steps);
    }
}

fn check_where(asked: &Asked<'_>, steps: &[Vec<Value>]) {
    let numbers = steps.iter().flatten().map(|sample| sample["sample"].as_u64().expect("a number"));
    assert!(numbers.eq(0..44), "every sample once, in order");
    let of_rank = asked.ask(&["where", "--step", "4", "--rank", "1"])["samples"].clone();
    assert_eq!(of_rank.as_array().expect("samples")[..], steps[3][4..], "the second replica reads the second half");
    let staged = !asked.sets.is_empty() && asked.sets[0].starts_with("data.stages");
    for (i, sample) in steps.iter().flatten().enumerate() {
        let late = sample["corpus"] == "late";
        assert!(!late || staged && i >= 22, "sample {i}");
        assert!(!(staged && i >= 22 && sample["corpus"] == "books"), "sample {i}");
    }
    let web = steps.iter().flatten().take(22).filter(|sample| sample["corpus"] == "web").count() as f64;
    assert!((web - 22.0 / 3.0).abs() < 1.5, "{web} of 22 samples at a weight of one third");
}

fn check_when(asked: &Asked<'_>, steps: &[Vec<Value>]) {
    let mut readers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (step, samples) in (1..).zip(steps) {
        for sample in samples.iter().filter(|sample| sample["corpus"] == "web") {
            for piece in sample["pieces"].as_array().expect("pieces") {
                let steps = readers.entry(piece["document"].as_u64().expect("a number")).or_default();
                if steps.last() != Some(&step) {
                    steps.push(step);
                }
            }
        }
    }
    for document in [0, 7, 33, 49] {
        let said = asked.ask(&["when", "--corpus", "web", "--document", &document.to_string()]);
        let found: Vec<u64> =
            said["steps"].as_array().expect("steps").iter().filter_map(|reading| reading["step"].as_u64()).collect();
        assert_eq!(found, readers.get(&document).cloned().unwrap_or_default(), "document {document}");
    }
}

fn check_training(asked: &Asked<'_>, case: &str, steps: &[Vec<Value>]) {
    let (place, own, given) = (asked.place, format!("run.dir={case}"), format!("run.dir={case}-given"));
    let mut arguments = vec!["train", "run.toml", "--set", &own];
    asked.sets.iter().for_each(|set| arguments.extend(["--set", set]));
    place.succeed(&arguments);
    let batch = |samples: &Vec<Value>| {
        let sequences: Vec<Vec<u32>> = samples.iter().map(|sample| asked.tokens(sample)).collect();
        let tokens: Vec<&[u32]> = sequences.iter().map(|s| &s[..16]).collect();
        let labels: Vec<&[u32]> = sequences.iter().map(|s| &s[1..]).collect();
        json!({ "tokens": tokens, "labels": labels })
    };
    place.write("given.json", json!({ "batches": steps.iter().map(batch).collect::<Vec<_>>() }).to_string());
    let run = RUN.lines().map(|line| match line {
        line if line.starts_with("data") => "data = { batches = \"given.json\" }".to_string(),
        line if line.starts_with("train") => "train = { steps = 7, micro_batch = 2 }".to_string(),
        line => line.to_string(),
    });
    place.write("given.toml", run.collect::<Vec<_>>().join("\n"));
    place.succeed(&["train", "given.toml", "--set", &given]);
    let losses = |dir: &str| place.steps(dir).iter().map(|line| line["loss"].clone()).collect::<Vec<_>>();
    assert_eq!(losses(case), losses(&format!("{case}-given")), "{case}");
    assert_eq!(losses(case).len(), 7);
}

/// The samples that megatron-core 0.16.1 served, through the run file.
#[test]
fn megatrons_order_is_megatrons() {
    let Some(golden) = test_data("data/megatron-gptdataset-golden/golden.json") else { return };
    let Some(corpora) = test_data("data/megatron-bin-idx/openwebtext-gpt2") else { return };
    let golden = parsed(&std::fs::read_to_string(golden).expect("golden.json"));
    let place = Place::new();
    let prefix = corpora.join("meg-gpt2-openwebtext_text_document").display().to_string();
    place.write(
        "run.toml",
        format!(
            r#"
run = {{ seed = 1234 }}
model = {{ layers = 1, hidden = 16, heads = 2, seq_len = 256, vocab_size = 5000 }}
data = {{ train = ["{prefix}"], split = [949, 50, 1], order = "megatron", order_samples = 8000 }}
train = {{ steps = 400, global_batch = 20, micro_batch = 4 }}
"#
        ),
    );
    let asked = Asked { place: &place, sets: Vec::new() };
    let samples = golden["train"]["samples"].as_object().expect("samples");
    // The order is made for 8,000 samples; what fills its last epoch beyond them no run reads.
    let numbered = samples.iter().map(|(number, sample)| (number.parse::<usize>().expect("a number"), sample));
    let read: Vec<_> = numbered.filter(|(number, _)| *number < 8000).collect();
    assert!(read.len() >= 3, "{} samples to compare", read.len());
    for (number, sample) in read {
        let tokens = asked.tokens(&asked.step(number / 20 + 1)[number % 20]);
        let head =
            sample["tokens_head"].as_array().expect("tokens").iter().map(|t| t.as_u64().expect("a token") as u32);
        assert!(head.eq(tokens[..16].iter().copied()), "sample {number}");
        let sum: u64 = tokens[..256].iter().map(|&token| u64::from(token)).sum();
        assert_eq!(Some(sum), sample["tokens_sum"].as_u64(), "sample {number}");
    }
    let said = place.fail(2, &["data", "where", "run.toml", "--set", "train.steps=401", "--step", "1"]);
    assert!(said.contains("`data.order_samples = 8000`: the steps of this run take 8020 samples"), "{said}");
}

#[test]
fn questions_without_an_answer_say_why() {
    let place = Place::new();
    prepare(&place, "books", 60);
    prepare(&place, "web", 50);
    place.write("run.toml", RUN);
    place.write("given.json", r#"{"batches": [{"tokens": [[1, 2]], "labels": [[1, 2]]}]}"#);
    let said = |arguments: &[&str]| place.fail(2, &[&["data"], arguments].concat());
    let cases: &[(&[&str], &str)] = &[
        (&["where", "run.toml", "--step", "0"], "the run has steps 1 to 7"),
        (&["where", "run.toml", "--step", "8"], "the run has steps 1 to 7"),
        (&["where", "run.toml", "--step", "1", "--rank", "2"], "the layout has ranks 0 to 1"),
        (&["when", "run.toml", "--document", "1"], "several corpora; name one by --corpus: books, web"),
        (&["when", "run.toml", "--document", "1", "--corpus", "wed"], "the run's corpora are books, web"),
        (&["when", "run.toml", "--document", "50", "--corpus", "web"], "its documents are 0 to 49"),
    ];
    for (arguments, words) in cases {
        assert!(said(arguments).contains(words), "{arguments:?}: {}", said(arguments));
    }
    let given = "[data]\nbatches = \"given.json\"\n[train]\nsteps = 1\nmicro_batch = 1\n";
    let model = RUN.lines().find(|line| line.starts_with("model")).expect("a model");
    place.write("given.toml", format!("{model}\n{given}"));
    let given = said(&["where", "given.toml", "--step", "1"]);
    assert!(given.contains("given.toml:3") && given.contains("there are no documents to name"), "{given}");
}
