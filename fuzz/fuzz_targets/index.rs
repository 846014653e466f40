#![no_main]

#[path = "../bodies.rs"]
#[allow(dead_code)] // each target runs one of the bodies
mod bodies;

use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    bodies::index(FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder")).path(), bytes);
});
