//! Programs against text written elsewhere: the published orders, and golden files of the full form.
//!
//! `HENGE_UPDATE_GOLDEN=1` rewrites the files.

mod support;

use std::path::PathBuf;

use henge_schedule::{Detail, Kind, Program, check};
use support::shape;

/// The order of arXiv 2104.04473 for p = 4, m = 8.
const ONE_FORWARD_ONE_BACKWARD: [(usize, &str); 2] = [
    (0, "r0: F1 F2 F3 F4 B1 F5 B2 F6 B3 F7 B4 F8 B5 B6 B7 B8"),
    (3, "r3: F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 F8 B8"),
];

/// The same with two chunks per rank.
const INTERLEAVED: [(usize, &str); 4] = [
    (
        0,
        "r0: F1a F2a F3a F4a F1b F2b F3b F4b F5a F6a F7a B1b F8a B2b F5b B3b F6b B4b F7b B1a F8b B2a B3a B4a \
         B5b B6b B7b B8b B5a B6a B7a B8a",
    ),
    (
        1,
        "r1: F1a F2a F3a F4a F1b F2b F3b F4b F5a B1b F6a B2b F7a B3b F8a B4b F5b B1a F6b B2a F7b B3a F8b B4a \
         B5b B6b B7b B8b B5a B6a B7a B8a",
    ),
    (
        2,
        "r2: F1a F2a F3a F4a F1b F2b F3b B1b F4b B2b F5a B3b F6a B4b F7a B1a F8a B2a F5b B3a F6b B4a F7b B5b \
         F8b B6b B7b B8b B5a B6a B7a B8a",
    ),
    (
        3,
        "r3: F1a F2a F3a F4a F1b B1b F2b B2b F3b B3b F4b B4b F5a B1a F6a B2a F7a B3a F8a B4a F5b B5b F6b B6b \
         F7b B7b F8b B8b B5a B6a B7a B8a",
    ),
];

fn assert_lines(kind: Kind, chunks: usize, expected: &[(usize, &str)]) {
    let text = Program::generate(shape(kind, 4, chunks, 8)).unwrap().text(Detail::Compute);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    for &(rank, line) in expected {
        assert_eq!(lines[rank], line);
    }
}

#[test]
fn one_forward_one_backward_has_the_published_order() {
    assert_lines(Kind::OneForwardOneBackward, 1, &ONE_FORWARD_ONE_BACKWARD);
}

#[test]
fn interleaved_has_the_published_order() {
    assert_lines(Kind::Interleaved, 2, &INTERLEAVED);
}

#[test]
fn gpipe_runs_all_forwards_then_all_backwards() {
    let text = Program::generate(shape(Kind::GPipe, 2, 1, 3)).unwrap().text(Detail::Compute);
    assert_eq!(text, "r0: F1 F2 F3 B1 B2 B3\nr1: F1 F2 F3 B1 B2 B3\n");
}

#[test]
fn full_programs_match_their_golden_files() {
    for shape in [
        shape(Kind::GPipe, 3, 1, 2),
        shape(Kind::OneForwardOneBackward, 1, 1, 2),
        shape(Kind::OneForwardOneBackward, 3, 1, 4),
        shape(Kind::Interleaved, 2, 2, 4),
        shape(Kind::Interleaved, 3, 1, 6),
    ] {
        let program = Program::generate(shape).unwrap();
        check(&program).unwrap();
        let name = format!("{}-p{}-v{}-m{}.txt", shape.kind, shape.pipeline, shape.chunks, shape.microbatches);
        assert_golden(&name, &program.text(Detail::Messages));
    }
}

fn assert_golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("HENGE_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, expected, "{name} differs from its golden file");
}
