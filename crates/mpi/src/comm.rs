//! A rank's end.

use crate::Failed;
use crate::collective::Scratch;
use crate::error::Refusal;
use crate::request::{Communicator, Request};
use crate::watch::Watch;
use henge_comm::{Comm, CommError, Grid, Group, Reduce, Route, Signature, Tag, Wait};
use henge_tensor::{Transfer, View, ViewMut};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A rank looks this long at its requests without a pause: a message between processes of one
/// host takes a few microseconds.
const SPIN: Duration = Duration::from_micros(100);
/// Then, where others need its core, it sleeps in between.
const PAUSE: Duration = Duration::from_micros(30);
/// A wait of this length is worth telling the others of.
const LONG: Duration = Duration::from_millis(20);

/// The members of one group, and what their messages travel on.
pub(crate) struct Members {
    pub communicator: Communicator,
    /// World ranks, ascending.
    pub ranks: Vec<usize>,
    /// This rank's index.
    pub here: usize,
}

/// What a rank waits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// The longest wait.
    pub timeout: Duration,
    /// Whether every thread of every rank of this host has a core.
    pub owns_core: bool,
}

/// A message whose transfer has begun.
struct Letter<M> {
    message: *mut M,
    requests: Vec<Request>,
}

/// One rank's end: processes under MPI.
///
/// # Panics
/// Where a thread other than the one that started MPI calls it, or a message is used wrongly:
/// received twice under one tag, or waited for before it was begun.
pub struct MpiComm<M> {
    pub(crate) rank: usize,
    grid: Grid,
    groups: [Members; Group::ALL.len()],
    messages: Communicator,
    patience: Patience,
    largest_tag: c_int,
    thread: ThreadId,
    /// Letters by their routes. Never dropped while MPI may write into them.
    letters: ManuallyDrop<RefCell<HashMap<Route, Letter<M>>>>,
    pub(crate) scratch: ManuallyDrop<RefCell<Scratch>>,
    /// Set by the first failed wait: from there on nothing is begun or looked at.
    ended: RefCell<Option<CommError>>,
    is_exchanging: Cell<bool>,
    watch: Arc<Watch>,
}

// SAFETY: what keeps it from being `Send` are MPI's handles, which any thread may hold; every
// call into MPI is preceded by a check of the thread.
unsafe impl<M: Send> Send for MpiComm<M> {}

impl<M> MpiComm<M> {
    pub(crate) fn new(
        rank: usize,
        grid: Grid,
        groups: [Members; Group::ALL.len()],
        messages: Communicator,
        patience: Patience,
        largest_tag: c_int,
        watch: Arc<Watch>,
    ) -> Self {
        Self {
            rank,
            grid,
            groups,
            messages,
            patience,
            largest_tag,
            thread: std::thread::current().id(),
            letters: ManuallyDrop::default(),
            scratch: ManuallyDrop::default(),
            ended: RefCell::default(),
            is_exchanging: Cell::default(),
            watch,
        }
    }

    pub(crate) fn members(&self, group: Group) -> &Members {
        &self.groups[group as usize]
    }

    /// Every call begins here.
    fn begin(&self) -> Result<(), CommError> {
        assert_eq!(self.thread, std::thread::current().id(), "only the thread that started MPI calls it");
        if let Some(error) = self.ended.borrow().clone() {
            return Err(error);
        }
        self.heed_verdict()
    }

    /// Another rank's failure ends every wait and every call.
    fn heed_verdict(&self) -> Result<(), CommError> {
        let Some(verdict) = self.watch.verdict() else { return Ok(()) };
        let culprit = verdict.culprits.first().copied().unwrap_or_default();
        self.end(CommError::Poisoned { rank: self.rank, culprit, words: verdict.words })
    }

    fn end<T>(&self, error: CommError) -> Result<T, CommError> {
        self.ended.borrow_mut().get_or_insert_with(|| error.clone());
        Err(error)
    }

    pub(crate) fn refused<T>(&self, what: &Wait, refusal: &Refusal) -> Result<T, CommError> {
        self.end(CommError::Transport { rank: self.rank, what: what.to_string(), words: refusal.to_string() })
    }

