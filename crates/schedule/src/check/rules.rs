//! What the operations of a shape are: which exist, where, what each needs before it and with what it pairs.

use crate::generate::{input_of, output_of};
use crate::op::{Direction, Message, Op};
use crate::shape::{Shape, virtual_stage};

/// Where an operation stands to a shape.
pub(super) enum Standing {
    Legal,
    /// No rank has it.
    Unknown,
    /// Some rank has it, or has it with another peer.
    Misdirected,
}

pub(super) fn standing(shape: &Shape, rank: usize, op: Op) -> Standing {
    let in_shape = |chunk: usize, microbatch: usize| chunk < shape.chunks && microbatch < shape.microbatches;
    match op {
        Op::Forward { chunk, microbatch } | Op::Backward { chunk, microbatch } => known(in_shape(chunk, microbatch)),
        Op::ReduceGradients { chunk } => known(in_shape(chunk, 0)),
        Op::Step => Standing::Legal,
        Op::SyncEmbedding if shape.pipeline == 1 => Standing::Unknown,
        Op::SyncEmbedding => directed(is_end(shape, rank)),
        Op::PostRecv { message, .. }
        | Op::WaitRecv { message, .. }
        | Op::Send { message, .. }
        | Op::WaitSend { message, .. }
            if !message.exists_in(shape) =>
        {
            Standing::Unknown
        }
        Op::PostRecv { message, from } | Op::WaitRecv { message, from } => {
            let ends = message.ends(shape.pipeline);
            directed(ends.receiver == rank && ends.sender == from)
        }
        Op::Send { message, to } | Op::WaitSend { message, to } => {
            let ends = message.ends(shape.pipeline);
            directed(ends.sender == rank && ends.receiver == to)
        }
    }
}

fn known(exists: bool) -> Standing {
    if exists { Standing::Legal } else { Standing::Unknown }
}

fn directed(right: bool) -> Standing {
    if right { Standing::Legal } else { Standing::Misdirected }
}

fn is_end(shape: &Shape, rank: usize) -> bool {
    rank == 0 || rank + 1 == shape.pipeline
}

/// How many operations all ranks together must have.
pub(super) fn num_required(shape: &Shape) -> usize {
    let Shape { pipeline, microbatches, .. } = *shape;
    let boundaries = shape.stages() - 1;
    let computes = 2 * shape.stages() * microbatches;
    let transfers = 4 * 2 * boundaries * microbatches;
    let embedding_syncs = if pipeline > 1 { 2 } else { 0 };
    computes + transfers + shape.stages() + embedding_syncs + pipeline
}

/// Calls `visit` with every operation that `rank` must have.
pub(super) fn for_each_required(shape: &Shape, rank: usize, mut visit: impl FnMut(Op)) {
    for chunk in 0..shape.chunks {
        for microbatch in 0..shape.microbatches {
            for compute in [Op::Forward { chunk, microbatch }, Op::Backward { chunk, microbatch }] {
                visit(compute);
                if let Some(message) = input_of(shape, rank, compute) {
                    let from = message.ends(shape.pipeline).sender;
                    visit(Op::PostRecv { message, from });
                    visit(Op::WaitRecv { message, from });
                }
                if let Some(message) = output_of(shape, rank, compute) {
                    let to = message.ends(shape.pipeline).receiver;
                    visit(Op::Send { message, to });
                    visit(Op::WaitSend { message, to });
                }
            }
        }
        visit(Op::ReduceGradients { chunk });
    }
    if shape.pipeline > 1 && is_end(shape, rank) {
        visit(Op::SyncEmbedding);
    }
    visit(Op::Step);
}

/// Calls `visit` with the operations of the same rank that must come before `op`. `Step` comes after all and is not
/// asked for here.
pub(super) fn for_each_needed(shape: &Shape, rank: usize, op: Op, mut visit: impl FnMut(Op)) {
    match op {
        Op::Forward { .. } => visit_arrival(shape, rank, op, &mut visit),
        Op::Backward { chunk, microbatch } => {
            visit(Op::Forward { chunk, microbatch });
            visit_arrival(shape, rank, op, &mut visit);
        }
        Op::WaitRecv { message, from } => visit(Op::PostRecv { message, from }),
        Op::Send { message, .. } => visit(maker(shape, message)),
        Op::WaitSend { message, to } => visit(Op::Send { message, to }),
        Op::ReduceGradients { chunk } => {
            (0..shape.microbatches).for_each(|microbatch| visit(Op::Backward { chunk, microbatch }));
        }
        Op::SyncEmbedding => {
            let chunk = if rank == 0 { 0 } else { shape.chunks - 1 };
            visit(Op::ReduceGradients { chunk });
        }
        Op::PostRecv { .. } | Op::Step => {}
    }
}

