//! Processes that die, stop or lose their disk: the run ends in bounded time with one message that
//! names the rank and where it was, what was saved stays whole, and the run goes on to the losses
//! of one that was never disturbed, also on fewer ranks.

#![cfg(target_os = "linux")]

mod common;

use common::Place;
use common::mpi::{ends_with, expect_failure, process, signal, start, within};
use common::resumed::same_losses;
use std::process::Child;
use std::time::Duration;

const RUN: &str = r#"
run = { dir = "run", seed = 3, timeout = 5, heartbeat_timeout = 3 }
model = { layers = 4, hidden = 64, heads = 4, seq_len = 48, vocab_size = 509, dropout = 0.1 }
layout = { pipeline = 2, data = 2 }
data = { batches = "batches.json" }
checkpoint = { every = 2, keep = 9 }
train = { steps = 8, micro_batch = 2, optimizer = { lr = 3e-3, warmup_steps = 2, decay = "constant" } }
"#;
/// A run that is not over by then hangs.
const LIMIT: Duration = Duration::from_secs(120);

fn place() -> Place {
    let place = Place::new();
    place.write("batches.json", common::batches(8, 8));
    place.write("run.toml", RUN);
    place
}

/// The run that nothing happens to, as threads.
fn undisturbed(place: &Place) {
    place.succeed(&["train", "run.toml", "--set", "run.dir=whole"]);
}

fn goes_on_as_undisturbed(place: &Place, ranks: usize, more: &[&str]) {
    let saved = place.path("run/checkpoints");
    assert!(std::fs::read_dir(&saved).is_ok_and(|mut folders| folders.next().is_some()), "something was saved");
    place.succeed(&["checkpoint", "verify", "run"]);
    ends_with(place, 0, ranks, &[&["train", "run.toml"], more].concat());
    // The same layout gives the same bits; another, the same numbers.
    same_losses(place, "run", "whole", if more.is_empty() { 0.0 } else { 1e-5 });
}

/// Starts a run of which a rank stalls in the fifth step's operation.
fn stalled(place: &Place, rank: usize, operation: &str) -> Child {
    let fault = format!("rank={rank},operation={operation},after=4,kind=stall");
    start(place, 4, &["train", "run.toml", "--set", "run.timeout=60", "--fault", &fault])
}

fn stalled_process(place: &Place, rank: usize) -> String {
    let process = process(place, rank, 4);
    // In an operation by then that the others have heard of.
    std::thread::sleep(Duration::from_millis(800));
    process
}

#[test]
fn a_rank_that_is_killed_in_mid_step_is_named_with_its_operation() {
    let place = place();
    undisturbed(&place);
    let run = stalled(&place, 2, "B2");
    signal(&stalled_process(&place, 2), "-KILL");
    let said = expect_failure(&within(run, LIMIT));
    for word in ["rank 2 (host ", "died", "(B2)"] {
        assert!(said.contains(word), "`{word}`: {said}");
    }
    assert_eq!(said.matches("error: ").count(), 1, "one message: {said}");
    goes_on_as_undisturbed(&place, 4, &[]);
}

#[test]
fn a_rank_that_is_stopped_in_mid_step_is_named_with_its_operation() {
    let place = place();
    undisturbed(&place);
    let run = stalled(&place, 1, "F1");
    signal(&stalled_process(&place, 1), "-STOP");
    let said = expect_failure(&within(run, LIMIT));
    for word in ["rank 1 (host ", "not been heard from for 3 s", "(F1)"] {
        assert!(said.contains(word), "`{word}`: {said}");
    }
    assert_eq!(said.matches("error: ").count(), 1, "one message: {said}");
    // A replica fewer: two ranks.
    goes_on_as_undisturbed(&place, 2, &["--set", "layout.data=1"]);
}

#[test]
fn ranks_that_fail_by_themselves_end_all_with_their_own_words() {
    for (fault, words) in [
        ("rank=3,operation=B2,after=3,kind=panic", ["rank 3", "injected panic", "B2"]),
        ("rank=1,operation=F1,after=3,kind=error", ["rank 1", "injected", "F1"]),
        ("rank=0,operation=save,after=2,kind=panic", ["rank 0", "injected panic", "save"]),
        ("rank=2,operation=F2,after=3,kind=stall", ["rank 2 (host ", "F2", "waits for nobody"]),
    ] {
        let place = place();
        let said = ends_with(&place, 1, 4, &["train", "run.toml", "--fault", fault]);
        words.iter().for_each(|word| assert!(said.contains(word), "{fault}, `{word}`: {said}"));
        assert_eq!(said.matches("error: ").count(), 1, "{fault}, one message: {said}");
        place.succeed(&["checkpoint", "verify", "run"]);
        let saved = place.steps("run").len();
        assert!(saved > 0 && saved < 8, "{fault}: failed in mid-run");
    }
}

#[test]
fn a_save_that_fails_on_one_rank_ends_all() {
    let place = place();
    let Some(_disk) = common::Disk::mount(&place.path("disk"), "6m") else { return };
    let said = ends_with(&place, 1, 4, &["train", "run.toml", "--set", "run.dir=disk/run"]);
    for word in ["rank ", "save", "the disk is full"] {
        assert!(said.contains(word), "`{word}`: {said}");
    }
    assert_eq!(said.matches("error: ").count(), 1, "one message: {said}");
    place.succeed(&["checkpoint", "verify", "disk/run"]);
}
