//! Faults on purpose.

use crate::{Comm, CommError, Grid, Group, Reduce, Tag};
use henge_tensor::{Transfer, View, ViewMut};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The rank panics.
    Panic,
    /// The rank's next call returns [`CommError::Injected`].
    Error,
    /// The rank never goes on.
    Stall,
    /// The rank sleeps so long, then goes on.
    Slow(Duration),
}

/// Where a fault happens, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank.
    pub rank: usize,
    /// What the text of the operation begins with; all texts begin with an empty one.
    pub operation: String,
    /// How many such operations the rank comes to first. Where the text occurs once a
    /// step this is the number of the step, from 0.
    pub after: usize,
    /// What happens at the next one.
    pub kind: FaultKind,
}

/// A rank's end that fails on purpose when its program comes to a given operation
/// (see [`Comm::at`]); otherwise that of `C`.
pub struct Faulty<C> {
    inner: C,
    faults: RefCell<Vec<Fault>>,
    pending: Cell<Option<CommError>>,
}

impl<C> Faulty<C> {
    /// `inner`, with those of `faults` that are its rank's.
    pub fn new<M: Transfer>(inner: C, faults: &[Fault]) -> Self
    where
        C: Comm<M>,
    {
        let own = faults.iter().filter(|fault| fault.rank == inner.rank()).cloned().collect();
        Self { inner, faults: RefCell::new(own), pending: Cell::new(None) }
    }

    /// The kind of the fault that is due at this operation; each happens once.
    fn due(&self, operation: &str) -> Option<FaultKind> {
        let mut faults = self.faults.borrow_mut();
        let mut due = None;
        for (index, fault) in faults.iter_mut().enumerate().filter(|(_, fault)| operation.starts_with(&fault.operation))
        {
            match fault.after.checked_sub(1) {
                Some(fewer) => fault.after = fewer,
                None => due = due.or(Some(index)),
            }
        }
        due.map(|index| faults.remove(index).kind)
    }

    fn sound(&self) -> Result<&C, CommError> {
        self.pending.take().map_or(Ok(&self.inner), Err)
    }
}

impl<M: Transfer, C: Comm<M>> Comm<M> for Faulty<C> {
    fn grid(&self) -> &Grid {
        self.inner.grid()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn at(&self, position: usize, operation: &str) {
        self.inner.at(position, operation);
        let rank = self.inner.rank();
        match self.due(operation) {
            None => {}
            Some(FaultKind::Panic) => panic!("injected panic of rank {rank} at operation {position} ({operation})"),
            Some(FaultKind::Error) => {
                self.pending.set(Some(CommError::Injected { rank, position, operation: operation.to_owned() }));
            }
            Some(FaultKind::Stall) => loop {
                std::thread::park();
            },
            Some(FaultKind::Slow(time)) => std::thread::sleep(time),
        }
    }

    fn all_reduce(&self, group: Group, data: ViewMut<'_>, how: Reduce) -> Result<(), CommError> {
        self.sound()?.all_reduce(group, data, how)
    }

    fn all_gather(&self, group: Group, mine: View<'_>, all: ViewMut<'_>) -> Result<(), CommError> {
        self.sound()?.all_gather(group, mine, all)
    }

    fn broadcast(&self, group: Group, root: usize, data: ViewMut<'_>) -> Result<(), CommError> {
        self.sound()?.broadcast(group, root, data)
    }

    fn barrier(&self, group: Group) -> Result<(), CommError> {
        self.sound()?.barrier(group)
    }

    fn post_receive(&self, from: usize, tag: Tag, blank: Box<dyn FnOnce() -> M + '_>) -> Result<(), CommError> {
        self.sound()?.post_receive(from, tag, blank)
    }

    fn wait_receive(&self, from: usize, tag: Tag) -> Result<M, CommError> {
        self.sound()?.wait_receive(from, tag)
    }

    fn send(&self, to: usize, tag: Tag, message: M) -> Result<(), CommError> {
        self.sound()?.send(to, tag, message)
    }

    fn wait_send(&self, to: usize, tag: Tag) -> Result<(), CommError> {
        self.sound()?.wait_send(to, tag)
    }

    fn poison(&self, words: &str) {
        self.inner.poison(words);
    }
}
