//! A rank that fails ends the run with its own words; one that stalls is reported with what
//! every rank waits for; what was saved stays.

mod common;

use common::Place;

fn place() -> Place {
    let place = Place::new();
    place.write("batches.json", common::batches(8, 8));
    place.write(
        "run.toml",
        r#"
run = { dir = "run", timeout = 2 }
model = { layers = 4, hidden = 64, heads = 4, seq_len = 48, vocab_size = 509 }
layout = { tensor = 2, pipeline = 2, data = 2 }
data = { batches = "batches.json" }
checkpoint = { every = 1 }
train = { steps = 8, micro_batch = 2, optimizer = { lr = 1e-3, decay = "constant" } }
"#,
    );
    place
}

fn failed(place: &Place, fault: &str) -> String {
    place.fail(1, &["train", "run.toml", "--fault", fault])
}

#[test]
fn the_first_failure_is_the_one_reported() {
    for (fault, words) in [
        ("rank=5,operation=B2,after=2,kind=panic", ["rank 5", "injected panic", "B2"]),
        ("rank=6,operation=F1,after=3,kind=error", ["rank 6", "injected", "F1"]),
        ("rank=0,operation=reduce,after=1,kind=panic", ["rank 0", "injected panic", "reduce"]),
        ("rank=3,operation=save,after=2,kind=panic", ["rank 3", "injected panic", "save"]),
    ] {
        let place = place();
        let said = failed(&place, fault);
        words.iter().for_each(|word| assert!(said.contains(word), "{fault}: {said}"));
        let saved = place.steps("run").len();
        assert!(saved > 0 && saved < 8, "{fault}: failed in mid-run");
        place.succeed(&["checkpoint", "verify", "run"]);
        place.succeed(&["train", "run.toml"]);
        assert_eq!(place.steps("run").len(), 8, "{fault}: goes on afterwards");
    }
}

#[test]
fn a_stall_is_reported_with_what_each_rank_waits_for() {
    let place = place();
    let said = failed(&place, "rank=4,operation=F2,after=1,kind=stall");
    for rank in 0..8 {
        assert!(said.contains(&format!("rank {rank}")), "rank {rank}: {said}");
    }
    assert!(said.contains("F2"), "{said}");
    place.succeed(&["checkpoint", "verify", "run"]);
}

#[test]
fn a_slow_rank_changes_nothing() {
    let (slow, quick) = (place(), place());
    slow.succeed(&["train", "run.toml", "--fault", "rank=2,operation=B1,after=1,kind=300"]);
    quick.succeed(&["train", "run.toml"]);
    let losses = |place: &Place| -> Vec<_> { place.steps("run").iter().map(|step| step["loss"].clone()).collect() };
    assert_eq!(losses(&slow), losses(&quick));
}
