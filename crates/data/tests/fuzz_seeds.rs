//! The fuzz targets' seeds, and what once was found by them, go through without a panic.

#[path = "../../../fuzz/bodies.rs"]
mod bodies;

use std::fs;
use std::path::Path;

/// Calls `body` with every seed of a target.
fn replay(target: &str, body: &dyn Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(seeds.len() >= 4, "{target} has {} seeds", seeds.len());
    for seed in seeds {
        println!("{}", seed.display());
        body(&fs::read(seed).unwrap());
    }
}

#[test]
fn indices() {
    let folder = tempfile::tempdir().unwrap();
    replay("index", &|bytes| bodies::index(folder.path(), bytes));
}

#[test]
fn json_lines() {
    let folder = tempfile::tempdir().unwrap();
    replay("json_lines", &|bytes| bodies::json_lines(folder.path(), bytes));
}

#[test]
fn tokenizers() {
    replay("tokenizer", &bodies::tokenizer);
}
