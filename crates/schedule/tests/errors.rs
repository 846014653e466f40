//! What a person reads when a request or a program is wrong.

mod support;

use henge_schedule::{Kind, Program, ScheduleError, check, simulate_blocking};
use support::shape;

fn refusal(kind: Kind, pipeline: usize, chunks: usize, microbatches: usize) -> String {
    Program::generate(shape(kind, pipeline, chunks, microbatches)).unwrap_err().to_string()
}

#[test]
fn impossible_shapes_say_the_way_out() {
    for (error, expected) in [
        (refusal(Kind::GPipe, 0, 1, 4), "pipeline is 0: a schedule needs at least 1"),
        (refusal(Kind::GPipe, 4, 1, 0), "microbatches is 0: a schedule needs at least 1"),
        (
            refusal(Kind::OneForwardOneBackward, 4, 2, 8),
            "schedule 1f1b runs one model chunk per rank, not 2: use interleaved, or set chunks = 1",
        ),
        (
            refusal(Kind::GPipe, 4, 3, 8),
            "schedule gpipe runs one model chunk per rank, not 3: use interleaved, or set chunks = 1",
        ),
        (
            refusal(Kind::Interleaved, 1, 2, 8),
            "interleaved with 2 chunks needs at least 2 pipeline ranks, and pipeline is 1: \
             set chunks = 1, or raise pipeline",
        ),
        (
            refusal(Kind::Interleaved, 4, 2, 10),
            "interleaved needs microbatches divisible by pipeline, and 10 is not divisible by 4: \
             use 8 or 12 microbatches",
        ),
        (
            refusal(Kind::Interleaved, 4, 2, 3),
            "interleaved needs microbatches divisible by pipeline, and 3 is not divisible by 4: \
             use 4 or 8 microbatches",
        ),
    ] {
        assert_eq!(error, expected);
    }
}

#[test]
fn sizes_beyond_memory_are_refused() {
    for (pipeline, microbatches) in [(usize::MAX, 2), (64, usize::MAX), (1 << 12, 1 << 12)] {
        let error = Program::generate(shape(Kind::GPipe, pipeline, 1, microbatches)).unwrap_err();
        assert_eq!(error, ScheduleError::TooLarge { pipeline, chunks: 1, microbatches });
    }
    let error = Program::generate(shape(Kind::Interleaved, usize::MAX - 1, 2, 1 << 40)).unwrap_err();
    assert!(!error.to_string().is_empty());
}

#[test]
fn kinds_read_back_and_strangers_do_not() {
    for kind in [Kind::GPipe, Kind::OneForwardOneBackward, Kind::Interleaved] {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    let error = "1F1B".parse::<Kind>().unwrap_err().to_string();
    assert_eq!(error, "`1F1B` is not a schedule; choose one of gpipe, 1f1b, interleaved");
}

/// A two-rank program with one word changed: the message names both ranks and both operations.
#[test]
fn faults_name_both_ranks_and_operations() {
    let shape = shape(Kind::OneForwardOneBackward, 2, 1, 1);
    let sound = [
        "r0: F1 s+F1>1 s-F1>1 r+B1<1 r-B1<1 B1 reduce sync step",
        "r1: r+F1<0 r-F1<0 F1 B1 s+B1>0 reduce s-B1>0 sync step",
    ];
    assert_eq!(Program::generate(shape).unwrap(), Program::parse(shape, &sound.join("\n")).unwrap());
    for (rank, from, to, expected) in [
        (0, "s+F1>1 ", "", "rank 0 (which has no `s+F1>1`) lacks what rank 1 operation 1 `r-F1<0` relies on: add it"),
        (
            1,
            "r-F1<0 F1",
            "F1 r-F1<0",
            "rank 1 operation 1 `F1` comes before rank 1 operation 2 `r-F1<0`, which it needs, and concerns \
             rank 0 operation 1 `s+F1>1`: move it behind",
        ),
        (
            1,
            "B1 s+B1>0",
            "B1 s+B1>1",
            "rank 1 operation 4 `s+B1>1` is on the wrong rank or names the wrong one; it belongs with \
             rank 0 operation 4 `r-B1<1`: redirect it",
        ),
        (
            1,
            " F1",
            " F1 F2",
            "rank 1 operation 3 `F2` is no operation of this shape, and rank 0 (which has no `F2`) takes no part in \
             it: correct its numbers or remove it",
        ),
        (
            0,
            "reduce",
            "reduce reduce",
            "rank 0 operation 7 `reduce` repeats operation 6, and rank 1 operation 5 `reduce` takes part once: \
             remove one of the two",
        ),
        (
            0,
            "sync step",
            "step sync",
            "rank 0 operation 8 `sync` follows the step that ends its rank's list, and concerns \
             rank 1 operation 7 `sync`: move it before the step",
        ),
    ] {
        let mut lines = sound.map(str::to_string);
        assert!(lines[rank].contains(from));
        lines[rank] = lines[rank].replacen(from, to, 1);
        let program = Program::parse(shape, &lines.join("\n")).unwrap();
        assert_eq!(check(&program).unwrap_err().to_string(), expected);
    }
}

#[test]
fn deadlocks_name_the_ring() {
    let program = Program::with_window(shape(Kind::OneForwardOneBackward, 2, 1, 2), 0).unwrap();
    let expected = "deadlock: rank 0 operation 5 `s-F2>1` waits for rank 1 operation 5 `s-B1>0` waits for rank 0; \
                    post the receives earlier (a larger receive window) or reorder";
    assert_eq!(simulate_blocking(&program).unwrap_err().to_string(), expected);
    assert_eq!(check(&program).unwrap_err().to_string(), expected);
}

#[test]
fn waiting_for_a_rank_that_has_ended_names_what_it_lacks() {
    let text = "r0: F1 s+F1>1 s-F1>1 r+B1<1 r-B1<1 B1 reduce step\nr1: r+F1<0 r-F1<0 F1 B1 reduce step\n";
    let program = Program::parse(shape(Kind::OneForwardOneBackward, 2, 1, 1), text).unwrap();
    let expected = "deadlock: rank 0 operation 4 `r-B1<1` waits for rank 1 (which has no `s+B1>0`); \
                    post the receives earlier (a larger receive window) or reorder";
    assert_eq!(simulate_blocking(&program).unwrap_err().to_string(), expected);
}

#[test]
fn misread_text_names_line_and_word() {
    let shape = shape(Kind::OneForwardOneBackward, 2, 1, 1);
    for (text, expected) in [
        ("r0: F1\n", "the text has lines for 1 ranks and the shape has 2: give each rank one line"),
        ("r0: F1\n\nr2: F1\n", "line 3 begins with \"r2:\": the next rank's line begins with \"r1:\""),
        (
            "r0: F1 G1\nr1: F1\n",
            "line 1, word 2: \"G1\" is no operation; write F1, B1, r+F1<0, r-F1<0, s+F1>1, s-F1>1, reduce, sync or \
             step, with a chunk letter as in F1a",
        ),
    ] {
        assert_eq!(Program::parse(shape, text).unwrap_err().to_string(), expected);
    }
    for word in ["F", "F0", "F+1", "F1A", "F1\u{e9}", "r+F1", "r+F1>0", "s+F1<0", "r+F1<-1", "r+F1<", "reduce:", "x"] {
        let text = format!("r0: F1 {word}\nr1:\n");
        assert!(Program::parse(shape, &text).is_err(), "{word}");
    }
}
