//! What the tests share: a plain executor of programs, written apart from the checker, and numbers from a seed.

#![allow(dead_code)] // each test file uses its own part

use std::collections::{HashMap, HashSet};

use henge_schedule::{Direction, Kind, Message, Op, Program, Shape};

pub fn shape(kind: Kind, pipeline: usize, chunks: usize, microbatches: usize) -> Shape {
    Shape { kind, pipeline, chunks, microbatches }
}

/// Numbers that look random and repeat with the seed (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn scramble(seed: u64) -> u64 {
    let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn mix(a: u64, b: u64) -> u64 {
    scramble(a.wrapping_mul(31).wrapping_add(scramble(b)))
}

/// What a step leaves behind: every stage's new weights and the loss. Sums do not depend on the order of microbatches.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub weights: Vec<u64>,
    pub loss: u64,
}

/// Runs a program as a trainer would, with whole numbers for tensors and sends that complete only once their receive
/// has been posted. Says what went wrong when it cannot: an operand that is not there, a buffer filled twice or never
/// freed, more buffers than the schedule grants, ranks that wait for ever.
pub fn execute(program: &Program) -> Result<Outcome, String> {
    let mut world = World::new(program);
    loop {
        let mut moved = false;
        for rank in 0..program.shape.pipeline {
            while world.turn(rank)? {
                moved = true;
            }
        }
        moved |= world.exchange_embeddings()?;
        if !moved {
            break;
        }
    }
    for rank in 0..program.shape.pipeline {
        if !world.ranks[rank].stepped {
            return Err(format!("rank {rank} never steps: stuck at operation {}", world.ranks[rank].next));
        }
    }
    let weights = world.ranks.iter().flat_map(|rank| rank.weights.iter().copied()).collect();
    Ok(Outcome { weights, loss: world.loss })
}

#[derive(Default)]
struct Rank {
    next: usize,
    /// Waited for and not yet consumed.
    inbox: HashMap<Message, u64>,
    /// Made and not yet sent.
    outbox: HashMap<Message, u64>,
    saved: HashMap<(usize, usize), u64>,
    posted: HashSet<(Message, usize)>,
    sending: HashSet<(Message, usize)>,
    gradients: Vec<u64>,
    weights: Vec<u64>,
    stepped: bool,
}

struct World<'a> {
    program: &'a Program,
    ranks: Vec<Rank>,
    /// Messages under way and receives that were ever posted, by (message, sender, receiver).
    in_transit: HashMap<(Message, usize, usize), u64>,
    ever_posted: HashSet<(Message, usize, usize)>,
    loss: u64,
}

fn must(holds: bool, what: &str, rank: usize, op: Op) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("rank {rank}: {op:?}: {what}")) }
}

impl<'a> World<'a> {
    fn new(program: &'a Program) -> Self {
        let Shape { pipeline, chunks, .. } = program.shape;
        let rank = |rank: usize| Rank {
            // Not zero, so that one reduction too many shows even before the first backward.
            gradients: vec![1; chunks],
            weights: (0..chunks).map(|chunk| (chunk * pipeline + rank) as u64).collect(),
            ..Rank::default()
        };
        World {
            program,
            ranks: (0..pipeline).map(rank).collect(),
            in_transit: HashMap::new(),
            ever_posted: HashSet::new(),
            loss: 0,
        }
    }

    /// Does the rank's next operation; false when it must wait or is done.
    fn turn(&mut self, rank: usize) -> Result<bool, String> {
        let Some(&op) = self.program.ranks[rank].get(self.ranks[rank].next) else { return Ok(false) };
        let done = match op {
            Op::Forward { chunk, microbatch } => self.forward(rank, op, chunk, microbatch)?,
            Op::Backward { chunk, microbatch } => self.backward(rank, op, chunk, microbatch)?,
            Op::PostRecv { message, from } => self.post(rank, op, message, from)?,
            Op::WaitRecv { message, from } => self.receive(rank, op, message, from)?,
            Op::Send { message, to } => self.send(rank, op, message, to)?,
            Op::WaitSend { message, to } => self.finish_send(rank, op, message, to)?,
            Op::ReduceGradients { chunk } => self.reduce(rank, op, chunk)?,
            Op::SyncEmbedding => false,
            Op::Step => self.step(rank, op)?,
        };
        self.ranks[rank].next += usize::from(done);
        Ok(done)
    }

