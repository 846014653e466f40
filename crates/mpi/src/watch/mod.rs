//! Ranks that watch each other, beside MPI.
//!
//! MPI tells nobody that a process is gone: a transfer from it is never done. So every process
//! has a thread that holds a line to rank 0's over TCP and says where its rank stands, several
//! times a second. A line that breaks is a process that died; a line that is silent for too long
//! is a process that is stopped, a host that is down or a network that is cut; a rank that fails
//! by itself says so. Rank 0 then rules whose failure it was, once, and every process ends with
//! that [`Verdict`]: by itself where its rank still calls, by this thread where it does not.
//! A process that rank 0 is lost to ends likewise.
//!
//! The thread calls neither MPI nor anything that a rank may hold locked for long, so it goes on
//! while its rank computes, waits or hangs.

mod guest;
mod hub;
mod judge;
mod meeting;
mod wire;

use henge_comm::Wait;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(crate) use meeting::{Invitation, Meeting, join};

/// How often a thread looks at its lines: the longest that a failure goes unheard.
const LOOK: Duration = Duration::from_millis(50);
/// How often a rank says where it stands.
const BEAT: Duration = Duration::from_millis(200);
/// Time for a rank to leave by itself once there is a verdict: what it was writing is whole or is
/// not, and what others wrote may be published.
const GRACE: Duration = Duration::from_secs(2);
/// A line is silent for too long after this, until the run file has said otherwise.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// Where a rank is in its program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    pub position: usize,
    pub operation: String,
    /// What it waits for, and from whom, in words.
    pub wait: Option<String>,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, operation, .. } = self;
        if operation.is_empty() {
            f.write_str("before its first step")
        } else {
            write!(f, "at operation {position} ({operation})")
        }
    }
}

/// What a rank failed of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The process's exit status.
    pub status: u8,
    /// What happened.
    pub words: String,
    /// Whether another rank's failure may be what it comes from, as with a wait that took too
    /// long.
    pub follows: bool,
}

/// Whose failure ended the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The ranks that failed first.
    pub culprits: Vec<usize>,
    /// The exit status of every process.
    pub status: u8,
    /// Who failed, where in its program, and of what.
    pub words: String,
}

/// What this process's rank and its watching thread share.
pub(crate) struct Watch {
    state: Mutex<State>,
    news: Condvar,
    is_ruled: AtomicBool,
    silence_ms: AtomicU64,
}

#[derive(Default)]
struct State {
    position: usize,
    operation: String,
    wait: Option<(Wait, Vec<usize>)>,
    failed: Option<Failed>,
    finishing: bool,
    finished: bool,
    verdict: Option<Verdict>,
    told: bool,
}

/// Told of the verdict, on one process of all, or of each host where rank 0 is lost.
pub(crate) type Tell = Box<dyn FnOnce(&Verdict) + Send>;

impl Watch {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            news: Condvar::new(),
            is_ruled: AtomicBool::new(false),
            silence_ms: AtomicU64::new(SILENCE.as_millis() as u64),
        })
    }

    /// Every change of the state is one assignment, so a panic leaves nothing half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn set_silence(&self, limit: Duration) {
        self.silence_ms.store(limit.as_millis() as u64, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        Duration::from_millis(self.silence_ms.load(Ordering::Relaxed))
    }

    pub fn note(&self, position: usize, operation: &str) {
        let mut state = self.state();
        state.position = position;
        state.operation.clear();
        state.operation.push_str(operation);
    }

    pub fn waits(&self, wait: Option<(Wait, Vec<usize>)>) {
        self.state().wait = wait;
    }

    fn standing(&self) -> Standing {
        let state = self.state();
        let wait = state.wait.as_ref().map(|(what, from)| wait_words(what, from));
        Standing { position: state.position, operation: state.operation.clone(), wait }
    }

    /// The verdict, once there is one.
    pub fn verdict(&self) -> Option<Verdict> {
        // Looked at in every turn of every wait: the lock is for the rare case.
        if self.is_ruled.load(Ordering::Acquire) { self.state().verdict.clone() } else { None }
    }

    /// Says that this rank has failed; the first time stands.
    pub fn fail(&self, failed: Failed) {
        self.state().failed.get_or_insert(failed);
    }

    /// The verdict on a failure that was said, told where it is to be; `None` where there is no
    /// thread left to bring it.
    pub fn await_verdict(&self) -> Option<Verdict> {
        let limit = self.silence() + Duration::from_secs(5);
        let (state, _) = self
            .news
            .wait_timeout_while(self.state(), limit, |state| !state.told)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        state.verdict.clone()
    }

    /// Waits until all ranks are at this point; from there on a line may break.
    pub fn finish(&self) {
        let mut state = self.state();
        state.finishing = true;
        // Either comes: the thread that brings them ends the process where it must.
        while !state.finished && !state.told {
            state = self.news.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn finished(&self) {
        self.state().finished = true;
        self.news.notify_all();
    }

    /// The watching thread's end: all see the verdict, and a rank that does not leave is ended.
    fn rule(&self, verdict: Verdict, tell: Option<Tell>) -> ! {
        self.state().verdict = Some(verdict.clone());
        self.is_ruled.store(true, Ordering::Release);
        if let Some(tell) = tell {
            tell(&verdict);
        }
        self.state().told = true;
        self.news.notify_all();
        std::thread::sleep(GRACE);
        leave(verdict.status)
    }

    /// What a process that is let go has left to do must not take for ever.
    fn end_if_it_lingers(&self) {
        std::thread::sleep(self.silence());
        leave(1)
    }
}

fn wait_words(what: &Wait, from: &[usize]) -> String {
    match what {
        Wait::Collective(_) => format!("{what} with ranks {from:?}"),
        Wait::Receive(_) | Wait::Send(_) => what.to_string(),
    }
}

/// Ends the process at once: its rank may be inside MPI, or never come back from a disk, and what
/// runs at a regular exit would meet it there.
fn leave(status: u8) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Goes once around, at the latest after [`LOOK`]; says by how much it was held up, as when the
/// whole process was stopped: others are not silent for that.
struct Rounds {
    last: Instant,
    beat: Instant,
}

impl Rounds {
    fn new() -> Self {
        let now = Instant::now();
        Self { last: now, beat: now }
    }

    fn held_up(&mut self) -> Duration {
        let gap = self.last.elapsed().saturating_sub(LOOK * 4);
        self.last = Instant::now();
        gap
    }

    fn is_beat(&mut self) -> bool {
        let due = self.beat.elapsed() >= BEAT;
        if due {
            self.beat = Instant::now();
        }
        due
    }
}

#[cfg(test)]
mod tests;
