//! Discrete-event simulation: walks the programs of all pipeline ranks.
//!
//! One tensor rank and one replica stand for all, which are alike. A rank's operations
//! run in order on its compute stream. A message leaves when its forward or backward is
//! done; overlapped it occupies only the link, else the sender too, as the blocking
//! exchanges of 2104.04473's artifact do. Reductions run on a stream of their own where
//! they overlap, else after the rank's last backward. `Step` waits for every rank,
//! because the gradient norm does.

use crate::cost::StepCost;
use crate::jitter::Jitter;
use crate::switches::Overlap;
use henge_schedule::{Direction, Message, Op, Program, Shape};
use std::collections::VecDeque;

/// Seconds of the operations, by virtual stage, link or rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Durations {
    /// Forward of a microbatch on a stage.
    pub forward: Vec<f64>,
    /// Backward of a microbatch on a stage.
    pub backward: Vec<f64>,
    /// Message from a stage to the next one, or back over the same boundary.
    pub message: Vec<f64>,
    /// Reduction of a stage's gradients.
    pub reduce: Vec<f64>,
    /// Share of a reduction that waits for the end of the last backward.
    pub reduce_tail: Vec<f64>,
    /// All-reduce of the tied table.
    pub sync_embedding: f64,
    /// Optimizer and gather of a rank.
    pub step: Vec<f64>,
    /// What runs beside computation.
    pub overlap: Overlap,
}

impl Durations {
    /// The durations of a priced step.
    pub fn of(cost: &StepCost, overlap: Overlap) -> Self {
        Self {
            forward: cost.forward.iter().map(|parts| parts.total()).collect(),
            backward: cost.backward.iter().map(|parts| parts.total()).collect(),
            message: cost.message.clone(),
            reduce: cost.reduce.clone(),
            reduce_tail: cost.reduce_tail.clone(),
            sync_embedding: cost.sync_embedding,
            step: cost.optimizer.iter().zip(&cost.gather).map(|(step, gather)| step + gather).collect(),
            overlap,
        }
    }

    /// Equal stages that do nothing but forwards and backwards.
    pub fn uniform(
        stages: usize,
        pipeline: usize,
        forward: f64,
        backward: f64,
        message: f64,
        overlap: Overlap,
    ) -> Self {
        Self {
            forward: vec![forward; stages],
            backward: vec![backward; stages],
            message: vec![message; stages],
            reduce: vec![0.0; stages],
            reduce_tail: vec![0.0; stages],
            sync_embedding: 0.0,
            step: vec![0.0; pipeline],
            overlap,
        }
    }
}

/// What one rank did with its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankTime {
    /// Forwards and backwards.
    pub compute: f64,
    /// Sends that blocked it.
    pub messages: f64,
    /// When its last backward and send were done.
    pub flushed: f64,
    /// When it was ready to step: reductions done.
    pub reduced: f64,
}

/// A simulated step.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Seconds from the first forward to the end of the slowest rank's step.
    pub seconds: f64,
    /// When the last backward of all ranks ended.
    pub flush: f64,
    /// By pipeline rank.
    pub ranks: Vec<RankTime>,
}

impl Outcome {
    /// The rank with the most work, which the pipeline waits for.
    pub fn busiest(&self) -> usize {
        let by_work = |a: &usize, b: &usize| self.ranks[*a].compute.total_cmp(&self.ranks[*b].compute);
        (0..self.ranks.len()).max_by(by_work).unwrap_or(0)
    }

    /// Seconds in which the busiest rank neither computes nor sends before the flush.
    pub fn bubble(&self) -> f64 {
        let rank = self.ranks[self.busiest()];
        (self.flush - rank.compute - rank.messages).max(0.0)
    }

    /// Bubble over the ideal time: the busiest rank's computation.
    pub fn bubble_fraction(&self) -> f64 {
        self.bubble() / self.ranks[self.busiest()].compute
    }
}

