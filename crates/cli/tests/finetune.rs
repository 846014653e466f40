//! Fine-tuning through the binary: tasks small enough to be learnt wholly, over layouts, from
//! checkpoints and foreign weights, and what is refused.

mod common;

use common::{Place, number, relative, test_data};
use henge_eval::downstream::{PairCut, PairTask, consecutive_pairs};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const NAMES: [&str; 12] =
    ["anna", "bert", "carl", "dora", "emil", "fred", "gina", "hans", "ida", "jane", "karl", "lena"];
const GOOD: [&str; 4] = ["wins", "smiles", "sings", "dances"];
const BAD: [&str; 4] = ["loses", "cries", "shouts", "falls"];
const OTHER: [&str; 14] =
    ["today", "here", "who", "when", "what", ".", "?", "in", "opened", "it", "closed", "gold", "lead", "tin"];

/// A WordPiece tokenizer of the words of these tests, and years.
fn tokenizer(place: &Place) -> usize {
    let years: Vec<String> = (1880..1900).map(|year| year.to_string()).collect();
    let words = NAMES.iter().chain(&GOOD).chain(&BAD).chain(&OTHER).copied().chain(years.iter().map(String::as_str));
    let pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].into_iter().chain(words);
    let pieces: Vec<&str> = pieces.collect();
    place.write("vocab.txt", pieces.join("\n"));
    pieces.len()
}

/// A small encoder whose weights are drawn, on one task.
fn write_run(place: &Place, task: &str, more: &str) {
    let vocabulary = tokenizer(place);
    place.write(
        "run.toml",
        format!(
            r#"
run = {{ dir = "run", threads = 2 }}
data = {{ tokenizer = "vocab.txt" }}
task = {{ {task} }}
[model]
arch = "bert"
layers = 2
hidden = 32
heads = 4
seq_len = 48
vocab_size = {vocabulary}
init_std = 0.1
{more}
"#
        ),
    );
}

/// Pairs whose second sentence is of a good or of a bad deed: the first half of the names to
/// train on, the other to be held out.
fn pairs(place: &Place) {
    let table = |firsts: &[&str]| {
        let mut rows = vec!["id\tfirst\tsecond\tis_consecutive".to_string()];
        for (first, second) in firsts.iter().flat_map(|a| NAMES.iter().map(move |b| (a, b))) {
            let deed = rows.len();
            let (word, label) = if deed % 2 == 0 { (GOOD[deed % 4], 1) } else { (BAD[deed % 4], 0) };
            rows.push(format!("{deed}\t{first} is here today .\t{second} {word} .\t{label}"));
        }
        rows.join("\n") + "\n"
    };
    place.write("train.tsv", table(&NAMES[..6]));
    place.write("dev.tsv", table(&NAMES[6..9]));
}

const PAIRS: &str = r#"name = "consecutive", train = "train.tsv", valid = ["dev.tsv"], epochs = 20"#;
const RECIPE: &str = "[train]\nglobal_batch = 8\nmicro_batch = 4\noptimizer = { lr = 3e-3 }\n";

fn results(place: &Place) -> Value {
    serde_json::from_str(&std::fs::read_to_string(place.path("run/results.json")).unwrap()).unwrap()
}

