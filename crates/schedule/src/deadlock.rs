//! Does a program end when a send completes only once its receive has been posted?
//!
//! That is the least a transport promises (rendezvous: no buffering anywhere), so a program that ends here ends on all.
//! Each rank runs until it blocks; the operation that unblocks it wakes it. Every operation is tried at most a few
//! times, and the answer does not depend on the order in which ranks are tried: an operation once possible stays so.

use std::fmt;
use std::num::NonZeroU32;

use thiserror::Error;

use crate::op::{Ends, Message, Op};
use crate::program::Program;
use crate::shape::Shape;
use crate::site::Site;

/// Ranks that block each other for good.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("deadlock: {}; post the receives earlier (a larger receive window) or reorder", Chain(.waiting))]
pub struct Deadlock {
    /// Each rank waits for the next, and the last for the first; or, where the last is not blocked, it has ended
    /// without the operation named. At least one, and two unless a rank waits for itself.
    pub waiting: Vec<Site>,
}

impl Deadlock {
    /// The first two ranks of the chain.
    pub fn ranks(&self) -> (usize, usize) {
        let first = self.waiting[0].rank;
        (first, self.waiting.get(1).map_or(first, |site| site.rank))
    }
}

struct Chain<'a>(&'a [Site]);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, site) in self.0.iter().enumerate() {
            let link = if index == 0 { "" } else { " waits for " };
            write!(f, "{link}{site}")?;
        }
        match self.0 {
            // A rank that has ended waits for nobody.
            [.., Site { position: None, .. }] => Ok(()),
            [first, ..] => write!(f, " waits for rank {}", first.rank),
            [] => Ok(()),
        }
    }
}

/// Walks a program with sends that complete only once their receives have been posted.
///
/// Only messages and the meeting of the pipeline's ends block; [`check`](crate::check) sees to the rest. A message
/// between other ranks than the shape says never arrives; one posted or sent twice counts once.
///
/// # Errors
/// The ranks that wait for each other, when the program does not end.
///
/// # Panics
/// When the shape is not valid or the number of ranks is not the shape's.
pub fn simulate_blocking(program: &Program) -> Result<(), Deadlock> {
    assert!(program.shape.validate().is_ok(), "{:?} has no program", program.shape);
    assert_eq!(program.ranks.len(), program.shape.pipeline, "one list per rank");
    let mut walk = Walk::new(program);
    while let Some(rank) = walk.ready.pop() {
        walk.run(rank);
    }
    match (0..program.ranks.len()).find(|&rank| walk.next_op(rank).is_some()) {
        Some(blocked) => Err(Deadlock { waiting: walk.waiting_chain(blocked) }),
        None => Ok(()),
    }
}

/// What an operation does to the walk. The walk hops between ranks and so waits for memory: a list of these takes a
/// fifth of the room of the operations.
#[derive(Clone, Copy)]
enum Turn {
    /// Nothing.
    Pass,
    /// Declares a side (`POSTED`, `SENT`) of the message in this slot.
    Declare(u32, u8),
    /// Waits until both sides of the message in this slot are declared.
    Meet(u32),
    /// Waits for the other end of the pipeline.
    Sync,
    /// Waits for a message that nobody sends.
    Never,
}

const POSTED: u8 = 1;
const SENT: u8 = 2;

/// How far a message has come.
#[derive(Clone, Copy, Default)]
struct Sides {
    declared: u8,
    /// One more than the rank that was the last to wait for this message.
    waiting: Option<NonZeroU32>,
}

fn turn(shape: &Shape, rank: usize, op: Op) -> Turn {
    match op {
        Op::PostRecv { message, from } => {
            slot(shape, message, from, rank).map_or(Turn::Pass, |slot| Turn::Declare(slot, POSTED))
        }
        Op::Send { message, to } => slot(shape, message, rank, to).map_or(Turn::Pass, |slot| Turn::Declare(slot, SENT)),
        Op::WaitRecv { message, from } => slot(shape, message, from, rank).map_or(Turn::Never, Turn::Meet),
        Op::WaitSend { message, to } => slot(shape, message, rank, to).map_or(Turn::Never, Turn::Meet),
        Op::SyncEmbedding => Turn::Sync,
        Op::Forward { .. } | Op::Backward { .. } | Op::ReduceGradients { .. } | Op::Step => Turn::Pass,
    }
}

