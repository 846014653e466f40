//! From a shape to each rank's list: first the order of its forwards and backwards, then the messages around them.
//!
//! In formulas: p pipeline ranks, r this rank, v chunks, m microbatches, w warm-up forwards.

use crate::op::{Message, Op};
use crate::shape::{Kind, Shape, rank_and_chunk, virtual_stage};

/// The smallest receive window with which a program of this valid shape cannot deadlock when a send completes only once
/// its receive has been posted.
///
/// The closed form of a search from 0 upward, which the tests repeat. In GPipe two neighbours never send to each other
/// at the same time. In 1F1B they do in every steady step, and one receive posted ahead breaks the tie. Interleaving
/// wraps from the last rank to the first and takes two; with one chunk per rank, where its only effect is a warm-up
/// longer than 1F1B's, three.
pub fn smallest_window(shape: &Shape) -> usize {
    if shape.pipeline == 1 || shape.microbatches == 1 {
        return 0;
    }
    match shape.kind {
        Kind::GPipe => 0,
        Kind::OneForwardOneBackward => 1,
        Kind::Interleaved if shape.microbatches == shape.pipeline => 1,
        Kind::Interleaved if shape.chunks == 1 && shape.pipeline > 2 => 3,
        Kind::Interleaved => 2,
    }
}

/// All operations of one rank of a valid shape.
pub(crate) fn rank_ops(shape: &Shape, rank: usize, window: usize) -> Vec<Op> {
    let receives: Vec<Op> = compute_order(shape, rank).filter_map(|op| post_for(shape, rank, op)).collect();
    // At most five operations around each forward and backward, and few beside them.
    let mut ops = Vec::with_capacity(10 * shape.forwards_per_rank() + shape.chunks + 2);
    let mut backwards_left = vec![shape.microbatches; shape.chunks];
    let (mut posted, mut waited) = (0, 0);
    for compute in compute_order(shape, rank) {
        if let Some(Op::PostRecv { message, from }) = post_for(shape, rank, compute) {
            let ahead = receives.len().min(window.saturating_add(waited + 1));
            ops.extend_from_slice(&receives[posted..ahead]);
            posted = ahead;
            waited += 1;
            ops.push(Op::WaitRecv { message, from });
        }
        ops.push(compute);
        let send = send_for(shape, rank, compute);
        // The message goes out before the reduction starts: another rank's backward hangs on it.
        ops.extend(send);
        ops.extend(reduction_after(compute, &mut backwards_left));
        if let Some(Op::Send { message, to }) = send {
            ops.push(Op::WaitSend { message, to });
        }
    }
    if shape.pipeline > 1 && (rank == 0 || rank + 1 == shape.pipeline) {
        ops.push(Op::SyncEmbedding);
    }
    ops.push(Op::Step);
    ops
}

/// Forwards and backwards of a rank: w forwards, then one of each in turn, then the backwards that are left.
fn compute_order(shape: &Shape, rank: usize) -> impl Iterator<Item = Op> {
    let shape = *shape;
    let (warmup, total) = (shape.warmup(rank), shape.forwards_per_rank());
    let steady = total - warmup;
    (0..warmup)
        .map(move |k| forward_step(&shape, k))
        .chain((0..steady).flat_map(move |k| [forward_step(&shape, k + warmup), backward_step(&shape, k)]))
        .chain((steady..total).map(move |k| backward_step(&shape, k)))
}

/// The k-th forward: p microbatches through chunk 0, the same p through chunk 1, and so on, then the next p.
fn forward_step(shape: &Shape, k: usize) -> Op {
    let (chunk, microbatch) = group_step(shape, k);
    Op::Forward { chunk, microbatch }
}

/// The k-th backward: as the forwards, but from the last chunk down.
fn backward_step(shape: &Shape, k: usize) -> Op {
    let (chunk, microbatch) = group_step(shape, k);
    Op::Backward { chunk: shape.chunks - 1 - chunk, microbatch }
}

fn group_step(shape: &Shape, k: usize) -> (usize, usize) {
    let group = shape.pipeline * shape.chunks;
    let chunk = k % group / shape.pipeline;
    let microbatch = k / group * shape.pipeline + k % shape.pipeline;
    (chunk, microbatch)
}

/// The message that a forward or backward consumes, as the operation that posts its receive.
fn post_for(shape: &Shape, rank: usize, compute: Op) -> Option<Op> {
    let message = input_of(shape, rank, compute)?;
    let (from, _) = rank_and_chunk(shape.pipeline, message.stage);
    Some(Op::PostRecv { message, from })
}

/// The message that a forward or backward makes, as the operation that sends it.
fn send_for(shape: &Shape, rank: usize, compute: Op) -> Option<Op> {
    let message = output_of(shape, rank, compute)?;
    let to = message.ends(shape.pipeline).receiver;
    Some(Op::Send { message, to })
}

/// The message that must have arrived before `compute` can run, if it takes one.
pub(crate) fn input_of(shape: &Shape, rank: usize, compute: Op) -> Option<Message> {
    let message = match compute {
        Op::Forward { chunk, microbatch } => {
            let stage = virtual_stage(shape.pipeline, rank, chunk);
            Message::activation(stage.checked_sub(1)?, microbatch)
        }
        Op::Backward { chunk, microbatch } => {
            let stage = virtual_stage(shape.pipeline, rank, chunk);
            Message::gradient(stage + 1, microbatch)
        }
        _ => return None,
    };
    message.exists_in(shape).then_some(message)
}

/// The message that `compute` makes, if it makes one.
pub(crate) fn output_of(shape: &Shape, rank: usize, compute: Op) -> Option<Message> {
    let message = match compute {
        Op::Forward { chunk, microbatch } => {
            Message::activation(virtual_stage(shape.pipeline, rank, chunk), microbatch)
        }
        Op::Backward { chunk, microbatch } => Message::gradient(virtual_stage(shape.pipeline, rank, chunk), microbatch),
        _ => return None,
    };
    message.exists_in(shape).then_some(message)
}

fn reduction_after(compute: Op, backwards_left: &mut [usize]) -> Option<Op> {
    let Op::Backward { chunk, .. } = compute else {
        return None;
    };
    backwards_left[chunk] -= 1;
    (backwards_left[chunk] == 0).then_some(Op::ReduceGradients { chunk })
}
