//! Ranks that are threads of one process.
//!
//! [`world`] makes one [`ThreadComm`] per rank; [`run_ranks`] gives each its thread and
//! brings the results, or the failure of the rank that failed first, back.
//!
//! **One board.** Who has arrived where, which messages are under way and what each rank
//! waits for stand on a board under one lock; a rank that waits has a bell of its own.
//! A lock per group was rejected: with one board, each wait can be compared with all
//! others at the moment it begins, so a collective that two ranks call differently, and
//! ranks that wait for each other in a circle, end at once with the calls of both named,
//! rather than after the time-out.
//!
//! **Collectives.** A rank arrives with the address of its buffer and stays in the call
//! until the call is over. The last to arrive cuts the buffers into chunks on cache
//! lines; whoever of the group is awake claims chunks, combines a chunk of all buffers in
//! rank order and writes it back to all of them. That is a reduce-scatter and a gather
//! in one pass: each byte is read once and written once. Which thread does a chunk has
//! no influence on its bits. A few KiB are one chunk, which the last to arrive does
//! alone, so that the others wake once. A fixed chunk per rank was rejected: where ranks
//! outnumber cores, all would wait for the one that is not running.
//!
//! **A published buffer outlives its readers.** Before the last rank arrives nobody
//! touches a buffer, and poison or a time-out takes the arrival off the board. From then
//! on the call cannot be left: it holds no wait, only bounded copying, and each rank
//! stays until the last chunk is done, poisoned or not. So an error, or a panic
//! elsewhere, may unwind in one process without a dangling pointer.
//!
//! **Messages** are moved onto the board and from there to their receiver.
//!
//! **Waiting.** Where every thread of every rank has a core ([`Waiting::Spin`]) a rank
//! spins for a short while, then parks; otherwise it parks at once.

mod board;
mod call;
mod measure;
mod run;
mod world;

pub use measure::{AllReduceRate, measure_all_reduce};
pub use run::{Cause, RankFailure, outcome_of, run_ranks};

use crate::{Comm, CommError, Grid, Group, Reduce, Route, Signature, Tag};
use call::Operand;
use henge_tensor::{Transfer, View, ViewMut};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use world::World;

/// How a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// On its core at first, for threads that each have one.
    Spin,
    /// Asleep, for more threads than cores.
    Park,
}

/// When the sender of a message is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// At once. Messages may pile up.
    Eager,
    /// Once its receive has been posted, as with large messages over a network; a
    /// program that completes so relies on no buffering.
    Rendezvous,
}

/// How the engine behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest a rank waits for others in one call.
    pub timeout: Duration,
    /// How long [`run_ranks`] waits, after a failure, for a rank that computes to come to
    /// its next call; one that does not is left behind.
    pub grace: Duration,
    /// How a rank waits.
    pub waiting: Waiting,
    /// When the sender of a message is done with it.
    pub delivery: Delivery,
}

impl Options {
    /// Ten minutes' time-out, ten seconds' grace, rendezvous; ranks spin only where every
    /// thread of every rank has a core.
    pub fn new(ranks: usize, threads_per_rank: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            timeout: Duration::from_secs(600),
            grace: Duration::from_secs(10),
            waiting: if ranks * threads_per_rank <= cores { Waiting::Spin } else { Waiting::Park },
            delivery: Delivery::Rendezvous,
        }
    }
}

/// One end per rank, in the order of ranks; each belongs into its own thread.
pub fn world<M: Transfer>(grid: Grid, options: Options) -> Vec<ThreadComm<M>> {
    let world = Arc::new(World::new(grid, options));
    (0..grid.ranks()).map(|rank| ThreadComm::new(rank, world.clone())).collect()
}

/// One rank's end.
///
/// It can move to another thread but not be shared by two: a rank makes one call at a
/// time, and the safety of published buffers stands on that.
pub struct ThreadComm<M> {
    rank: usize,
    world: Arc<World<M>>,
    groups: [Arc<[usize]>; Group::ALL.len()],
    one_call_at_a_time: PhantomData<Cell<()>>,
}

impl<M: Transfer> ThreadComm<M> {
    fn new(rank: usize, world: Arc<World<M>>) -> Self {
        let groups = Group::ALL.map(|group| world.grid.members(group, rank).into());
        Self { rank, world, groups, one_call_at_a_time: PhantomData }
    }

    fn members(&self, group: Group) -> &Arc<[usize]> {
        &self.groups[group as usize]
    }

    fn collective(&self, signature: Signature, operand: Operand) -> Result<(), CommError> {
        self.world.collective(self.rank, signature, self.members(signature.group), operand)
    }
}

impl<M: Transfer> Comm<M> for ThreadComm<M> {
    fn grid(&self) -> &Grid {
        &self.world.grid
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn at(&self, position: usize, operation: &str) {
        self.world.note_position(self.rank, position, operation);
    }

    /// Sums and maxima of `f32` and `f64`; a NaN of any rank is a NaN on all.
    fn all_reduce(&self, group: Group, data: ViewMut<'_>, how: Reduce) -> Result<(), CommError> {
        let signature = Signature::all_reduce(self.rank, group, &data, how);
        self.collective(signature, Operand { source: data.pointer(), target: data.pointer() })
    }

    fn all_gather(&self, group: Group, mine: View<'_>, all: ViewMut<'_>) -> Result<(), CommError> {
        let signature = Signature::all_gather(self.rank, group, self.members(group).len(), &mine, &all);
        self.collective(signature, Operand { source: mine.pointer(), target: all.pointer() })
    }

    fn broadcast(&self, group: Group, root: usize, data: ViewMut<'_>) -> Result<(), CommError> {
        let signature = Signature::broadcast(self.rank, group, self.members(group).len(), root, &data);
        self.collective(signature, Operand { source: data.pointer(), target: data.pointer() })
    }

    fn barrier(&self, group: Group) -> Result<(), CommError> {
        let nothing = Operand { source: std::ptr::null(), target: std::ptr::null_mut() };
        self.collective(Signature::barrier(group), nothing)
    }

    fn post_receive(&self, from: usize, tag: Tag, _blank: Box<dyn FnOnce() -> M + '_>) -> Result<(), CommError> {
        self.world.post_receive(self.route(from, self.rank, tag))
    }

    fn wait_receive(&self, from: usize, tag: Tag) -> Result<M, CommError> {
        self.world.wait_receive(self.route(from, self.rank, tag))
    }

    fn send(&self, to: usize, tag: Tag, message: M) -> Result<(), CommError> {
        self.world.send(self.route(self.rank, to, tag), message)
    }

    fn wait_send(&self, to: usize, tag: Tag) -> Result<(), CommError> {
        self.world.wait_send(self.route(self.rank, to, tag))
    }

    fn poison(&self, words: &str) {
        self.world.poison(self.rank, words);
    }
}

impl<M: Transfer> ThreadComm<M> {
    fn route(&self, from: usize, to: usize, tag: Tag) -> Route {
        let ranks = self.world.grid.ranks();
        assert!(from < ranks && to < ranks, "{tag} from rank {from} to rank {to}, of {ranks} ranks");
        Route { from, to, tag }
    }
}