    /// Waits for transfers, each with the rank at its other end.
    pub(crate) fn wait_for(&self, what: &Wait, transfers: &mut Vec<(usize, Request)>) -> Result<(), CommError> {
        let (begun, mut is_said) = (Instant::now(), false);
        self.is_exchanging.set(true);
        loop {
            if let Err(refusal) = advance(transfers) {
                return self.refused(what, &refusal);
            }
            if transfers.is_empty() {
                self.is_exchanging.set(false);
                if is_said {
                    self.watch.waits(None);
                }
                return Ok(());
            }
            let waited = begun.elapsed();
            if waited >= self.patience.timeout {
                return self.time_out(what, transfers);
            }
            self.heed_verdict()?;
            if waited >= LONG && !is_said {
                self.watch.waits(Some((*what, sources(transfers))));
                is_said = true;
            }
            self.rest(begun);
        }
    }

    fn rest(&self, begun: Instant) {
        if self.patience.owns_core || begun.elapsed() < SPIN {
            // The peer may be ready to run on this very core.
            std::thread::yield_now();
        } else {
            std::thread::sleep(PAUSE);
        }
    }

    fn time_out(&self, what: &Wait, transfers: &[(usize, Request)]) -> Result<(), CommError> {
        let from = sources(transfers);
        self.watch.waits(Some((*what, from.clone())));
        let (rank, waited) = (self.rank, self.patience.timeout);
        // Where every rank is, the watch knows and tells.
        self.end(CommError::TimedOut { rank, what: what.to_string(), from, waited, report: String::new() })
    }

    /// MPI moves bytes within its calls only: each operation of the program looks once.
    fn progress(&self) {
        let mut refused = None;
        for (route, letter) in self.letters.borrow_mut().iter_mut() {
            for request in &mut letter.requests {
                if let Err(refusal) = request.is_done() {
                    refused.get_or_insert((Wait::Receive(*route), refusal));
                }
            }
        }
        if let Some((what, refusal)) = refused {
            let _: Result<(), _> = self.refused(&what, &refusal);
        }
    }

    // ---- messages ----

    fn route(&self, from: usize, to: usize, tag: Tag) -> Route {
        let ranks = self.grid.ranks();
        assert!(from < ranks && to < ranks, "{tag} from rank {from} to rank {to}, of {ranks} ranks");
        Route { from, to, tag }
    }

    fn keep(&self, route: Route, message: *mut M, begun: Result<Vec<Request>, Refusal>) -> Result<(), CommError> {
        let Route { from, to, tag } = route;
        match begun {
            Err(refusal) => self.refused(&Wait::Receive(route), &refusal),
            Ok(requests) => {
                let before = self.letters.borrow_mut().insert(route, Letter { message, requests });
                assert!(before.is_none(), "{tag} from rank {from} to rank {to} was begun twice");
                Ok(())
            }
        }
    }

    /// Waits for a letter's transfer and takes its message back.
    fn close(&self, what: Wait, route: Route, other: usize) -> Result<Box<M>, CommError> {
        self.begin()?;
        let Route { from, to, tag } = route;
        let letter = self.letters.borrow_mut().remove(&route);
        let letter =
            letter.unwrap_or_else(|| panic!("{tag} from rank {from} to rank {to} is waited for but was not begun"));
        let mut transfers = letter.requests.into_iter().map(|request| (other, request)).collect();
        self.wait_for(&what, &mut transfers)?;
        // SAFETY: made by `Box::into_raw`, kept in one letter, and MPI is done with it.
        Ok(unsafe { Box::from_raw(letter.message) })
    }
}