#[test]
fn a_separable_task_is_learnt_wholly_by_every_seed() {
    let place = Place::new();
    pairs(&place);
    write_run(&place, &format!("{PAIRS}, seeds = 3"), RECIPE);
    let said = place.succeed(&["finetune", "run.toml"]);
    let results = results(&place);
    assert_eq!(results["sets"]["dev.tsv"]["median"], 1.0, "{said}");
    assert_eq!(results["sets"]["dev.tsv"]["ensemble"]["accuracy"], 1.0);
    // 72 pairs, twenty times over, in batches of 8; the protocol warms up over 6.5% of them.
    assert_eq!((&results["protocol"]["steps"], &results["protocol"]["warmup_steps"]), (&json!(180), &json!(11)));
    let seeds: Vec<u64> = results["seeds"].as_array().unwrap().iter().map(|s| s["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [1234, 1235, 1236]);
    assert_eq!(said.lines().filter(|line| line.starts_with("seed ") && line.contains("accuracy 1.0000")).count(), 3);
    assert!(said.contains("median of 3 seeds: dev.tsv 1.0000"), "{said}");
    let losses = |seed: &str| -> Vec<f64> { place.steps(seed).iter().map(|step| number(step, "loss")).collect() };
    assert_ne!(losses("run/seed-1234"), losses("run/seed-1235"));
    let config = std::fs::read_to_string(place.path("run/seed-1234/config.toml")).unwrap();
    assert!(config.contains("decay = \"linear\"  # the protocol of qqp"), "{config}");
    // What is done is not done again, and scores the same.
    let again = place.succeed(&["finetune", "run.toml"]);
    assert_eq!(again, said);
}

/// Writes a task's files.
type Files = fn(&Place);

/// With dropout, the head's included, and sequences of many lengths.
#[test]
fn every_layout_takes_the_same_steps() {
    let tasks: [(&str, Files, &str, usize); 3] = [
        ("pairs", pairs, r#"name = "consecutive", train = "train.tsv", valid = ["dev.tsv"], epochs = 2"#, 18),
        ("race", race, r#"name = "race", train = "race/train", valid = ["race/dev"], epochs = 3"#, 12),
        ("spans", spans, r#"name = "squad1", train = "train.json", valid = ["dev.json"], epochs = 3, length = 32"#, 4),
    ];
    for (name, files, task, steps) in tasks {
        let run = |layout: &str| -> (Vec<f64>, Value) {
            let place = Place::new();
            files(&place);
            write_run(&place, &format!("{task}, seeds = 1"), &format!("{RECIPE}[layout]\n{layout}\n"));
            place.succeed(&["finetune", "run.toml", "--set", "run.threads=8"]);
            let losses = place.steps("run/seed-1234").iter().map(|step| number(step, "loss")).collect();
            (losses, results(&place)["sets"].clone())
        };
        let (reference, sets) = run("");
        assert_eq!(reference.len(), steps, "{name}");
        for layout in ["tensor = 2", "pipeline = 2", "data = 2", "tensor = 2\npipeline = 2\ndata = 2"] {
            let (losses, scored) = run(layout);
            for (step, (got, want)) in losses.iter().zip(&reference).enumerate() {
                let off = relative(*got, *want);
                assert!(off < 1e-5, "{name}, {layout}, step {}: {got} is off {want} by {off:e}", step + 1);
            }
            assert_eq!(scored, sets, "{name}, {layout}");
        }
    }
}

/// What a run said of its last weights is what they give alone, at any layout.
#[test]
fn a_tuned_checkpoint_is_scored_alone() {
    let recipe = "[train]\nglobal_batch = 8\nmicro_batch = 4\noptimizer = { lr = 3e-3 }\n";
    let tasks: [(&str, Files, &str, &str); 3] = [
        ("glue", pairs, r#"name = "consecutive", train = "train.tsv", valid = ["dev.tsv"], epochs = 2"#, "dev.tsv"),
        ("race", race, r#"name = "race", train = "race/train", valid = ["race/dev"], epochs = 4"#, "race/dev"),
        (
            "squad",
            spans,
            r#"name = "squad1", train = "train.json", valid = ["dev.json"], epochs = 20, length = 32"#,
            "dev.json",
        ),
    ];
    for (command, files, task, data) in tasks {
        let place = Place::new();
        files(&place);
        write_run(&place, &format!("{task}, seeds = 1"), recipe);
        place.succeed(&["finetune", "run.toml"]);
        let said = results(&place)["seeds"][0]["scores"][data].clone();
        for layout in ["t=1", "t=2,p=2,d=2"] {
            let alone =
                ["eval", command, "--checkpoint", "run/seed-1234", "--data", data, "--json", "--layout", layout];
            let alone: Value = serde_json::from_str(&place.succeed(&alone)).unwrap();
            for (key, value) in said.as_object().unwrap() {
                assert_eq!(&alone[key], value, "{command}, {layout}, {key}");
            }
            assert!(alone["protocol"].is_string() && alone["length"].is_number(), "{alone}");
        }
        let other = if command == "glue" { "race" } else { "glue" };
        let refused = place.fail(2, &["eval", other, "--checkpoint", "run/seed-1234", "--data", data]);
        assert!(refused.contains(&format!("use `henge eval {command}`")), "{refused}");
        let far = ["eval", command, "--checkpoint", "run/seed-1234", "--data", data, "--length", "99"];
        assert!(place.fail(2, &far).contains("--length 99: the model reads 48 tokens"));
    }
}

/// A tuned encoder is where another task begins: its body is read, its head is not.
#[test]
fn a_checkpoint_is_gone_on_with_under_another_head() {
    let place = Place::new();
    pairs(&place);
    write_run(&place, &format!("{PAIRS}, seeds = 1"), RECIPE);
    place.succeed(&["finetune", "run.toml", "--set", "task.epochs=2"]);
    let mnli = "index\tsentence1\tsentence2\tgold_label\n0\tanna wins .\tbert wins .\tneutral\n\
                1\tanna wins .\tbert loses .\tcontradiction\n";
    place.write("mnli.tsv", mnli);
    let next = r#"
run = { dir = "next" }
task = { name = "mnli", train = "mnli.tsv", valid = ["mnli.tsv"], seeds = 1 }
train = { global_batch = 2, micro_batch = 2, steps = 2 }
init = { from = "run/seed-1234" }
"#;
    place.write("next.toml", next);
    let told: Value = serde_json::from_str(&place.succeed(&["finetune", "next.toml", "--json"])).unwrap();
    assert_eq!((&told["task"], &told["seeds"][0]["scores"]["mnli.tsv"]["examples"]), (&json!("mnli"), &json!(2)));
    let config = std::fs::read_to_string(place.path("next/seed-1234/config.toml")).unwrap();
    assert!(config.contains("hidden = 32  # run/seed-1234"), "{config}");
}

/// RACE's folders: the right option is the golden one.
fn race(place: &Place) {
    for (part, names) in [("train", &NAMES[..8]), ("dev", &NAMES[8..])] {
        for (number, name) in names.iter().enumerate() {
            let label = number % 4;
            let letter = ["A", "B", "C", "D"][label];
            let options: Vec<String> =
                (0..4).map(|o| format!("{name} {}", if o == label { "gold" } else { "lead" })).collect();
            let paper = json!({"id": format!("{number}.txt"), "article": "anna opened it today .",
                               "questions": ["what is here ?"], "options": [options],
                               "answers": [letter]});
            place.write(&format!("race/{part}/middle/{number}.txt"), paper.to_string());
        }
    }
}

#[test]
fn options_are_chosen_among_four() {
    let place = Place::new();
    race(&place);
    write_run(
        &place,
        r#"name = "race", train = "race/train", valid = ["race/dev"], seeds = 2, epochs = 40"#,
        "[train]\nglobal_batch = 16\nmicro_batch = 4\noptimizer = { lr = 3e-3 }\n[layout]\ndata = 2\n",
    );
    let said = place.succeed(&["finetune", "run.toml"]);
    let results = results(&place);
    assert_eq!(results["sets"]["race/dev"]["median"], 1.0, "{said}");
    assert_eq!(results["seeds"][0]["scores"]["race/dev"]["middle"]["examples"], 4);
}

fn squad(names: &[&str], answer: impl Fn(usize) -> String) -> String {
    let paragraphs: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let context = format!("{name} opened it in {} . {name} smiles .", 1880 + number);
            let start = context.find("18").unwrap();
            let answers = json!([{"text": answer(number), "answer_start": start}]);
            let qas = json!([{"id": format!("q{number}"), "question": "when ?", "answers": answers}]);
            json!({"context": context, "qas": qas})
        })
        .collect();
    json!({"version": "1.1", "data": [{"title": "x", "paragraphs": paragraphs}]}).to_string()
}

fn spans(place: &Place) {
    let year = |number: usize| (1880 + number).to_string();
    place.write("train.json", squad(&NAMES, year));
    place.write("dev.json", squad(&NAMES[3..7], year));
}

#[test]
fn spans_are_found() {
    let place = Place::new();
    spans(&place);
    let task = r#"name = "squad1", train = "train.json", valid = ["dev.json"], seeds = 2, epochs = 60, length = 32"#;
    write_run(&place, task, "[train]\nglobal_batch = 4\nmicro_batch = 4\noptimizer = { lr = 3e-3 }\n");
    let said = place.succeed(&["finetune", "run.toml"]);
    let results = results(&place);
    let dev = &results["seeds"][0]["scores"]["dev.json"];
    assert_eq!((&dev["exact_match"], &dev["questions"]), (&json!(100.0), &json!(4)), "{said}");
    assert_eq!(results["sets"]["dev.json"]["ensemble"]["f1"], 100.0);
    // No pooler was trained for spans: pairs go on from these weights with one that is drawn.
    pairs(&place);
    let begin = "run/seed-1235";
    place.write("pairs.toml", format!("task = {{ {PAIRS}, seeds = 1 }}\ninit = {{ from = \"{begin}\" }}\n{RECIPE}"));
    place.succeed(&["finetune", "pairs.toml", "--set", "run.dir=pairs", "--set", "task.epochs=1"]);
    assert_eq!(place.steps("pairs/seed-1234").len(), 9);
}

#[test]
fn wrong_inputs_are_refused_with_their_place() {
    let place = Place::new();
    pairs(&place);
    write_run(&place, &format!("{PAIRS}, seeds = 1"), RECIPE);
    let refused = |arguments: &[&str], expected: &[&str]| {
        let said = place.fail(2, &[&["finetune", "run.toml"], arguments].concat());
        for words in expected {
            assert!(said.contains(words), "{arguments:?}: `{words}` is not in: {said}");
        }
    };
    place.write("no-label.tsv", "id\tfirst\tsecond\n1\tanna .\tbert .\n");
    refused(&["--set", "task.train=no-label.tsv"], &["no-label.tsv:1", "is_consecutive"]);
    place.write("bad-label.tsv", "id\tfirst\tsecond\tis_consecutive\n1\tanna .\tbert .\t1\n2\tida .\tjane .\tmaybe\n");
    refused(&["--set", "task.valid=[\"bad-label.tsv\"]"], &["bad-label.tsv:3", "maybe", "expected 0 or 1"]);
    refused(&["--set", "task.train=nowhere.tsv"], &["nowhere.tsv"]);
    refused(&["--set", "model.vocab_size=50"], &["vocab.txt", "vocabulary of 50", "do not belong together"]);
    refused(&["--set", "model.arch=gpt"], &["task.name", "asks for an encoder"]);
    refused(&["--set", "task.name=mlni"], &["`mlni` is not a task; choose one of mnli"]);
    refused(&["--set", "task.valid=[]"], &["task.valid names no file"]);
    refused(&["--set", "task.length=64"], &["task.length", "model.seq_len = 48"]);
    refused(&["--set", "train.steps=3"], &["train.steps (--set)", "task.epochs (run.toml:4)", "remove one"]);
    place.write("wrong.json", squad(&NAMES[..2], |number| (1881 + number).to_string()));
    let spans = ["--set", "task.name=squad1", "--set", "task.train=wrong.json"];
    refused(&spans, &["wrong.json:1", "question q0", "does not stand at character"]);
    place.write("no-answers.json", squad(&NAMES[..2], |n| (1880 + n).to_string()).replace("\"answers\"", "\"answer\""));
    let spans = ["--set", "task.name=squad1", "--set", "task.train=no-answers.json"];
    refused(&spans, &["no-answers.json:1", "missing field `answers`", "give a file in SQuAD's form"]);
    race(&place);
    let papers = ["--set", "task.name=race", "--set", "task.train=race/train", "--set", "task.valid=[\"papers\"]"];
    let paper = std::fs::read_to_string(place.path("race/dev/middle/0.txt")).unwrap();
    let cases = [
        ("\"A\"", "\"E\"", "question 1: its answer is \"E\"; expected A, B, C or D"),
        ("\"article\"", "\"text\"", "missing field `article`"),
        ("\"answers\"", "\"keys\"", "missing field `answers`"),
    ];
    for (from, to, expected) in cases {
        place.write("papers/middle/0.txt", paper.replace(from, to));
        refused(&papers, &["papers/middle/0.txt:1", expected]);
    }
    assert!(!place.path("run").exists(), "nothing is written before every check is done");
    let said = place.fail(2, &["train", "run.toml"]);
    assert!(said.contains("use `henge finetune run.toml`"), "{said}");
}

/// MiniLM's folder, where one is named.
fn minilm() -> Option<PathBuf> {
    let folder = std::env::var_os("HENGE_TEST_MINILM").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: HENGE_TEST_MINILM names no folder of all-MiniLM-L6-v2 (config.json, model.safetensors)");
    }
    folder
}

fn cut_pairs(place: &Place, folder: &Path) {
    let text = std::fs::read_to_string(folder.join("wiki.valid.tokens")).unwrap();
    let cut = PairCut { training: 2000, held_out: 500, seed: 1234 };
    for (pairs, name) in consecutive_pairs(&text, cut).unwrap().iter().zip(["train.tsv", "dev.tsv"]) {
        PairTask::consecutive().write(&place.path(name), pairs).unwrap();
    }
}

/// Sentences of WikiText103's validation set: 2,000 pairs to learn from, 500 held out.
#[test]
fn minilm_learns_whether_sentences_are_consecutive() {
    let (Some(from), Some(text)) = (minilm(), test_data("data/wikitext103")) else { return };
    let place = Place::new();
    cut_pairs(&place, &text);
    let run = format!(
        r#"
run = {{ dir = "run" }}
task = {{ name = "consecutive", train = "train.tsv", valid = ["dev.tsv"], seeds = 1, epochs = 1, length = 64 }}
train = {{ global_batch = 16, micro_batch = 16, precision = "bf16", optimizer = {{ lr = 1e-4 }} }}
init = {{ from = "{}" }}
"#,
        from.display()
    );
    place.write("run.toml", run);
    let said = place.succeed(&["finetune", "run.toml"]);
    let median = results(&place)["sets"]["dev.tsv"]["median"].as_f64().unwrap();
    eprintln!("MiniLM on 500 held-out pairs: {median:.4}");
    assert!(median >= 0.65, "{said}");
}
