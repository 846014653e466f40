//! What the ranks of one process share: the board, a bell for each rank, and each rank's
//! notes for reports.

use super::board::{Arrival, Board, Poison, Seat, Stage};
use super::call::{Call, Operand};
use super::{Delivery, Options, Waiting};
use crate::{CommError, Grid, Route, Signature, Wait};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Waking a sleeping thread takes about 50 microseconds; to spin for longer than some
/// multiple of that gains little and, where another process has the peer's core, loses it.
const SPIN: Duration = Duration::from_micros(100);
/// Calls of each rank that a report shows.
const LOG: usize = 4;

/// Wakes one rank; rung under the board's lock only.
#[derive(Default)]
struct Bell {
    rings: AtomicU64,
    sleeper: Condvar,
}

/// Where a rank is in its program, and its last calls that may wait. Apart from the board
/// so that [`crate::Comm::at`] costs no shared lock; taken after the board's lock where
/// both are.
struct Notes {
    position: usize,
    operation: String,
    log: VecDeque<(Wait, Duration)>,
    busy_since: Instant,
}

impl Notes {
    fn new() -> Self {
        Self { position: 0, operation: String::new(), log: VecDeque::new(), busy_since: Instant::now() }
    }
}

pub(super) struct World<M> {
    pub grid: Grid,
    pub options: Options,
    board: Mutex<Board<M>>,
    bells: Vec<Bell>,
    notes: Vec<Mutex<Notes>>,
}

impl<M> World<M> {
    pub fn new(grid: Grid, options: Options) -> Self {
        let ranks = grid.ranks();
        Self {
            grid,
            options,
            board: Mutex::new(Board::new(ranks)),
            bells: (0..ranks).map(|_| Bell::default()).collect(),
            notes: (0..ranks).map(|_| Mutex::new(Notes::new())).collect(),
        }
    }

    pub fn note_position(&self, rank: usize, position: usize, operation: &str) {
        let mut notes = self.notes[rank].lock();
        notes.position = position;
        notes.operation.clear();
        notes.operation.push_str(operation);
    }

    /// Makes a call and notes it for reports.
    fn logged<T>(&self, rank: usize, what: Wait, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        let mut notes = self.notes[rank].lock();
        notes.busy_since = Instant::now();
        notes.log.truncate(LOG - 1);
        let took = notes.busy_since - begun;
        notes.log.push_front((what, took));
        result
    }

    // ---- collectives ----

    pub fn collective(
        &self,
        rank: usize,
        signature: Signature,
        members: &Arc<[usize]>,
        operand: Operand,
    ) -> Result<(), CommError> {
        self.logged(rank, Wait::Collective(signature), || self.take_part(rank, signature, members, operand))
    }

    fn take_part(
        &self,
        rank: usize,
        signature: Signature,
        members: &Arc<[usize]>,
        operand: Operand,
    ) -> Result<(), CommError> {
        let mut board = self.board.lock();
        board.check_poison(rank)?;
        if let Some((other, theirs)) = board.clash(rank, &signature, members) {
            let (here, there) = (self.place(rank), self.place(other));
            self.mistake(board, rank, &format!("{here} calls {signature}, but {there} calls {theirs}"));
        }
        board.seats[rank].stage = Stage::Arrived(Arrival { signature, members: members.clone(), operand });
        let call = match board.start(&signature, members) {
            None => self.wait(board, rank, Wait::Collective(signature), |board| board.take_started(rank))?,
            Some(call) => {
                board.take_started(rank);
                if call.is_divisible() {
                    self.ring(&board, members);
                }
                drop(board);
                call
            }
        };
        if call.work() {
            self.ring(&self.board.lock(), members);
        }
        self.await_last_chunk(rank, &call);
        Ok(())
    }

    /// Heeds neither poison nor time: the operands are in use until the last chunk is done,
    /// and those who work on them do not wait for anyone.
    fn await_last_chunk(&self, rank: usize, call: &Call) {
        if self.options.waiting == Waiting::Spin {
            spin_until(Instant::now(), || call.is_finished());
        }
        if !call.is_finished() {
            let mut board = self.board.lock();
            while !call.is_finished() {
                self.bells[rank].sleeper.wait(&mut board);
            }
        }
    }

