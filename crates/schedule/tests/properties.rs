//! What holds for every generated program.

mod support;

use henge_schedule::{
    Detail, Kind, Op, Program, Shape, check, rank_and_chunk, simulate_blocking, smallest_window, virtual_stage,
};
use proptest::prelude::*;
use support::{execute, in_flight_limit, shape};

fn any_shape() -> impl Strategy<Value = Shape> {
    (0..3usize, 1..=9usize, 1..=4usize, 1..=24usize).prop_map(|(kind, p, v, m)| match kind {
        0 => shape(Kind::GPipe, p, 1, m),
        1 => shape(Kind::OneForwardOneBackward, p, 1, m),
        _ => shape(Kind::Interleaved, p, if p == 1 { 1 } else { v }, p * m.div_ceil(6)),
    })
}

proptest! {
    // A failing case is printed in full and small enough to write down as a test.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_programs_are_sound(shape in any_shape()) {
        let program = Program::generate(shape).unwrap();
        let report = check(&program).unwrap();
        let limits: Vec<usize> = (0..shape.pipeline).map(|r| in_flight_limit(&shape, r)).collect();
        prop_assert_eq!(report.peak_in_flight, limits);
        prop_assert!(report.peak_receives.iter().all(|&buffers| buffers <= program.receive_window + 1));
        prop_assert!(report.peak_sends.iter().all(|&buffers| buffers <= 1));
        let boundaries = shape.pipeline * shape.chunks - 1;
        prop_assert_eq!(report.messages, 2 * boundaries * shape.microbatches);
        prop_assert!(execute(&program).is_ok());
    }

    #[test]
    fn text_reads_back(shape in any_shape()) {
        let program = Program::generate(shape).unwrap();
        prop_assert_eq!(&Program::parse(shape, &program.text(Detail::Messages)).unwrap(), &program);

        let mut computes = program.clone();
        for ops in &mut computes.ranks {
            ops.retain(|op| matches!(op, Op::Forward { .. } | Op::Backward { .. }));
        }
        computes.receive_window = 0;
        prop_assert_eq!(Program::parse(shape, &program.text(Detail::Compute)).unwrap(), computes);
    }

    #[test]
    fn reductions_start_right_after_the_last_backward(shape in any_shape()) {
        let program = Program::generate(shape).unwrap();
        for rank in 0..shape.pipeline {
            let ops = program.rank(rank);
            for chunk in 0..shape.chunks {
                let last = ops.iter().rposition(|op| matches!(op, Op::Backward { chunk: c, .. } if *c == chunk));
                let after: Vec<Op> = ops[last.unwrap() + 1..].iter().copied()
                    .filter(|op| !matches!(op, Op::Send { .. })).collect();
                prop_assert_eq!(after[0], Op::ReduceGradients { chunk });
            }
        }
    }

    #[test]
    fn more_window_never_hurts(shape in any_shape(), more in 0..4usize) {
        let program = Program::with_window(shape, smallest_window(&shape) + more).unwrap();
        prop_assert!(check(&program).is_ok());
    }

    #[test]
    fn stages_and_ranks_are_inverse(pipeline in 1..40usize, rank in 0..40usize, chunk in 0..9usize) {
        prop_assume!(rank < pipeline);
        prop_assert_eq!(rank_and_chunk(pipeline, virtual_stage(pipeline, rank, chunk)), (rank, chunk));
    }
}

/// The first window, from 0 up, with which blocking sends end.
fn searched_window(shape: Shape) -> usize {
    (0..).find(|&window| simulate_blocking(&Program::with_window(shape, window).unwrap()).is_ok()).unwrap()
}

#[test]
fn the_window_is_the_smallest() {
    let mut shapes = support::small_shapes();
    for p in [6, 7, 8, 13, 16] {
        for groups in 1..=4 {
            shapes.push(shape(Kind::GPipe, p, 1, p * groups - 1));
            shapes.push(shape(Kind::OneForwardOneBackward, p, 1, p * groups - 1));
            shapes.extend((1..=5).map(|v| shape(Kind::Interleaved, p, v, p * groups)));
        }
    }
    shapes.push(shape(Kind::Interleaved, 64, 2, 512));
    shapes.push(shape(Kind::Interleaved, 2, 30, 200));
    for shape in shapes {
        let program = Program::generate(shape).unwrap();
        assert_eq!(program.receive_window, searched_window(shape), "{shape:?}");
        assert_eq!(program.receive_window, smallest_window(&shape));
    }
}

/// Receive, compute, send in line blocks every 1F1B pipeline of more than one rank and microbatch.
#[test]
fn without_a_window_neighbours_block_each_other() {
    for p in 2..8 {
        for m in 2..10 {
            let program = Program::with_window(shape(Kind::OneForwardOneBackward, p, 1, m), 0).unwrap();
            let deadlock = simulate_blocking(&program).unwrap_err();
            let (one, other) = deadlock.ranks();
            assert_eq!(one.abs_diff(other), 1);
            assert!(execute(&program).is_err());
        }
    }
}

/// The planner generates and checks programs of this size by the hundred: linear, or this test takes minutes.
#[test]
fn the_largest_published_pipeline_is_generated_and_checked() {
    let shape = shape(Kind::Interleaved, 64, 2, 512);
    for _ in 0..20 {
        let report = check(&Program::generate(shape).unwrap()).unwrap();
        assert_eq!(report.messages, 2 * 127 * 512);
    }
}
