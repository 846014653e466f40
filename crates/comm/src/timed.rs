//! A rank's end whose calls are timed.

use crate::{Comm, CommError, Grid, Group, Reduce, Tag};
use henge_tensor::{Entry, Ledger, Operation, Transfer, View, ViewMut};
use std::time::Instant;

/// `C`, with every call that can wait written to a [`Ledger`] as communication: seconds,
/// waiting for other ranks included, and the bytes of this rank's own buffers.
pub struct Timed<C> {
    inner: C,
    ledger: Ledger,
}

impl<C> Timed<C> {
    /// `inner`, writing to `ledger`.
    pub fn new(inner: C, ledger: Ledger) -> Self {
        Self { inner, ledger }
    }

    fn clock<T>(&self, bytes: usize, work: impl FnOnce(&C) -> T) -> T {
        let begin = Instant::now();
        let result = work(&self.inner);
        let seconds = begin.elapsed().as_secs_f64();
        self.ledger.add(Operation::Communication, Entry { calls: 1, seconds, flops: 0.0, bytes: bytes as f64 });
        result
    }
}

impl<M: Transfer, C: Comm<M>> Comm<M> for Timed<C> {
    fn grid(&self) -> &Grid {
        self.inner.grid()
    }

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn at(&self, position: usize, operation: &str) {
        self.inner.at(position, operation);
    }

    fn all_reduce(&self, group: Group, data: ViewMut<'_>, how: Reduce) -> Result<(), CommError> {
        self.clock(data.bytes(), |comm| comm.all_reduce(group, data, how))
    }

    fn all_gather(&self, group: Group, mine: View<'_>, all: ViewMut<'_>) -> Result<(), CommError> {
        self.clock(all.bytes(), |comm| comm.all_gather(group, mine, all))
    }

    fn broadcast(&self, group: Group, root: usize, data: ViewMut<'_>) -> Result<(), CommError> {
        self.clock(data.bytes(), |comm| comm.broadcast(group, root, data))
    }

    fn barrier(&self, group: Group) -> Result<(), CommError> {
        self.clock(0, |comm| comm.barrier(group))
    }

    fn post_receive(&self, from: usize, tag: Tag, blank: Box<dyn FnOnce() -> M + '_>) -> Result<(), CommError> {
        self.clock(0, |comm| comm.post_receive(from, tag, blank))
    }

    fn wait_receive(&self, from: usize, tag: Tag) -> Result<M, CommError> {
        self.clock(0, |comm| comm.wait_receive(from, tag))
    }

    fn send(&self, to: usize, tag: Tag, mut message: M) -> Result<(), CommError> {
        let bytes = message.view_mut().bytes();
        self.clock(bytes, |comm| comm.send(to, tag, message))
    }

    fn wait_send(&self, to: usize, tag: Tag) -> Result<(), CommError> {
        self.clock(0, |comm| comm.wait_send(to, tag))
    }

    fn poison(&self, words: &str) {
        self.inner.poison(words);
    }
}
