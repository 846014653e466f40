//! Near-duplicates: documents that share a band are compared by their shingles, pairs of at least the
//! stated Jaccard index join their groups, and the first document of each group stays.
//!
//! Within a bucket each document is compared with those before it that resembled none, at most
//! [`LEADERS`] of them and [`LEADER_SHINGLES`] of their shingles, so that a bucket of boilerplate costs no
//! square; a pair that already is in one group is not compared again. Groups are those that the bands
//! before made, so the outcome does not depend on the threads.

use super::CleanOptions;
use super::filter::Reason;
use super::minhash::{jaccard, shingles};
use super::report::CleanReport;
use super::survivors::Documents;
use crate::error::DataError;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Documents of a bucket that later ones are compared with.
const LEADERS: usize = 64;
/// Shingles of the leaders of a bucket, together.
const LEADER_SHINGLES: usize = 1 << 23;

/// What counts as a near-duplicate and how it is looked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuplicateRule {
    /// Pairs of at least this Jaccard index of five-character shingles.
    pub jaccard: f64,
    pub bands: usize,
    /// Minimum hashes a band.
    pub rows: usize,
}

impl DuplicateRule {
    /// The paper's index, 0.7, with its hundred hashes in 20 bands of 5: a pair at 0.7 is met with
    /// probability 0.975. The paper's script cut them into 10 bands of 10, which meets it with 0.25.
    pub const PAPER: DuplicateRule = DuplicateRule { jaccard: 0.7, bands: 20, rows: 5 };
}

/// Which documents stay.
pub(super) struct Duplicates {
    /// A document of the same group with a lower number, or itself.
    parents: Vec<u32>,
}

impl Duplicates {
    /// Every document in a group of its own.
    pub(super) fn none(documents: usize) -> Self {
        Duplicates { parents: (0..documents as u32).collect() }
    }

    pub(super) fn find(
        documents: &Documents,
        rule: DuplicateRule,
        options: &CleanOptions,
        stop: &AtomicBool,
    ) -> Result<Self, DataError> {
        let mut groups = Self::none(documents.len());
        for band in 0..documents.bands() {
            let hashes = documents.sorted_band(band)?;
            let buckets = buckets(&hashes);
            let search = Search { documents, rule, key: &options.key, groups: &groups, hashes: &hashes };
            for (a, b) in search.all(&buckets, options.workers, stop)? {
                groups.join(a, b);
            }
        }
        Ok(groups)
    }

    /// The first document of the group.
    fn first_of(&self, mut document: u32) -> u32 {
        while self.parents[document as usize] != document {
            document = self.parents[document as usize];
        }
        document
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.first_of(a), self.first_of(b));
        let first = a.min(b);
        self.parents[a.max(b) as usize] = first;
    }

    pub(super) fn stays(&self, document: usize) -> bool {
        self.parents[document] == document as u32
    }

    /// Counts what goes, with the first few pairs.
    pub(super) fn report(
        &self,
        documents: &Documents,
        options: &CleanOptions,
        report: &mut CleanReport,
    ) -> Result<(), DataError> {
        for dropped in (0..documents.len()).filter(|&document| !self.stays(document)) {
            if !report.wants_example(Reason::NearDuplicate) {
                report.count(Reason::NearDuplicate);
                continue;
            }
            let first = documents.read(self.first_of(dropped as u32) as usize)?;
            let document = documents.read(dropped)?;
            let name = |input: usize, line: u64| format!("{}:{line}", options.inputs[input].path.display());
            let index = jaccard(&shingles_of(&document.json, &options.key), &shingles_of(&first.json, &options.key));
            let why = format!("{index:.3} of {}", name(first.input, first.line));
            report.drop(Reason::NearDuplicate, name(document.input, document.line), why);
        }
        Ok(())
    }
}

/// The runs of equal hashes that hold more than one document.
fn buckets(hashes: &[(u64, u32)]) -> Vec<Range<usize>> {
    let (mut found, mut start) = (Vec::new(), 0);
    for run in hashes.chunk_by(|a, b| a.0 == b.0) {
        if run.len() > 1 {
            found.push(start..start + run.len());
        }
        start += run.len();
    }
    found
}

/// One band under search.
struct Search<'a> {
    documents: &'a Documents,
    rule: DuplicateRule,
    key: &'a str,
    /// As the bands before left them.
    groups: &'a Duplicates,
    hashes: &'a [(u64, u32)],
}

impl Search<'_> {
    /// Near-duplicate pairs of all buckets, in no particular order: joining groups has none.
    fn all(&self, buckets: &[Range<usize>], workers: usize, stop: &AtomicBool) -> Result<Vec<(u32, u32)>, DataError> {
        let (next, pairs) = (AtomicUsize::new(0), Mutex::new(Ok(Vec::new())));
        thread::scope(|scope| {
            for _ in 0..workers.min(buckets.len()) {
                scope.spawn(|| {
                    while let Some(bucket) = buckets.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let found = if stop.load(Ordering::Relaxed) {
                            Err(DataError::Cancelled)
                        } else {
                            self.bucket(&self.hashes[bucket.clone()])
                        };
                        let mut pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
                        match (pairs.as_mut(), found) {
                            (Ok(pairs), Ok(found)) => pairs.extend(found),
                            (Ok(_), Err(error)) => *pairs = Err(error),
                            (Err(_), _) => return,
                        }
                    }
                });
            }
        });
        pairs.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn bucket(&self, bucket: &[(u64, u32)]) -> Result<Vec<(u32, u32)>, DataError> {
        let mut pairs = Vec::new();
        let mut leaders: Vec<(u32, Vec<u64>)> = Vec::new();
        for &(_, document) in bucket {
            let group = self.groups.first_of(document);
            if leaders.iter().any(|(leader, _)| self.groups.first_of(*leader) == group) {
                continue;
            }
            let own = shingles_of(&self.documents.read(document as usize)?.json, self.key);
            let like = leaders.iter().find(|(_, others)| jaccard(&own, others) >= self.rule.jaccard);
            if let Some(&(leader, _)) = like {
                pairs.push((leader, document));
            } else if leaders.len() < LEADERS
                && leaders.iter().map(|leader| leader.1.len()).sum::<usize>() + own.len() <= LEADER_SHINGLES
            {
                leaders.push((document, own));
            }
        }
        Ok(pairs)
    }
}

fn shingles_of(json: &str, key: &str) -> Vec<u64> {
    let object: serde_json::Value = serde_json::from_str(json).expect("a line that was read before");
    shingles(object[key].as_str().expect("its text was read before"))
}
