//! What the tests of this crate share.
#![allow(dead_code)] // each test file uses its own part

use henge_data::prepare::{Format, PrepareOptions, RECORD_EVERY, find_inputs};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The folder of real files, or `None` with a note when it is not named; what is missing in it fails.
pub fn test_data() -> Option<PathBuf> {
    match std::env::var_os("HENGE_TEST_DATA") {
        Some(folder) => Some(PathBuf::from(folder).join("data")),
        None => {
            eprintln!("skipped: HENGE_TEST_DATA names no folder of test data");
            None
        }
    }
}

/// Options for inputs of the kind their names show, field `text`, two workers.
pub fn options(inputs: &[&Path], output: &Path) -> PrepareOptions {
    let names: Vec<String> = inputs.iter().map(|p| p.to_str().unwrap().to_string()).collect();
    PrepareOptions {
        inputs: find_inputs(&names, Format::FromName).unwrap(),
        keys: vec!["text".into()],
        output: output.to_path_buf(),
        end_of_document: None,
        workers: 2,
        record_every: RECORD_EVERY,
    }
}

/// A flag that never stops anything.
pub fn never() -> &'static AtomicBool {
    static NEVER: AtomicBool = AtomicBool::new(false);
    &NEVER
}

/// The names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