    // ---- messages ----

    pub fn post_receive(&self, route: Route) -> Result<(), CommError> {
        let mut board = self.board.lock();
        board.check_poison(route.to)?;
        let posted = board.post(route);
        let board = self.demand(board, route.to, route, posted);
        self.ring(&board, &[route.from]);
        Ok(())
    }

    pub fn wait_receive(&self, route: Route) -> Result<M, CommError> {
        let board = self.board.lock();
        board.check_poison(route.to)?;
        let posted = board.check_posted(&route);
        let board = self.demand(board, route.to, route, posted);
        let what = Wait::Receive(route);
        self.logged(route.to, what, || self.wait(board, route.to, what, |board| board.take(&route)))
    }

    pub fn send(&self, route: Route, message: M) -> Result<(), CommError> {
        let mut board = self.board.lock();
        board.check_poison(route.from)?;
        let sent = board.send(route, message);
        let board = self.demand(board, route.from, route, sent);
        self.ring(&board, &[route.to]);
        Ok(())
    }

    pub fn wait_send(&self, route: Route) -> Result<(), CommError> {
        let board = self.board.lock();
        board.check_poison(route.from)?;
        let sent = board.check_sent(&route);
        let board = self.demand(board, route.from, route, sent);
        let is_eager = self.options.delivery == Delivery::Eager;
        let is_done = |board: &mut Board<M>| {
            let is_done = is_eager || board.is_receive_posted(&route);
            is_done.then(|| board.close_send(&route))
        };
        let what = Wait::Send(route);
        self.logged(route.from, what, || self.wait(board, route.from, what, is_done))
    }