/// The ranks at the other ends, ascending.
fn sources(transfers: &[(usize, Request)]) -> Vec<usize> {
    let mut ranks: Vec<usize> = transfers.iter().map(|(rank, _)| *rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Looks at each transfer and drops those that are done.
fn advance(transfers: &mut Vec<(usize, Request)>) -> Result<(), Refusal> {
    let mut index = 0;
    while index < transfers.len() {
        if transfers[index].1.is_done()? {
            transfers.swap_remove(index);
        } else {
            index += 1;
        }
    }
    Ok(())
}

impl<M> Drop for MpiComm<M> {
    /// MPI may still write into what a failed wait or a panic left behind: that memory stays.
    fn drop(&mut self) {
        let is_clean = self.ended.borrow().is_none() && !self.is_exchanging.get() && self.letters.borrow().is_empty();
        if is_clean {
            // SAFETY: neither is used again.
            unsafe {
                ManuallyDrop::drop(&mut self.letters);
                ManuallyDrop::drop(&mut self.scratch);
            }
        }
    }
}

impl<M: Transfer> Comm<M> for MpiComm<M> {
    fn grid(&self) -> &Grid {
        &self.grid
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn at(&self, position: usize, operation: &str) {
        self.watch.note(position, operation);
        if self.begin().is_ok() {
            self.progress();
        }
    }

    /// Sums and maxima of `f32` and `f64`, in the order of ranks.
    fn all_reduce(&self, group: Group, data: ViewMut<'_>, how: Reduce) -> Result<(), CommError> {
        let signature = Signature::all_reduce(self.rank, group, &data, how);
        self.begin()?;
        self.reduce_view(signature, how, data)
    }

    fn all_gather(&self, group: Group, mine: View<'_>, all: ViewMut<'_>) -> Result<(), CommError> {
        let signature = Signature::all_gather(self.rank, group, self.members(group).ranks.len(), &mine, &all);
        self.begin()?;
        self.gather_view(signature, mine, all)
    }

    fn broadcast(&self, group: Group, root: usize, data: ViewMut<'_>) -> Result<(), CommError> {
        let signature = Signature::broadcast(self.rank, group, self.members(group).ranks.len(), root, &data);
        self.begin()?;
        self.broadcast_view(signature, root, data)
    }

    fn barrier(&self, group: Group) -> Result<(), CommError> {
        self.begin()?;
        self.meet(Signature::barrier(group))
    }

    fn post_receive(&self, from: usize, tag: Tag, blank: Box<dyn FnOnce() -> M + '_>) -> Result<(), CommError> {
        self.begin()?;
        let route = self.route(from, self.rank, tag);
        let message = Box::into_raw(Box::new(blank()));
        // SAFETY: just made; the view is used up at once.
        let view = unsafe { &mut *message }.view_mut();
        let (target, bytes) = (view.pointer(), view.bytes());
        // SAFETY: the message stays where it is, untouched, until its letter is closed.
        let begun = unsafe { Request::receive(&self.messages, target, bytes, from, number(tag, self.largest_tag)) };
        self.keep(route, message, begun)
    }

    fn wait_receive(&self, from: usize, tag: Tag) -> Result<M, CommError> {
        let route = self.route(from, self.rank, tag);
        self.close(Wait::Receive(route), route, from).map(|message| *message)
    }

    fn send(&self, to: usize, tag: Tag, message: M) -> Result<(), CommError> {
        self.begin()?;
        let route = self.route(self.rank, to, tag);
        let message = Box::into_raw(Box::new(message));
        // SAFETY: just made; the view is used up at once.
        let view = unsafe { &mut *message }.view_mut();
        let (source, bytes) = (view.pointer(), view.bytes());
        // SAFETY: the message stays where it is, untouched, until its letter is closed.
        let begun = unsafe { Request::send(&self.messages, source, bytes, to, number(tag, self.largest_tag)) };
        self.keep(route, message, begun)
    }

    fn wait_send(&self, to: usize, tag: Tag) -> Result<(), CommError> {
        let route = self.route(self.rank, to, tag);
        self.close(Wait::Send(route), route, to).map(drop)
    }

    fn poison(&self, words: &str) {
        let (rank, culprit) = (self.rank, self.rank);
        self.watch.fail(Failed { status: 1, words: words.to_owned(), follows: false });
        self.ended.borrow_mut().get_or_insert_with(|| CommError::Poisoned { rank, culprit, words: words.to_owned() });
    }
}

const DIRECTIONS: c_int = 4;
const STAGES: c_int = 1 << 12;
/// Every MPI that is in use has larger ones; the standard promises far less.
pub(crate) const NEEDED_TAG: c_int = DIRECTIONS * STAGES * 64 - 1;

/// MPI's tag for a message. Microbatches go round: two that meet are many apart, and between two
/// ranks the order in which they were sent holds.
fn number(tag: Tag, largest: c_int) -> c_int {
    let Tag { direction, stage, microbatch } = tag;
    assert!(i32::from(direction) < DIRECTIONS && stage < STAGES as u32, "{tag} is beyond what a tag can say");
    let microbatches = (i64::from(largest) + 1) / i64::from(DIRECTIONS * STAGES);
    let microbatch = (microbatch % microbatches.cast_unsigned()) as c_int;
    (microbatch * STAGES + stage as c_int) * DIRECTIONS + c_int::from(direction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_messages_of_a_window_share_a_number() {
        for largest in [NEEDED_TAG, (1 << 28) - 1, c_int::MAX] {
            let mut seen = HashSet::new();
            for microbatch in 1_000_000..1_000_064 {
                for stage in [0, 1, 63, 4095] {
                    for direction in 0..4 {
                        let number = number(Tag { direction, stage, microbatch }, largest);
                        assert!((0..=largest).contains(&number));
                        assert!(seen.insert(number));
                    }
                }
            }
        }
    }
}
