//! What the training engine promises beyond its numbers: recomputation changes no bit, both
//! copies of a tied table stay equal, lower precisions stay near, failures end the run.

mod common;

use common::{Place, number, relative, test_data};
use serde_json::Value;

fn run_file(place: &Place, sets: &str) {
    place.write("batches.json", common::batches(50, 8));
    place.write(
        "run.toml",
        format!(
            r#"
model = {{ layers = 4, hidden = 64, heads = 4, seq_len = 48, vocab_size = 509, dropout = 0.1 }}
data = {{ batches = "batches.json" }}
{sets}
[train]
steps = 6
micro_batch = 2
precision = "f32"
optimizer = {{ lr = 3e-3, decay = "constant", weight_decay = 0.1 }}
"#
        ),
    );
}

fn train(place: &Place, dir: &str, sets: &[&str]) -> Vec<Value> {
    let dir_key = format!("run.dir={dir}");
    let mut arguments = vec!["train", "run.toml", "--set", &dir_key];
    sets.iter().for_each(|key| arguments.extend(["--set", *key]));
    place.succeed(&arguments);
    place.steps(dir)
}

/// The most bytes of activations that rank 0 held.
fn activations(place: &Place, dir: &str) -> f64 {
    let text = std::fs::read_to_string(place.path(dir).join("memory.json")).expect("memory.json");
    let kinds: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let kind = kinds.iter().find(|kind| kind["kind"] == "activations").expect("activations are reported");
    number(kind, "held")
}

#[test]
fn recomputation_changes_memory_and_no_bit() {
    let place = Place::new();
    run_file(&place, "");
    for (name, layout) in [("one", vec![]), ("split", vec!["layout.tensor=2", "layout.pipeline=2"])] {
        let run = |dir: &str, recompute: &str| {
            let mut sets = layout.clone();
            sets.push(recompute);
            train(&place, &format!("{name}-{dir}"), &sets)
        };
        let plain = run("none", "layout.recompute=none");
        for (dir, recompute) in [("full", "layout.recompute=full"), ("two", "layout.recompute={ every = 2 }")] {
            let again = run(dir, recompute);
            let kept = |run: &str| activations(&place, &format!("{name}-{run}"));
            assert!(kept(dir) < 0.7 * kept("none"), "{name} {recompute}: {} of {}", kept(dir), kept("none"));
            for (a, b) in again.iter().zip(&plain) {
                assert_eq!((&a["loss"], &a["grad_norm"]), (&b["loss"], &b["grad_norm"]), "{name} {recompute}");
            }
        }
    }
}

const CHUNKS: &str = "layout={ pipeline = 2, chunks = 2, data = 2, schedule = \"interleaved\" }";

/// Every save compares the two copies, and their moments, bit by bit.
#[test]
fn tied_copies_are_equal_after_fifty_steps() {
    let place = Place::new();
    run_file(&place, "checkpoint = { every = 1, keep = 1 }");
    for (dir, layout) in [("two", "layout.pipeline=2"), ("four", "layout.pipeline=4"), ("chunks", CHUNKS)] {
        let steps = train(&place, dir, &["train.steps=50", layout, "layout.tensor=2"]);
        assert_eq!(steps.len(), 50);
    }
}

