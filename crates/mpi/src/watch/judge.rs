//! Whose failure it was.

use super::{Failed, Standing, Verdict};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Ranks that fail alike, as of a loss that is no number, say so within this time.
const ALIKE: Duration = Duration::from_millis(150);
/// A rank that failed of another's failure may be heard before that other is known to be gone.
const FOLLOWS: Duration = Duration::from_secs(1);

/// What is known of a rank.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub host: String,
    pub standing: Standing,
    pub heard: Instant,
}

impl Seen {
    pub fn new(host: String) -> Self {
        Self { host, standing: Standing::default(), heard: Instant::now() }
    }
}

/// A failure that a rank said.
struct Said {
    rank: usize,
    failed: Failed,
    seen: Seen,
}

/// What has been seen and heard of failures.
#[derive(Default)]
pub(super) struct Evidence {
    /// Rank and words, of those that are gone.
    lost: Vec<(usize, String)>,
    said: Vec<Said>,
    since: Option<Instant>,
}

impl Evidence {
    pub fn failed(&mut self, rank: usize, failed: Failed, seen: &Seen) {
        if self.said.iter().all(|said| said.rank != rank) {
            self.since.get_or_insert_with(Instant::now);
            self.said.push(Said { rank, failed, seen: seen.clone() });
        }
    }

    pub fn died(&mut self, rank: usize, seen: &Seen) {
        self.lose(rank, || death(rank, seen));
    }

    pub fn silent(&mut self, rank: usize, seen: &Seen, limit: Duration) {
        self.lose(rank, || silence(rank, seen, limit));
    }

    /// One who has said what it failed of leaves; that is no death.
    fn lose(&mut self, rank: usize, words: impl FnOnce() -> String) {
        let is_known =
            self.said.iter().any(|said| said.rank == rank) || self.lost.iter().any(|(lost, _)| *lost == rank);
        if !is_known {
            self.since.get_or_insert_with(Instant::now);
            self.lost.push((rank, words()));
        }
    }

    /// The verdict, once it is plain; `all` is what is known of every rank.
    pub fn verdict(&self, all: &[Option<&Seen>]) -> Option<Verdict> {
        let passed = self.since?.elapsed();
        let own = self.said.iter().find(|said| !said.failed.follows);
        match (own, self.said.first()) {
            (Some(own), _) if passed >= ALIKE || self.said.len() == all.len() => Some(self.of_itself(own, all.len())),
            (Some(_), _) => None,
            (None, _) if !self.lost.is_empty() => Some(self.of_the_lost()),
            (None, Some(first)) if passed >= FOLLOWS => Some(of_a_wait(first, all)),
            (None, _) => None,
        }
    }

    fn of_the_lost(&self) -> Verdict {
        let culprits = self.lost.iter().map(|(rank, _)| *rank).collect();
        let words: Vec<&str> = self.lost.iter().map(|(_, words)| words.as_str()).collect();
        Verdict { culprits, status: 1, words: words.join("\n") }
    }

    /// A failure's own words, with who said them unless all did or the words do.
    fn of_itself(&self, own: &Said, ranks: usize) -> Verdict {
        let Said { rank, failed: Failed { status, words, .. }, seen } = own;
        let alike: Vec<usize> =
            self.said.iter().filter(|said| said.failed.words == *words).map(|said| said.rank).collect();
        let is_named = alike.len() == ranks || words.starts_with(&format!("rank {rank} "));
        let words = match is_named {
            true => words.clone(),
            false => format!("rank {rank} (host {}) failed {}: {words}", seen.host, seen.standing),
        };
        Verdict { culprits: alike, status: *status, words }
    }
}

/// All wait, and none is gone: those who wait for nobody are the ones that hang.
fn of_a_wait(first: &Said, all: &[Option<&Seen>]) -> Verdict {
    let known = || all.iter().enumerate().filter_map(|(rank, seen)| Some((rank, (*seen)?)));
    let hang: Vec<usize> = known().filter(|(_, seen)| seen.standing.wait.is_none()).map(|(rank, _)| rank).collect();
    let mut words = first.failed.words.clone();
    for (rank, Seen { host, standing, .. }) in known() {
        let wait = standing.wait.as_ref().map_or("waits for nobody".to_owned(), |wait| format!("waits for {wait}"));
        let _ = write!(words, "\n  rank {rank} (host {host}) {standing} {wait}");
    }
    if !hang.is_empty() {
        let _ = write!(words, "\nwho waits for nobody hangs or is slow: rank {}", list(&hang));
    }
    let culprits = if hang.is_empty() { vec![first.rank] } else { hang };
    Verdict { culprits, status: first.failed.status, words }
}

fn list(ranks: &[usize]) -> String {
    ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Of a line that broke.
pub(super) fn death(rank: usize, seen: &Seen) -> String {
    let Seen { host, standing, .. } = seen;
    format!(
        "rank {rank} (host {host}) died, last seen {standing}{}: its process ended without a word, as one that is \
         killed or out of memory does",
        waiting(standing)
    )
}

/// Of a line that says nothing.
pub(super) fn silence(rank: usize, seen: &Seen, limit: Duration) -> String {
    let Seen { host, standing, .. } = seen;
    format!(
        "rank {rank} (host {host}) has not been heard from for {} s (run.heartbeat_timeout), last seen {standing}{}: \
         its process is stopped, its host is down, or the network to it is cut",
        limit.as_secs(),
        waiting(standing)
    )
}

fn waiting(standing: &Standing) -> String {
    standing.wait.as_ref().map_or(String::new(), |wait| format!(", waiting for {wait}"))
}
