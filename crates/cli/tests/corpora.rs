//! Real text through the binary: token counts, Megatron's bytes, and the same model whatever
//! the layout.

mod common;

use common::{Place, number, relative, test_data};

#[test]
fn tinyshakespeare_has_its_known_number_of_tokens() {
    let Some(text) = test_data("data/tinyshakespeare/input.txt") else { return };
    let place = Place::new();
    let text = text.display().to_string();
    place.succeed(&["data", "prepare", "--input", &text, "--tokenizer", "gpt2", "--output", "corpus"]);
    let report = place.succeed(&["data", "inspect", "corpus", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["tokens"], 338_025);
}

#[test]
fn openwebtext_is_megatrons_byte_for_byte() {
    let Some(folder) = test_data("data/megatron-bin-idx/openwebtext-gpt2") else { return };
    let find = |ending: &str| {
        let files = std::fs::read_dir(&folder).expect("the folder").map(|file| file.expect("a file").path());
        let mut found: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
        found.sort();
        found.pop().unwrap_or_else(|| panic!("no {ending} in {}", folder.display()))
    };
    let (text, vocabulary) = (find(".jsonl").display().to_string(), folder.display().to_string());
    let place = Place::new();
    let mut arguments = vec!["data", "prepare", "--input", &text, "--tokenizer", &vocabulary];
    arguments.extend(["--output", "corpus", "--append-eod", "4999"]);
    place.succeed(&arguments);
    for ending in [".bin", ".idx"] {
        let (ours, theirs) = (std::fs::read(place.path(&format!("corpus{ending}"))), std::fs::read(find(ending)));
        assert!(ours.expect("ours") == theirs.expect("theirs"), "corpus{ending} differs");
    }
}

#[test]
fn real_text_trains_to_the_same_validation_loss_over_any_layout() {
    let Some(text) = test_data("data/tinyshakespeare/input.txt") else { return };
    let place = Place::new();
    let text = text.display().to_string();
    place.succeed(&["data", "prepare", "--input", &text, "--tokenizer", "gpt2", "--output", "corpus"]);
    place.write(
        "run.toml",
        r#"
model = { layers = 2, hidden = 32, heads = 4, seq_len = 32, vocab_size = 50257 }
data = { train = ["corpus"], split = [9, 1, 0] }
[train]
steps = 30
global_batch = 16
micro_batch = 4
eval_every = 15
eval_steps = 4
optimizer = { lr = 3e-3, warmup_steps = 5 }
"#,
    );
    let validation = |dir: &str, layout: &[&str]| -> Vec<f64> {
        let dir_key = format!("run.dir={dir}");
        let mut arguments = vec!["train", "run.toml", "--set", &dir_key];
        layout.iter().for_each(|key| arguments.extend(["--set", *key]));
        place.succeed(&arguments);
        let lines = place.metrics(dir).into_iter().filter(|line| line.get("eval_loss").is_some());
        lines.map(|line| number(&line, "eval_loss")).collect()
    };
    let one = validation("one", &[]);
    let split = validation("split", &["layout.tensor=2", "layout.pipeline=2"]);
    assert_eq!(one.len(), 2);
    assert!(one[1] < one[0] && one[0] < 10.0, "the model learns: {one:?}");
    for (a, b) in split.iter().zip(&one) {
        assert!(relative(*a, *b) < 1e-5, "validation losses {split:?} against {one:?}");
    }
}

/// Ninety sequences of which each is scored once, whether or not the replicas divide the batch.
#[test]
fn evaluation_scores_every_target_once_over_any_number_of_replicas() {
    let place = Place::new();
    place.small_corpus("corpus");
    place.write(
        "batches.json",
        r#"{"batches": [{"tokens": [[1, 2], [3, 4], [5, 6]], "labels": [[2, 3], [4, 5], [6, 7]]}]}"#,
    );
    place.write(
        "run.toml",
        r#"
model = { layers = 2, hidden = 32, heads = 4, seq_len = 16, vocab_size = 50257, dropout = 0.0 }
data = { batches = "batches.json", valid = ["corpus"] }
train = { steps = 1, micro_batch = 1, eval_every = 1, eval_steps = 1000 }
"#,
    );
    let evaluated = |dir: &str, sets: &[&str]| {
        let dir_key = format!("run.dir={dir}");
        let mut arguments = vec!["train", "run.toml", "--set", &dir_key];
        sets.iter().for_each(|key| arguments.extend(["--set", *key]));
        place.succeed(&arguments);
        let lines = place.metrics(dir);
        let line = lines.iter().find(|line| line.get("eval_loss").is_some()).expect("an evaluation").clone();
        (line["targets"].as_u64().expect("a count"), number(&line, "eval_loss"))
    };
    let (targets, loss) = evaluated("one", &[]);
    let sequences = (300 * 10) / 16;
    assert!(targets >= 16 * (sequences - 1) && targets.is_multiple_of(16), "{targets} targets");
    for (dir, data) in [("three", "layout.data=3"), ("split", "layout={ data = 3, pipeline = 2 }")] {
        let (same, near) = evaluated(dir, &[data]);
        assert_eq!(same, targets, "{data}");
        assert!(relative(near, loss) < 1e-5, "{data}: {near} against {loss}");
    }
}

/// With validation sets of its own a run trains on the whole of its corpora, so sets that come
/// later would let it see what it was measured on.
#[test]
fn a_run_cannot_begin_to_train_on_what_it_held_out() {
    let place = Place::new();
    place.small_corpus("corpus");
    place.write(
        "run.toml",
        r#"
run = { dir = "run" }
model = { layers = 2, hidden = 32, heads = 4, seq_len = 16, vocab_size = 50257 }
data = { train = ["corpus"] }
train = { steps = 1, global_batch = 4, micro_batch = 2 }
"#,
    );
    place.succeed(&["train", "run.toml"]);
    let words = place.fail(2, &["train", "run.toml", "--set", "train.steps=2", "--set", "data.valid=[\"corpus\"]"]);
    assert!(words.contains("already holds another run (its data differ)"), "{words}");
}