/// PyTorch's autocast is within 7e-4 and 0.24% in bf16 on this case.
#[test]
fn lower_precisions_stay_near_pytorchs_float32() {
    let Some(folder) = test_data("oracle/gpt2") else { return };
    let text = std::fs::read_to_string(folder.join("expected.json")).expect("expected.json");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    let place = Place::new();
    place.write(
        "run.toml",
        format!(
            r#"
init = {{ from = "{0}" }}
data = {{ batches = "{0}/expected.json" }}
train = {{ steps = 12, micro_batch = 4, optimizer = {{ lr = 3e-3, decay = "constant", weight_decay = 0.1 }} }}
"#,
            folder.display()
        ),
    );
    for (precision, losses, norms) in [("bf16", 2e-3, 2e-2), ("f16", 1e-3, 1e-2)] {
        let set = format!("train.precision={precision}");
        let steps = train(&place, precision, &[&set]);
        for (step, want) in steps.iter().zip(expected["trace"].as_array().expect("a trace")) {
            assert_eq!(step["skipped"], false, "{precision}: the first scale overflowed");
            let loss = relative(number(step, "loss"), number(want, "loss"));
            let norm = relative(number(step, "grad_norm"), number(want, "grad_norm"));
            assert!(loss < losses && norm < norms, "{precision} step {}: {loss:e}, {norm:e}", step["step"]);
        }
    }
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run_before_the_update() {
    let place = Place::new();
    run_file(&place, "");
    // Each update multiplies the weights by about 10^12, which float32 bears for a few steps.
    let recipe = "train.optimizer={ lr = 1e6, weight_decay = 1e6, decay = \"constant\" }";
    // The backward overflows in the last layer first: on the only rank, or on the first of the
    // second stage, and every rank says the same.
    for (dir, layout, rank) in [("one", "layout.tensor=1", 0), ("two", "layout={ tensor = 2, pipeline = 2 }", 2)] {
        let dir_key = format!("run.dir={dir}");
        let words = place.fail(1, &["train", "run.toml", "--set", &dir_key, "--set", recipe, "--set", layout]);
        let failed = place.steps(dir).len() + 1;
        let (first, last) = (8 * (failed - 1), 8 * failed - 1);
        let seen = format!("not finite on rank {rank} (layer 3), samples {first} to {last}");
        assert!(words.contains(&format!("step {failed}: the gradient of layer.3.")), "{layout}: {words}");
        assert!(words.contains(&seen) && words.contains("as they were before"), "{layout}: {words}\nwanted {seen}");
    }
}

/// Both ends of a pipeline hold a table then, and they are not copies of each other.
#[test]
fn an_untied_head_trains_saves_and_agrees_over_layouts() {
    let place = Place::new();
    run_file(&place, "checkpoint = { every = 2 }");
    let one = train(&place, "one", &["model.tie_embeddings=false"]);
    let interleaved = "layout={ tensor = 2, pipeline = 2, chunks = 2, schedule = \"interleaved\" }";
    for (dir, layout) in [("split", "layout={ tensor = 2, pipeline = 2, data = 2 }"), ("interleaved", interleaved)] {
        let split = train(&place, dir, &["model.tie_embeddings=false", layout]);
        for (a, b) in split.iter().zip(&one) {
            assert!(relative(number(a, "loss"), number(b, "loss")) < 1e-5, "{dir}, step {}", b["step"]);
        }
        place.succeed(&["checkpoint", "verify", dir]);
    }
}

/// The vocabulary is cut as if padded, so three of four tensor ranks hold no row.
#[test]
fn tensor_ranks_without_rows_of_the_vocabulary_train_along() {
    let place = Place::new();
    run_file(&place, "");
    let given = common::batches(6, 8);
    let small = serde_json::from_str::<Value>(&given).expect("JSON").to_string();
    let folded = small.split(',').map(fold_below_100).collect::<Vec<_>>().join(",");
    place.write("batches.json", folded);
    let run = |dir: &str, layout: &str| train(&place, dir, &["model.vocab_size=100", layout]);
    let (one, four) = (run("one", "layout.tensor=1"), run("four", "layout.tensor=4"));
    for (a, b) in four.iter().zip(&one) {
        assert!(relative(number(a, "loss"), number(b, "loss")) < 1e-5, "step {}", b["step"]);
    }
}

/// A piece of JSON between commas with its number taken modulo 100.
fn fold_below_100(piece: &str) -> String {
    let digits: String = piece.chars().filter(char::is_ascii_digit).collect();
    match digits.parse::<u64>() {
        Ok(number) if !piece.contains('-') => piece.replace(&digits, &(number % 100).to_string()),
        _ => piece.to_string(),
    }
}

#[test]
fn an_overflow_in_f16_skips_the_update_and_lowers_the_scale() {
    let place = Place::new();
    run_file(&place, "");
    let sets = ["train.precision=f16", "train.loss_scale={ initial = 1e30, hysteresis = 1 }"];
    let steps = train(&place, "f16", &sets);
    assert_eq!(steps[0]["skipped"], true);
    assert!(number(&steps[1], "loss_scale") < number(&steps[0], "loss_scale"));
    assert_eq!(number(&steps[0], "loss"), number(&steps[0], "loss"));
}
