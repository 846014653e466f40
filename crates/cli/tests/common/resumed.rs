//! What two runs must have in common to be the same run.

use super::{Place, number, relative};
use serde_json::Value;
use std::path::Path;

const TIMED: [&str; 6] = ["step_seconds", "data_seconds", "save_seconds", "tokens_per_second", "model_tflops", "mfu"];

/// Every metrics field but those that time moves.
pub fn numbers(place: &Place, dir: &str) -> Vec<Value> {
    let mut lines = place.metrics(dir);
    for line in &mut lines {
        TIMED.iter().for_each(|key| drop(line.as_object_mut().expect("an object").remove(*key)));
    }
    lines
}

/// The shards of a checkpoint, by name.
pub fn tensors(place: &Place, dir: &str, step: u64) -> Vec<(String, Vec<u8>)> {
    let folder = place.path(dir).join(format!("checkpoints/step-{step:08}"));
    let entries = std::fs::read_dir(&folder).expect("the checkpoint");
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().to_string();
    let mut shards: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
        .map(|path| (name(&path), std::fs::read(&path).expect("a shard")))
        .collect();
    shards.sort();
    assert!(!shards.is_empty());
    shards
}

/// Every step once, with the loss of another run to so much, relative.
pub fn same_losses(place: &Place, run: &str, as_in: &str, within: f64) {
    let (steps, wanted) = (place.steps(run), place.steps(as_in));
    assert_eq!(steps.len(), wanted.len());
    for (got, want) in steps.iter().zip(&wanted) {
        assert_eq!(got["step"], want["step"]);
        let off = relative(number(got, "loss"), number(want, "loss"));
        assert!(off <= within, "{got} is off by {off:e} of {want}");
    }
}