/// A stretch of a rank's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Pipeline rank.
    pub rank: usize,
    /// What it did.
    pub op: Op,
    /// Seconds from the start of the step.
    pub start: f64,
    /// Seconds from the start of the step.
    pub end: f64,
}

/// Who wants to know every stretch of time; `()` does not.
pub trait Observer {
    /// Called once for each operation that takes time, in each rank's order.
    fn span(&mut self, span: Span);
}

impl Observer for () {
    fn span(&mut self, _: Span) {}
}

impl Observer for Vec<Span> {
    fn span(&mut self, span: Span) {
        self.push(span);
    }
}

/// Simulates a step of `program`.
///
/// # Panics
/// When the program waits for a message that nobody sends; a generated one does not.
pub fn simulate(program: &Program, durations: &Durations, jitter: &Jitter, observer: &mut impl Observer) -> Outcome {
    let mut walk = Walk::new(program, durations, jitter);
    while let Some(rank) = walk.ready.pop_front() {
        walk.queued[rank] = false;
        walk.advance(rank, observer);
    }
    walk.finish(observer)
}

/// A rank on its way through its program.
#[derive(Clone, Copy, Default)]
struct Cursor {
    position: usize,
    now: f64,
    /// When the stream of reductions is free.
    reductions: f64,
    /// Reductions put off until after the last backward.
    deferred: f64,
    /// When its outgoing link of each direction is free.
    link: [f64; 2],
    time: RankTime,
}

struct Walk<'a> {
    program: &'a Program,
    shape: Shape,
    durations: &'a Durations,
    jitter: &'a Jitter,
    cursors: Vec<Cursor>,
    arrivals: Vec<f64>,
    ready: VecDeque<usize>,
    queued: Vec<bool>,
}

/// An arrival that has not happened.
const NEVER: f64 = f64::INFINITY;

impl<'a> Walk<'a> {
    fn new(program: &'a Program, durations: &'a Durations, jitter: &'a Jitter) -> Self {
        let shape = program.shape;
        Self {
            program,
            shape,
            durations,
            jitter,
            cursors: vec![Cursor::default(); shape.pipeline],
            arrivals: vec![NEVER; 2 * shape.stages() * shape.microbatches],
            ready: (0..shape.pipeline).collect(),
            queued: vec![true; shape.pipeline],
        }
    }

    /// Runs a rank until it waits for what has not arrived, or for all at its step.
    fn advance(&mut self, rank: usize, observer: &mut impl Observer) {
        let program = self.program;
        while let Some(op) = program.ranks[rank].get(self.cursors[rank].position) {
            let start = self.cursors[rank].now;
            let went_on = match *op {
                Op::Forward { chunk, .. } => self.compute(rank, chunk, &self.durations.forward),
                Op::Backward { chunk, .. } => self.compute(rank, chunk, &self.durations.backward),
                Op::WaitRecv { message, .. } => self.wait(rank, message),
                Op::Send { message, to } => self.send(rank, message, to),
                Op::ReduceGradients { chunk } => self.reduce(rank, chunk),
                Op::PostRecv { .. } | Op::WaitSend { .. } | Op::SyncEmbedding => true,
                Op::Step => false,
            };
            if !went_on {
                return;
            }
            let cursor = &mut self.cursors[rank];
            cursor.position += 1;
            if cursor.now > start && !matches!(op, Op::WaitRecv { .. }) {
                observer.span(Span { rank, op: *op, start, end: cursor.now });
            }
        }
    }

    fn compute(&mut self, rank: usize, chunk: usize, durations: &[f64]) -> bool {
        let stage = chunk * self.shape.pipeline + rank;
        let cursor = &mut self.cursors[rank];
        let seconds = durations[stage] * self.jitter.factor(rank, cursor.position);
        cursor.now += seconds;
        cursor.time.compute += seconds;
        cursor.time.flushed = cursor.now;
        true
    }

