//! What a rank talks through.

use crate::{CommError, Grid, Group};
use henge_tensor::{Real, Transfer, View, ViewMut};
use std::fmt;

/// How a reduction combines elements, in the order of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Sum.
    Sum,
    /// Maximum.
    Max,
}

impl Reduce {
    /// Combines `part` into `all`, element by element. A NaN on either side is what remains.
    pub fn fold<T: Real>(self, all: &mut [T], part: &[T]) {
        let pairs = all.iter_mut().zip(part);
        match self {
            Self::Sum => pairs.for_each(|(all, &value)| *all += value),
            // A comparison with NaN is false.
            Self::Max => {
                pairs.for_each(|(all, &value)| *all = if *all >= value || all.is_nan() { *all } else { value })
            }
        }
    }
}

/// Names a message between two ranks: two messages of a step never share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// What flows: 0 activations, 1 gradients, others free.
    pub direction: u8,
    /// Virtual stage that sends.
    pub stage: u32,
    /// Microbatch.
    pub microbatch: u64,
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, stage, microbatch } = self;
        match direction {
            0 => write!(f, "activations")?,
            1 => write!(f, "gradients")?,
            other => write!(f, "message of kind {other}")?,
        }
        write!(f, " of stage {stage}, microbatch {microbatch}")
    }
}

/// One rank's end of the network. Every call ends within the engine's time-out or with
/// an error that names what it waited for and from whom.
///
/// `M` is what messages carry; in one process it is handed over without a copy.
pub trait Comm<M: Transfer>: Send {
    /// The grid of ranks.
    fn grid(&self) -> &Grid;
    /// This rank's number in the world.
    fn rank(&self) -> usize;
    /// Notes where in its program this rank is, for reports: operation number and text.
    fn at(&self, position: usize, operation: &str);

    /// Combines `data` over the group; every rank ends with the same bits.
    fn all_reduce(&self, group: Group, data: ViewMut<'_>, how: Reduce) -> Result<(), CommError>;
    /// Concatenates each rank's `mine` into `all`, in the group's order.
    fn all_gather(&self, group: Group, mine: View<'_>, all: ViewMut<'_>) -> Result<(), CommError>;
    /// Copies `data` from the group's member `root` (its index in the group) to all.
    fn broadcast(&self, group: Group, root: usize, data: ViewMut<'_>) -> Result<(), CommError>;
    /// Returns once every rank of the group has called.
    fn barrier(&self, group: Group) -> Result<(), CommError>;

    /// Announces that this rank will take message `tag` from `from`; `blank` has its size,
    /// for engines that receive into memory of the receiver's.
    fn post_receive(&self, from: usize, tag: Tag, blank: Box<dyn FnOnce() -> M + '_>) -> Result<(), CommError>;
    /// Takes a message announced before.
    fn wait_receive(&self, from: usize, tag: Tag) -> Result<M, CommError>;
    /// Starts a message; it completes at the latest when its receive has been posted.
    fn send(&self, to: usize, tag: Tag, message: M) -> Result<(), CommError>;
    /// Returns once the message is complete.
    fn wait_send(&self, to: usize, tag: Tag) -> Result<(), CommError>;

    /// Announces a message and takes it.
    fn receive(&self, from: usize, tag: Tag, blank: Box<dyn FnOnce() -> M + '_>) -> Result<M, CommError> {
        self.post_receive(from, tag, blank)?;
        self.wait_receive(from, tag)
    }
    /// Sends a message and returns once it is complete.
    fn deliver(&self, to: usize, tag: Tag, message: M) -> Result<(), CommError> {
        self.send(to, tag, message)?;
        self.wait_send(to, tag)
    }

    /// Poisons the world: every wait of every rank ends with an error that carries these
    /// words. The first poison stands.
    fn poison(&self, words: &str);
}
