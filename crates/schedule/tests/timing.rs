//! The published bubbles and totals, from a timed walk with free messages and blocking sends.
//!
//! In formulas: p pipeline ranks, v chunks, m microbatches, t_f and t_b the forward and backward time of one
//! microbatch through one rank's whole share of layers. Times are whole numbers in units of 1/v.

mod support;

use std::collections::HashMap;

use henge_schedule::{Kind, Message, Op, Program, Shape};
use support::shape;

const FORWARD: u64 = 1;
const BACKWARD: u64 = 2;

/// When the last rank ends, a chunk taking `FORWARD` and `BACKWARD` units. A send ends when its receive is posted.
fn total_time(program: &Program) -> u64 {
    let mut clocks = vec![0u64; program.shape.pipeline];
    let mut next = vec![0usize; program.shape.pipeline];
    let mut posted: HashMap<Message, u64> = HashMap::new();
    let mut sent: HashMap<Message, u64> = HashMap::new();
    let mut moved = true;
    while moved {
        moved = false;
        for rank in 0..program.shape.pipeline {
            while let Some(&op) = program.rank(rank).get(next[rank]) {
                let clock = &mut clocks[rank];
                match op {
                    Op::Forward { .. } => *clock += FORWARD,
                    Op::Backward { .. } => *clock += BACKWARD,
                    Op::PostRecv { message, .. } => {
                        posted.insert(message, *clock);
                    }
                    Op::Send { message, .. } => {
                        sent.insert(message, *clock);
                    }
                    Op::WaitRecv { message, .. } | Op::WaitSend { message, .. } => {
                        let (Some(&post), Some(&send)) = (posted.get(&message), sent.get(&message)) else { break };
                        *clock = (*clock).max(post).max(send);
                    }
                    Op::ReduceGradients { .. } | Op::SyncEmbedding | Op::Step => {}
                }
                next[rank] += 1;
                moved = true;
            }
        }
    }
    assert!((0..next.len()).all(|rank| next[rank] == program.rank(rank).len()), "the walk is stuck");
    clocks.into_iter().max().unwrap_or(0)
}

fn time_of(shape: Shape) -> u64 {
    total_time(&Program::generate(shape).unwrap())
}

#[test]
fn totals_of_the_published_example() {
    let plain = time_of(shape(Kind::OneForwardOneBackward, 4, 1, 8));
    let interleaved = time_of(shape(Kind::Interleaved, 4, 2, 8));
    assert_eq!(plain, 33);
    assert_eq!(interleaved as f64 / 2.0, 28.5);
}

/// Bubble (p-1)(t_f+t_b) over v, on top of the ideal m(t_f+t_b).
#[test]
fn bubbles_equal_the_formulas() {
    let mut shapes = vec![shape(Kind::Interleaved, 4, 2, 16), shape(Kind::Interleaved, 8, 2, 16)];
    shapes.extend(support::small_shapes());
    for p in [2, 4, 7, 12] {
        for groups in [1, 2, 5] {
            shapes.push(shape(Kind::GPipe, p, 1, p * groups));
            shapes.push(shape(Kind::OneForwardOneBackward, p, 1, p * groups + 1));
            shapes.extend((1..=4).map(|v| shape(Kind::Interleaved, p, v, p * groups)));
        }
    }
    for shape in shapes {
        let (p, v, m) = (shape.pipeline as u64, shape.chunks as u64, shape.microbatches as u64);
        // In units of 1/v: the ideal is v*m*(t_f+t_b), the bubble (p-1)(t_f+t_b).
        let expected = (v * m + p - 1) * (FORWARD + BACKWARD);
        assert_eq!(time_of(shape), expected, "{shape:?}");
    }
}