    /// Stops the program if it used a message wrongly.
    fn demand<'a>(
        &self,
        board: MutexGuard<'a, Board<M>>,
        rank: usize,
        route: Route,
        rule: Result<(), &'static str>,
    ) -> MutexGuard<'a, Board<M>> {
        let Err(wrong) = rule else { return board };
        let Route { from, to, tag } = route;
        let here = self.place(rank);
        self.mistake(board, rank, &format!("{tag} from rank {from} to rank {to}: {wrong}; {here}"))
    }

    // ---- failures ----

    pub fn poison(&self, culprit: usize, words: &str) {
        self.poison_board(&mut self.board.lock(), culprit, words);
    }

    fn poison_board(&self, board: &mut Board<M>, culprit: usize, words: &str) {
        if board.poison.is_none() {
            board.poison = Some(Poison { culprit, words: words.to_owned(), since: Instant::now() });
            self.ring_all(board);
        }
    }

    /// The first failure: whose, its words, and how long ago.
    pub fn failure(&self) -> Option<(usize, String, Duration)> {
        let board = self.board.lock();
        board.poison.as_ref().map(|poison| (poison.culprit, poison.words.clone(), poison.since.elapsed()))
    }

    /// The rank makes no further call: who waits for it waits in vain.
    pub fn finish(&self, rank: usize) {
        let mut board = self.board.lock();
        board.seats[rank].has_finished = true;
        self.ring_all(&board);
    }

    /// The program is wrong, whatever the input: stops all ranks and panics.
    fn mistake(&self, mut board: MutexGuard<'_, Board<M>>, rank: usize, words: &str) -> ! {
        withdraw(&mut board.seats[rank]);
        self.poison_board(&mut board, rank, words);
        drop(board);
        panic!("{words}");
    }

    // ---- waiting ----

    fn wait<'a, T>(
        &'a self,
        mut board: MutexGuard<'a, Board<M>>,
        rank: usize,
        what: Wait,
        mut ready: impl FnMut(&mut Board<M>) -> Option<T>,
    ) -> Result<T, CommError> {
        let begun = Instant::now();
        board.seats[rank].wait = Some((what, begun));
        let outcome = loop {
            if let Some(value) = ready(&mut board) {
                break Ok(value);
            }
            if let Err(poisoned) = board.check_poison(rank) {
                break Err(poisoned);
            }
            if begun.elapsed() >= self.options.timeout {
                break Err(self.time_out(&mut board, rank, what));
            }
            if let Some(why) = board.dead_end(rank) {
                let words = format!("{why}\n{}", self.report(&board));
                self.mistake(board, rank, &words);
            }
            self.rest(&mut board, rank, begun);
        };
        withdraw(&mut board.seats[rank]);
        outcome
    }

    /// Returns when the bell has rung, and perhaps before.
    fn rest<'a>(&'a self, board: &mut MutexGuard<'a, Board<M>>, rank: usize, begun: Instant) {
        let bell = &self.bells[rank];
        if self.options.waiting == Waiting::Spin && begun.elapsed() < SPIN {
            let heard = bell.rings.load(Ordering::Relaxed);
            let has_rung = || bell.rings.load(Ordering::Relaxed) != heard;
            MutexGuard::unlocked(board, || spin_until(begun, has_rung));
        } else {
            bell.sleeper.wait_until(board, begun + self.options.timeout);
        }
    }

    /// Needs the board so that no bell rings between a rank's look at it and its sleep.
    fn ring(&self, _board: &Board<M>, ranks: &[usize]) {
        for &rank in ranks {
            self.bells[rank].rings.fetch_add(1, Ordering::Relaxed);
            self.bells[rank].sleeper.notify_one();
        }
    }

    fn ring_all(&self, board: &Board<M>) {
        let everyone: Vec<usize> = (0..self.bells.len()).collect();
        self.ring(board, &everyone);
    }

    // ---- reports ----

    fn time_out(&self, board: &mut Board<M>, rank: usize, what: Wait) -> CommError {
        let error = CommError::TimedOut {
            rank,
            what: what.to_string(),
            from: board.blockers(rank),
            waited: self.options.timeout,
            report: self.report(board),
        };
        self.poison_board(board, rank, &error.to_string());
        error
    }

    /// One line for every rank: its operation and its wait.
    fn report(&self, board: &Board<M>) -> String {
        let lines: Vec<String> = (0..board.seats.len()).map(|rank| self.report_rank(board, rank)).collect();
        lines.join("\n")
    }

    fn report_rank(&self, board: &Board<M>, rank: usize) -> String {
        let seat = &board.seats[rank];
        let mut line = self.place(rank);
        let notes = self.notes[rank].lock();
        let written = match (&seat.wait, &seat.stage) {
            _ if seat.has_finished => write!(line, ": has finished"),
            (Some((wait, begun)), Stage::Outside | Stage::Arrived(_)) => {
                let (seconds, from) = (begun.elapsed().as_secs_f64(), board.blockers(rank));
                write!(line, ": has waited {seconds:.1} s for {wait}, missing {from:?}")
            }
            _ => write!(line, ": has been computing for {:.1} s", notes.busy_since.elapsed().as_secs_f64()),
        };
        written.expect("a string takes all text");
        for (count, (wait, took)) in notes.log.iter().enumerate() {
            let opening = if count == 0 { "; before: " } else { ", " };
            write!(line, "{opening}{wait} ({:.3} s)", took.as_secs_f64()).expect("a string takes all text");
        }
        line
    }

    /// A rank and its operation.
    fn place(&self, rank: usize) -> String {
        let notes = self.notes[rank].lock();
        match notes.operation.as_str() {
            "" => format!("rank {rank}"),
            operation => format!("rank {rank} at operation {} ({operation})", notes.position),
        }
    }
}

/// Takes a rank's wait, and an arrival that did not start, off the board.
fn withdraw(seat: &mut Seat) {
    seat.wait = None;
    if let Stage::Arrived(_) = seat.stage {
        seat.stage = Stage::Outside;
    }
}

/// Spins until `done` or until [`SPIN`] after `begun`.
fn spin_until(begun: Instant, done: impl Fn() -> bool) {
    const LOOKS_PER_CLOCK: usize = 64;
    while begun.elapsed() < SPIN {
        for _ in 0..LOOKS_PER_CLOCK {
            if done() {
                return;
            }
            std::hint::spin_loop();
        }
        // The peer may be ready to run on this very core.
        std::thread::yield_now();
    }
}