fn visit_arrival(shape: &Shape, rank: usize, compute: Op, visit: &mut impl FnMut(Op)) {
    if let Some(message) = input_of(shape, rank, compute) {
        visit(Op::WaitRecv { message, from: message.ends(shape.pipeline).sender });
    }
}

/// The computation whose result a message carries.
fn maker(shape: &Shape, message: Message) -> Op {
    let (chunk, microbatch) = (message.stage / shape.pipeline, message.microbatch);
    match message.direction {
        Direction::Activation => Op::Forward { chunk, microbatch },
        Direction::Gradient => Op::Backward { chunk, microbatch },
    }
}

/// The operation on another rank that a legal or misdirected operation concerns most, for naming in errors.
pub(super) fn counterpart(shape: &Shape, rank: usize, op: Op) -> (usize, Op) {
    match op {
        Op::Forward { .. } | Op::Backward { .. } => compute_counterpart(shape, rank, op),
        Op::PostRecv { message, .. }
        | Op::WaitRecv { message, .. }
        | Op::Send { message, .. }
        | Op::WaitSend { message, .. } => message_counterpart(shape, rank, op, message),
        Op::SyncEmbedding if rank == 0 => (shape.pipeline - 1, op),
        Op::SyncEmbedding => (0, op),
        Op::ReduceGradients { .. } | Op::Step => (next_rank(shape, rank), op),
    }
}

/// For an operation that the shape does not have: a rank it may have meant, and what that rank would have to do.
pub(super) fn mirror(shape: &Shape, rank: usize, op: Op) -> (usize, Op) {
    let meant = |named: usize| {
        if named < shape.pipeline && named != rank { named } else { next_rank(shape, rank) }
    };
    match op {
        Op::PostRecv { message, from } | Op::WaitRecv { message, from } => {
            (meant(from), Op::Send { message, to: rank })
        }
        Op::Send { message, to } | Op::WaitSend { message, to } => (meant(to), Op::WaitRecv { message, from: rank }),
        _ => (next_rank(shape, rank), op),
    }
}

fn next_rank(shape: &Shape, rank: usize) -> usize {
    (rank + 1) % shape.pipeline
}

/// Who takes the result; where nobody does, who gave the input.
fn compute_counterpart(shape: &Shape, rank: usize, op: Op) -> (usize, Op) {
    if let Some(message) = output_of(shape, rank, op) {
        let ends = message.ends(shape.pipeline);
        return (ends.receiver, Op::WaitRecv { message, from: ends.sender });
    }
    if let Some(message) = input_of(shape, rank, op) {
        let ends = message.ends(shape.pipeline);
        return (ends.sender, Op::Send { message, to: ends.receiver });
    }
    (next_rank(shape, rank), Op::Step)
}

/// The other end of the message; where `rank` is at neither, the end that does what `op` does.
fn message_counterpart(shape: &Shape, rank: usize, op: Op, message: Message) -> (usize, Op) {
    let ends = message.ends(shape.pipeline);
    let sends = Op::Send { message, to: ends.receiver };
    let receives = Op::WaitRecv { message, from: ends.sender };
    let is_receive = matches!(op, Op::PostRecv { .. } | Op::WaitRecv { .. });
    if rank == ends.receiver || (rank != ends.sender && !is_receive) {
        (ends.sender, sends)
    } else {
        (ends.receiver, receives)
    }
}

/// A dense number for each legal operation of each rank, below [`slots`].
pub(super) fn slot(shape: &Shape, rank: usize, op: Op) -> usize {
    let computes = shape.stages() * shape.microbatches;
    let messages = Message::slots(shape);
    let compute =
        |chunk: usize, microbatch: usize| virtual_stage(shape.pipeline, rank, chunk) * shape.microbatches + microbatch;
    let rest = 2 * computes + 4 * messages;
    match op {
        Op::Forward { chunk, microbatch } => compute(chunk, microbatch),
        Op::Backward { chunk, microbatch } => computes + compute(chunk, microbatch),
        Op::PostRecv { message, .. } => 2 * computes + message.slot(shape),
        Op::WaitRecv { message, .. } => 2 * computes + messages + message.slot(shape),
        Op::Send { message, .. } => 2 * computes + 2 * messages + message.slot(shape),
        Op::WaitSend { message, .. } => 2 * computes + 3 * messages + message.slot(shape),
        Op::ReduceGradients { chunk } => rest + virtual_stage(shape.pipeline, rank, chunk),
        Op::SyncEmbedding => rest + shape.stages() + rank,
        Op::Step => rest + shape.stages() + shape.pipeline + rank,
    }
}

pub(super) fn slots(shape: &Shape) -> usize {
    2 * shape.stages() * shape.microbatches + 4 * Message::slots(shape) + shape.stages() + 2 * shape.pipeline
}