/// The slot of a message if these are the ranks it connects. A valid shape has fewer than 2^24 slots.
fn slot(shape: &Shape, message: Message, sender: usize, receiver: usize) -> Option<u32> {
    let connects = message.exists_in(shape) && message.ends(shape.pipeline) == Ends { sender, receiver };
    connects.then(|| message.slot(shape) as u32)
}

struct Walk<'a> {
    program: &'a Program,
    turns: Vec<Vec<Turn>>,
    /// Per rank, the index of its next operation.
    next: Vec<usize>,
    ready: Vec<usize>,
    /// Per rank, whether it waits to be woken.
    blocked: Vec<bool>,
    /// By message slot.
    messages: Vec<Sides>,
    /// Per rank, whether it has come to its embedding exchange.
    at_sync: Vec<bool>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program) -> Self {
        let ranks = program.ranks.len();
        let turns = |(rank, ops): (usize, &Vec<Op>)| ops.iter().map(|&op| turn(&program.shape, rank, op)).collect();
        Walk {
            program,
            turns: program.ranks.iter().enumerate().map(turns).collect(),
            next: vec![0; ranks],
            ready: (0..ranks).rev().collect(),
            blocked: vec![false; ranks],
            messages: vec![Sides::default(); Message::slots(&program.shape)],
            at_sync: vec![false; ranks],
        }
    }

    fn next_op(&self, rank: usize) -> Option<Op> {
        self.program.ranks[rank].get(self.next[rank]).copied()
    }

    fn run(&mut self, rank: usize) {
        while let Some(&turn) = self.turns[rank].get(self.next[rank]) {
            if !self.advance(rank, turn) {
                self.blocked[rank] = true;
                return;
            }
            self.next[rank] += 1;
        }
    }

    /// Takes the turn if that is possible now.
    fn advance(&mut self, rank: usize, turn: Turn) -> bool {
        match turn {
            Turn::Pass => true,
            Turn::Declare(slot, side) => {
                let sides = &mut self.messages[slot as usize];
                sides.declared |= side;
                if let Some(waiting) = sides.waiting {
                    self.wake(waiting.get() as usize - 1);
                }
                true
            }
            Turn::Meet(slot) => {
                let sides = &mut self.messages[slot as usize];
                sides.waiting = NonZeroU32::new(rank as u32 + 1);
                sides.declared == POSTED | SENT
            }
            Turn::Sync => self.meet_other_end(rank),
            Turn::Never => false,
        }
    }

    fn wake(&mut self, rank: usize) {
        if self.blocked[rank] {
            self.blocked[rank] = false;
            self.ready.push(rank);
        }
    }

    fn meet_other_end(&mut self, rank: usize) -> bool {
        let other = self.other_end(rank);
        self.at_sync[rank] = true;
        self.wake(other);
        self.at_sync[other]
    }

    fn other_end(&self, rank: usize) -> usize {
        if rank == 0 { self.program.ranks.len() - 1 } else { 0 }
    }

    /// Who waits for whom, from a blocked rank on: the ring, or the way to a rank that has ended.
    fn waiting_chain(&self, start: usize) -> Vec<Site> {
        let mut chain: Vec<usize> = Vec::new();
        let mut rank = start;
        loop {
            if let Some(ring_start) = chain.iter().position(|&earlier| earlier == rank) {
                return chain[ring_start..].iter().map(|&rank| self.blocked_site(rank)).collect();
            }
            let Some(op) = self.next_op(rank) else { break };
            chain.push(rank);
            let (peer, _) = self.awaited(rank, op);
            if peer >= self.program.ranks.len() {
                break;
            }
            rank = peer;
        }
        let last = *chain.last().expect("the walk starts at a blocked rank");
        let (peer, missing) = self.awaited(last, self.program.ranks[last][self.next[last]]);
        vec![self.blocked_site(last), Site::new(&self.program.shape, peer, None, missing)]
    }

    fn blocked_site(&self, rank: usize) -> Site {
        let position = self.next[rank];
        Site::new(&self.program.shape, rank, Some(position), self.program.ranks[rank][position])
    }

    /// The rank that could unblock `op`, and what it would have to do.
    fn awaited(&self, rank: usize, op: Op) -> (usize, Op) {
        match op {
            Op::WaitRecv { message, from } => (from, Op::Send { message, to: rank }),
            Op::WaitSend { message, to } => (to, Op::PostRecv { message, from: rank }),
            // Nothing else blocks.
            _ => (self.other_end(rank), Op::SyncEmbedding),
        }
    }
}
