//! A disk that fills: status 1, what was saved stays whole, nothing half written is left. The
//! disk is a small file system in memory, which only root may mount; elsewhere the test says
//! that it was skipped.

#![cfg(target_os = "linux")]

mod common;

use common::{Disk, Place};

#[test]
fn a_save_that_does_not_fit_leaves_the_one_before() {
    let place = Place::new();
    place.write("batches.json", common::batches(12, 8));
    let Some(_disk) = Disk::mount(&place.path("disk"), "4m") else { return };
    place.write(
        "run.toml",
        r#"
run = { dir = "disk/run" }
model = { layers = 4, hidden = 64, heads = 4, seq_len = 48, vocab_size = 509 }
layout = { tensor = 2, pipeline = 2 }
data = { batches = "batches.json" }
checkpoint = { every = 3, keep = 9 }
train = { steps = 12, micro_batch = 4, optimizer = { lr = 1e-3, decay = "constant" } }
"#,
    );
    let said = place.fail(1, &["train", "run.toml"]);
    assert!(said.contains("the disk is full"), "{said}");
    place.succeed(&["checkpoint", "verify", "disk/run"]);
    let folders = std::fs::read_dir(place.path("disk/run/checkpoints")).expect("checkpoints");
    let names: Vec<_> = folders.map(|folder| folder.expect("a folder").file_name()).collect();
    assert_eq!(names, ["step-00000003"]);
}

#[test]
fn a_corpus_that_does_not_fit_is_not_there() {
    let place = Place::new();
    place.write("text.txt", "All work and no play makes a dull corpus. ".repeat(100_000));
    let Some(_disk) = Disk::mount(&place.path("disk"), "256k") else { return };
    let said = place.fail(1, &["data", "prepare", "--input", "text.txt", "--tokenizer", "gpt2", "--output", "disk/c"]);
    assert!(said.contains("the disk is full"), "{said}");
    for name in ["c.bin", "c.idx", "c.json"] {
        assert!(!place.path("disk").join(name).exists(), "{name} is left");
    }
}