    fn slot(&self, message: Message) -> usize {
        let half = match message.direction {
            Direction::Activation => 0,
            Direction::Gradient => self.shape.stages(),
        };
        (half + message.stage) * self.shape.microbatches + message.microbatch
    }

    fn wait(&mut self, rank: usize, message: Message) -> bool {
        let arrival = self.arrivals[self.slot(message)];
        if arrival == NEVER {
            return false;
        }
        let cursor = &mut self.cursors[rank];
        cursor.now = cursor.now.max(arrival);
        true
    }

    fn send(&mut self, rank: usize, message: Message, to: usize) -> bool {
        let (boundary, direction) = match message.direction {
            Direction::Activation => (message.stage, 0),
            Direction::Gradient => (message.stage - 1, 1),
        };
        let seconds = self.durations.message[boundary];
        let cursor = &mut self.cursors[rank];
        let arrival = cursor.now.max(cursor.link[direction]) + seconds;
        cursor.link[direction] = arrival;
        if !self.durations.overlap.pipeline {
            cursor.time.messages += seconds;
            cursor.now = arrival;
            cursor.time.flushed = arrival;
        }
        let slot = self.slot(message);
        self.arrivals[slot] = arrival;
        if !self.queued[to] {
            self.queued[to] = true;
            self.ready.push_back(to);
        }
        true
    }

    /// Overlapped, the reduction runs beside the last backward of its chunk, but for its
    /// tail; else it waits for the end of all backwards.
    fn reduce(&mut self, rank: usize, chunk: usize) -> bool {
        let stage = chunk * self.shape.pipeline + rank;
        let seconds = self.durations.reduce[stage];
        let cursor = &mut self.cursors[rank];
        if !self.durations.overlap.data {
            cursor.deferred += seconds;
            return true;
        }
        let tail = self.durations.reduce_tail[stage];
        let begin = cursor.now - (1.0 - tail) * self.durations.backward[stage];
        let done = cursor.reductions.max(begin) + seconds;
        cursor.reductions = done.max(cursor.now + tail * seconds);
        true
    }

    fn finish(mut self, observer: &mut impl Observer) -> Outcome {
        for (rank, cursor) in self.cursors.iter_mut().enumerate() {
            let at_step = self.program.ranks[rank].get(cursor.position) == Some(&Op::Step);
            assert!(at_step, "rank {rank} waits for a message that nobody sends");
            let reduced = cursor.now.max(cursor.reductions) + cursor.deferred;
            if reduced > cursor.now {
                let op = Op::ReduceGradients { chunk: 0 };
                observer.span(Span { rank, op, start: cursor.now, end: reduced });
            }
            cursor.time.reduced = reduced;
        }
        let flush = self.cursors.iter().map(|cursor| cursor.time.flushed).fold(0.0, f64::max);
        let begin = self.synchronise(observer);
        let end = |rank: usize| begin + self.durations.step[rank];
        for rank in 0..self.shape.pipeline {
            observer.span(Span { rank, op: Op::Step, start: begin, end: end(rank) });
        }
        let seconds = (0..self.shape.pipeline).map(end).fold(0.0, f64::max);
        Outcome { seconds, flush, ranks: self.cursors.iter().map(|cursor| cursor.time).collect() }
    }

    /// The two ends exchange the tied table; then all ranks share the norm.
    fn synchronise(&mut self, observer: &mut impl Observer) -> f64 {
        let last = self.shape.pipeline - 1;
        let seconds = self.durations.sync_embedding;
        if last > 0 && seconds > 0.0 {
            let start = self.cursors[0].time.reduced.max(self.cursors[last].time.reduced);
            for rank in [0, last] {
                self.cursors[rank].time.reduced = start + seconds;
                observer.span(Span { rank, op: Op::SyncEmbedding, start, end: start + seconds });
            }
        }
        self.cursors.iter().map(|cursor| cursor.time.reduced).fold(0.0, f64::max)
    }
}
