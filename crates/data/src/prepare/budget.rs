//! A bound on the bytes between reader and writer.

use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes in flight, bounded; the reader waits here when the workers or the writer fall behind.
pub(super) struct Budget {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
}

struct State {
    in_flight: usize,
    closed: bool,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Budget { state: Mutex::new(State { in_flight: 0, closed: false }), changed: Condvar::new(), limit }
    }

    /// Waits until `bytes` fit, or until nothing else is in flight: one block larger than the whole
    /// budget passes alone. False once closed.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self
            .changed
            .wait_while(state, |s| !s.closed && s.in_flight > 0 && s.in_flight + bytes > self.limit)
            .unwrap_or_else(PoisonError::into_inner);
        state.in_flight += bytes;
        !state.closed
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).in_flight -= bytes;
        self.changed.notify_all();
    }

    /// Lets no one wait any more.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }
}
