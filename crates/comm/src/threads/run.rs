//! A thread for every rank, and whose failure it was.

use super::ThreadComm;
use super::world::World;
use henge_tensor::Transfer;
use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::fmt::{self, Debug, Display};
use std::io;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Once};
use std::thread::Builder;
use std::time::Duration;
use thiserror::Error;

/// Deep enough for recursive readers of user files; only touched pages count.
const STACK: usize = 8 << 20;
/// How often the runner looks whether the world was poisoned while a rank is silent.
const LOOK: Duration = Duration::from_millis(50);

/// The rank that failed first, and how.
#[derive(Debug, Error)]
#[error("rank {rank} {cause}{}", left_behind_words(left_behind))]
pub struct RankFailure<E> {
    /// The rank.
    pub rank: usize,
    /// What it came to.
    pub cause: Cause<E>,
    /// Ranks that did not stop within the grace time; their threads still run.
    pub left_behind: Box<[usize]>,
}

/// How a rank failed.
#[derive(Debug)]
pub enum Cause<E> {
    /// It returned an error.
    Error(E),
    /// It panicked.
    Panic {
        /// Its words.
        text: String,
        /// File, line and column, where known; and the backtrace, where asked for.
        location: String,
    },
    /// It poisoned the world with these words, and did not fail itself.
    Words(String),
    /// The system gave it no thread.
    Spawn(io::Error),
}

impl<E: Display> Display for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "failed: {error:#}"),
            Self::Panic { text, location } => write!(f, "panicked at {location}: {text}"),
            Self::Words(words) => write!(f, "stopped the run: {words}"),
            Self::Spawn(error) => {
                write!(f, "got no thread from the system: {error}; use fewer ranks or raise the limit on threads")
            }
        }
    }
}

fn left_behind_words(ranks: &[usize]) -> String {
    if ranks.is_empty() { String::new() } else { format!("\nranks {ranks:?} did not stop and were left behind") }
}

type Outcome<T, E> = Result<T, Cause<E>>;

/// Runs `body` once per rank, each in a thread named `rank 3`, and returns what they
/// returned in the order of ranks.
///
/// A rank's error or panic poisons the world with its own words, so that all others stop
/// at their next call. A rank that stays silent beyond [`super::Options::grace`] after
/// that is left behind, since a thread cannot be ended from outside; the caller should
/// then end the process.
///
/// # Errors
/// The failure of the rank that failed first, never of one that stopped because of it.
pub fn run_ranks<M, T, E, F>(comms: Vec<ThreadComm<M>>, body: F) -> Result<Vec<T>, RankFailure<E>>
where
    M: Transfer + 'static,
    T: Send + 'static,
    E: Display + Send + 'static,
    F: Fn(ThreadComm<M>) -> Result<T, E> + Send + Sync + 'static,
{
    listen_for_panics();
    let Some(world) = comms.first().map(|comm| comm.world.clone()) else { return Ok(vec![]) };
    let ranks = comms.len();
    let body = Arc::new(body);
    let (sender, outcomes) = channel();
    for comm in comms {
        let rank = comm.rank;
        if let Err(error) = spawn(comm, body.clone(), sender.clone()) {
            world.poison(rank, &format!("no thread for rank {rank}: {error}"));
            // The channel outlives this loop: `outcomes` is still here.
            let _ = sender.send((rank, Err(Cause::Spawn(error))));
        }
    }
    drop(sender);
    settle(&world, collect(&world, &outcomes, ranks))
}

fn spawn<M, T, E, F>(comm: ThreadComm<M>, body: Arc<F>, sender: Sender<(usize, Outcome<T, E>)>) -> io::Result<()>
where
    M: Transfer + 'static,
    T: Send + 'static,
    E: Display + Send + 'static,
    F: Fn(ThreadComm<M>) -> Result<T, E> + Send + Sync + 'static,
{
    let (rank, world) = (comm.rank, comm.world.clone());
    let work = move || {
        let outcome = outcome_of(|| body(comm));
        match &outcome {
            Ok(_) => world.finish(rank),
            Err(cause) => world.poison(rank, &cause.to_string()),
        }
        // What the body captured is dropped before the caller goes on.
        drop((body, world));
        // A runner that has left this rank behind no longer listens.
        let _ = sender.send((rank, outcome));
    };
    Builder::new().name(format!("rank {rank}")).stack_size(STACK).spawn(work).map(drop)
}

/// What a rank came to in this thread; a panic is its cause with its place, and is not printed.
///
/// # Errors
/// Its error, or its panic.
pub fn outcome_of<T, E>(body: impl FnOnce() -> Result<T, E>) -> Result<T, Cause<E>> {
    listen_for_panics();
    PANIC_LOCATION.with(|location| location.replace(Some(String::new())));
    // Unwind safety: nothing of the rank is looked at after its panic but the board, which
    // is consistent whenever its lock is free.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => {
            // What comes later in this thread is not the rank's.
            PANIC_LOCATION.take();
            result.map_err(Cause::Error)
        }
        Err(payload) => {
            let location = PANIC_LOCATION.with(|location| location.take().unwrap_or_default());
            Err(Cause::Panic { text: panic_text(payload.as_ref()), location })
        }
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

/// Each rank's outcome; `None` for a rank left behind.
fn collect<M, T, E>(
    world: &World<M>,
    outcomes: &Receiver<(usize, Outcome<T, E>)>,
    ranks: usize,
) -> Vec<Option<Outcome<T, E>>> {
    let mut all: Vec<_> = (0..ranks).map(|_| None).collect();
    let mut missing = ranks;
    while missing > 0 {
        match outcomes.recv_timeout(LOOK) {
            Ok((rank, outcome)) => {
                all[rank] = Some(outcome);
                missing -= 1;
            }
            Err(RecvTimeoutError::Timeout) => {
                if world.failure().is_some_and(|(_, _, since)| since > world.options.grace) {
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    all
}

fn settle<M, T, E>(world: &World<M>, outcomes: Vec<Option<Outcome<T, E>>>) -> Result<Vec<T>, RankFailure<E>> {
    let is_missing = |(rank, outcome): (usize, &Option<_>)| outcome.is_none().then_some(rank);
    let left_behind = outcomes.iter().enumerate().filter_map(is_missing).collect();
    if let Some((culprit, words, _)) = world.failure() {
        let cause = match outcomes.into_iter().nth(culprit).flatten() {
            Some(Err(cause)) => cause,
            _ => Cause::Words(words),
        };
        return Err(RankFailure { rank: culprit, cause, left_behind });
    }
    let results = outcomes.into_iter().flatten().map(|outcome| match outcome {
        Ok(value) => value,
        Err(_) => unreachable!("a failed rank poisons the world before it reports"),
    });
    Ok(results.collect())
}

thread_local! {
    /// In a rank's thread: where it panicked, empty until it does. A panic's payload does
    /// not say, only the process-wide hook learns it.
    static PANIC_LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes panics of rank threads note where they happened, for the runner to tell; those of
/// other threads go to the hook that was there before.
fn listen_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !note_panic(info) {
                before(info);
            }
        }));
    });
}

/// Whether this is a rank's thread.
fn note_panic(info: &PanicHookInfo<'_>) -> bool {
    PANIC_LOCATION.with(|noted| {
        let mut noted = noted.borrow_mut();
        let Some(noted) = noted.as_mut() else { return false };
        let location = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let backtrace = Backtrace::capture();
        *noted = match backtrace.status() {
            BacktraceStatus::Captured => format!("{location}\n{backtrace}\n"),
            _ => location,
        };
        true
    })
}
