#![no_main]

#[path = "../bodies.rs"]
#[allow(dead_code)] // each target runs one of the bodies
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::tokenizer(bytes));