    fn stage(&self, rank: usize, op: Op, chunk: usize, microbatch: usize) -> Result<(usize, usize), String> {
        let Shape { pipeline, chunks, microbatches, .. } = self.program.shape;
        must(chunk < chunks && microbatch < microbatches, "no such work", rank, op)?;
        Ok((chunk * pipeline + rank, pipeline * chunks - 1))
    }

    fn forward(&mut self, rank: usize, op: Op, chunk: usize, microbatch: usize) -> Result<bool, String> {
        let (stage, last) = self.stage(rank, op, chunk, microbatch)?;
        let limit = in_flight_limit(&self.program.shape, rank);
        let own = &mut self.ranks[rank];
        let input = if stage == 0 {
            Some(mix(7, microbatch as u64))
        } else {
            own.inbox.remove(&Message { direction: Direction::Activation, stage: stage - 1, microbatch })
        };
        let input = input.ok_or_else(|| format!("rank {rank}: {op:?}: its input is not there"))?;
        must(own.saved.insert((chunk, microbatch), input).is_none(), "overwrites what it saved", rank, op)?;
        must(own.saved.len() <= limit, "too many in flight", rank, op)?;
        let output = mix(input, own.weights[chunk]);
        if stage == last {
            self.loss = self.loss.wrapping_add(output);
            return Ok(true);
        }
        let made = Message { direction: Direction::Activation, stage, microbatch };
        must(own.outbox.insert(made, output).is_none(), "overwrites an unsent output", rank, op)?;
        Ok(true)
    }

    fn backward(&mut self, rank: usize, op: Op, chunk: usize, microbatch: usize) -> Result<bool, String> {
        let (stage, last) = self.stage(rank, op, chunk, microbatch)?;
        let own = &mut self.ranks[rank];
        let saved = own.saved.remove(&(chunk, microbatch)).ok_or(format!("rank {rank}: {op:?}: nothing saved"))?;
        let gradient = if stage == last {
            Some(mix(11, saved))
        } else {
            own.inbox.remove(&Message { direction: Direction::Gradient, stage: stage + 1, microbatch })
        };
        let gradient = gradient.ok_or_else(|| format!("rank {rank}: {op:?}: its gradient is not there"))?;
        own.gradients[chunk] = own.gradients[chunk].wrapping_add(mix(saved, gradient));
        if stage == 0 {
            return Ok(true);
        }
        let made = Message { direction: Direction::Gradient, stage, microbatch };
        let unsent = own.outbox.insert(made, mix(gradient, own.weights[chunk]));
        must(unsent.is_none(), "overwrites an unsent gradient", rank, op)?;
        Ok(true)
    }

    fn post(&mut self, rank: usize, op: Op, message: Message, from: usize) -> Result<bool, String> {
        must(self.ever_posted.insert((message, from, rank)), "posted before", rank, op)?;
        let posted = &mut self.ranks[rank].posted;
        posted.insert((message, from));
        must(posted.len() <= self.program.receive_window + 1, "too many receives posted", rank, op)?;
        Ok(true)
    }

    fn receive(&mut self, rank: usize, op: Op, message: Message, from: usize) -> Result<bool, String> {
        must(self.ranks[rank].posted.contains(&(message, from)), "not posted", rank, op)?;
        let Some(&payload) = self.in_transit.get(&(message, from, rank)) else { return Ok(false) };
        self.ranks[rank].posted.remove(&(message, from));
        must(self.ranks[rank].inbox.insert(message, payload).is_none(), "arrives twice", rank, op)?;
        Ok(true)
    }

