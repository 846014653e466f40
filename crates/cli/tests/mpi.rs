//! Ranks that are processes under `mpirun`: the same traces, the same bits as threads.

mod common;

use common::mpi::ends_with;
use common::resumed::{numbers, tensors};
use common::{Case, LAYOUTS, Place, oracle};

fn ranks_of((t, p, d, ..): &Case) -> usize {
    t * p * d
}

fn check(model: &str, layouts: impl Fn(&&Case) -> bool) {
    let layouts: Vec<Case> = LAYOUTS.iter().filter(layouts).filter(|case| ranks_of(case) > 1).copied().collect();
    oracle::check(model, &layouts, |place, case, arguments| drop(ends_with(place, 0, ranks_of(case), arguments)));
}

#[test]
fn gpt2() {
    check("gpt2", |_| true);
}

/// Two key and value heads: no more than two tensor ranks.
#[test]
fn llama() {
    check("llama", |case| case.0 <= 2);
}

#[test]
fn bert() {
    check("bert", |case| ranks_of(case) >= 4);
}

/// Dropout, evaluation and saves in the background included; the vocabulary's table is large
/// enough for reductions of several pieces.
const RUN: &str = r#"
run = { dir = "run", seed = 3 }
model = { layers = 4, hidden = 64, heads = 4, seq_len = 48, vocab_size = 509, dropout = 0.1 }
layout = { tensor = 2, pipeline = 2, data = 2 }
data = { batches = "batches.json" }
checkpoint = { every = 2, keep = 9 }
train = { steps = 8, micro_batch = 2, optimizer = { lr = 3e-3, warmup_steps = 2, decay = "constant", weight_decay = 0.1 } }
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("batches.json", common::batches(8, 8));
    place.write("run.toml", RUN);
    place
}

#[test]
fn processes_and_threads_train_the_same_bits() {
    let place = place();
    place.succeed(&["train", "run.toml", "--set", "run.dir=threads"]);
    ends_with(&place, 0, 8, &["train", "run.toml"]);
    assert_eq!(numbers(&place, "run"), numbers(&place, "threads"));
    for step in [2, 8] {
        assert_eq!(tensors(&place, "run", step), tensors(&place, "threads", step), "step {step}");
    }
}

#[test]
fn a_run_of_processes_goes_on_at_other_layouts_and_as_threads() {
    let place = place();
    place.succeed(&["train", "run.toml", "--set", "run.dir=whole", "--set", "layout.data=1"]);
    let whole = place.steps("whole");
    for (ranks, steps, replicas) in [(8, 3, 2), (4, 6, 1), (1, 8, 1)] {
        let (steps, data) = (format!("train.steps={steps}"), format!("layout.data={replicas}"));
        let arguments = ["train", "run.toml", "--set", &steps, "--set", &data];
        if ranks == 1 { drop(place.succeed(&arguments)) } else { drop(ends_with(&place, 0, ranks, &arguments)) }
    }
    let steps = place.steps("run");
    assert_eq!(steps.len(), whole.len());
    for (got, want) in steps.iter().zip(&whole) {
        let off = common::relative(common::number(got, "loss"), common::number(want, "loss"));
        assert!(off < 1e-5, "{got} is off by {off:e} of {want}");
    }
}

#[test]
fn what_is_wrong_is_said_once_before_any_work() {
    let place = place();
    let cases: [(&[&str], usize, &[&str]); 4] = [
        (&["train", "run.toml"], 4, &["started 4 processes", "has 8 ranks"]),
        (&["train", "run.toml", "--set", "train.step=3"], 8, &["did you mean `train.steps`"]),
        (&["train", "gone.toml"], 2, &["gone.toml"]),
        (&["doctor"], 2, &["mpirun started 2 copies"]),
    ];
    for (arguments, ranks, words) in cases {
        let said = ends_with(&place, 2, ranks, arguments);
        words.iter().for_each(|word| assert!(said.contains(word), "{arguments:?}: {said}"));
        assert_eq!(said.matches("error: ").count(), 1, "one message: {said}");
        assert!(!place.path("run").exists(), "{arguments:?} left a run folder");
    }
}