    fn send(&mut self, rank: usize, op: Op, message: Message, to: usize) -> Result<bool, String> {
        let payload = self.ranks[rank].outbox.remove(&message);
        let payload = payload.ok_or_else(|| format!("rank {rank}: {op:?}: nothing to send"))?;
        must(self.in_transit.insert((message, rank, to), payload).is_none(), "sent before", rank, op)?;
        self.ranks[rank].sending.insert((message, to));
        Ok(true)
    }

    fn finish_send(&mut self, rank: usize, op: Op, message: Message, to: usize) -> Result<bool, String> {
        must(self.ranks[rank].sending.contains(&(message, to)), "not sent", rank, op)?;
        if !self.ever_posted.contains(&(message, rank, to)) {
            return Ok(false);
        }
        self.ranks[rank].sending.remove(&(message, to));
        Ok(true)
    }

    /// Three replicas with the same gradients.
    fn reduce(&mut self, rank: usize, op: Op, chunk: usize) -> Result<bool, String> {
        must(chunk < self.program.shape.chunks, "no such chunk", rank, op)?;
        let gradient = &mut self.ranks[rank].gradients[chunk];
        *gradient = gradient.wrapping_mul(3);
        Ok(true)
    }

    /// Both ends of the pipeline meet and add.
    fn exchange_embeddings(&mut self) -> Result<bool, String> {
        let last = self.program.shape.pipeline - 1;
        let waits = |rank: usize| self.program.ranks[rank].get(self.ranks[rank].next) == Some(&Op::SyncEmbedding);
        if last == 0 || !waits(0) || !waits(last) {
            return Ok(false);
        }
        let last_chunk = self.program.shape.chunks - 1;
        let sum = self.ranks[0].gradients[0].wrapping_add(self.ranks[last].gradients[last_chunk]);
        self.ranks[0].gradients[0] = sum;
        self.ranks[last].gradients[last_chunk] = sum;
        self.ranks[0].next += 1;
        self.ranks[last].next += 1;
        Ok(true)
    }

    fn step(&mut self, rank: usize, op: Op) -> Result<bool, String> {
        let own = &mut self.ranks[rank];
        must(own.next + 1 == self.program.ranks[rank].len(), "work is left behind the step", rank, op)?;
        let idle = own.inbox.is_empty()
            && own.outbox.is_empty()
            && own.saved.is_empty()
            && own.posted.is_empty()
            && own.sending.is_empty();
        must(idle, "a buffer is still held", rank, op)?;
        for (weight, gradient) in own.weights.iter_mut().zip(&own.gradients) {
            *weight = mix(*weight, *gradient);
        }
        own.stepped = true;
        Ok(true)
    }
}

/// The published peaks, written out per kind: p ranks, r this one, v chunks, m microbatches.
pub fn in_flight_limit(shape: &Shape, r: usize) -> usize {
    let Shape { kind, pipeline: p, chunks: v, microbatches: m } = *shape;
    match kind {
        Kind::GPipe => m,
        Kind::OneForwardOneBackward => (p - r).min(m),
        Kind::Interleaved => (2 * (p - r - 1) + (v - 1) * p + 1).min(m * v),
    }
}

/// Small shapes of every kind, the odd ones included.
pub fn small_shapes() -> Vec<Shape> {
    let mut shapes = vec![];
    for p in 1..=5 {
        for m in [1, 2, 3, 5, 8] {
            shapes.push(shape(Kind::GPipe, p, 1, m));
            shapes.push(shape(Kind::OneForwardOneBackward, p, 1, m));
        }
        for groups in 1..=3 {
            shapes.push(shape(Kind::Interleaved, p, 1, p * groups));
            if p > 1 {
                shapes.push(shape(Kind::Interleaved, p, 2, p * groups));
                shapes.push(shape(Kind::Interleaved, p, 3, p * groups));
            }
        }
    }
    shapes
}
