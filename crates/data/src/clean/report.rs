//! What was dropped and why.

use super::CleanOptions;
use super::filter::{Filtered, Reason};
use super::minhash::MinHash;
use crate::error::DataError;
use henge_files::write_atomic;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::Path;

/// Documents of each reason that are named.
const EXAMPLES: usize = 10;

/// The outcome of a cleaning; also written beside the output as `OUTPUT.report.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CleanReport {
    /// Documents read.
    pub documents: u64,
    /// Bytes of their texts.
    pub text_bytes: u64,
    /// Documents whose text was repaired, whether or not they stayed.
    pub repaired: u64,
    /// Documents that contamination was cut out of; each piece left is a document.
    pub cut: u64,
    /// Lines of the output and their bytes before packing.
    pub written: u64,
    pub written_bytes: u64,
    /// What is not in the output, by reason.
    pub dropped: BTreeMap<Reason, Dropped>,
    /// The Jaccard index of near-duplicates, and the probability that a pair at it is compared at all.
    pub jaccard: Option<f64>,
    pub detection: Option<f64>,
    pub language: Option<String>,
    pub min_tokens: usize,
    /// Distinct n-grams of the evaluation sets.
    pub evaluation_ngrams: Option<u64>,
}

/// Documents dropped for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Dropped {
    pub documents: u64,
    /// The first few.
    pub examples: Vec<Example>,
}

/// A dropped document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Example {
    /// `FILE:LINE`.
    pub document: String,
    /// The language found, the tokens, the matches, or what it resembles.
    pub why: String,
}

impl CleanReport {
    pub(super) fn new(options: &CleanOptions) -> Self {
        let detection = |rule: super::DuplicateRule| MinHash::new(rule.bands, rule.rows).detection(rule.jaccard);
        CleanReport {
            documents: 0,
            text_bytes: 0,
            repaired: 0,
            cut: 0,
            written: 0,
            written_bytes: 0,
            dropped: BTreeMap::new(),
            jaccard: options.duplicates.map(|rule| rule.jaccard),
            detection: options.duplicates.map(detection),
            language: options.language.clone(),
            min_tokens: options.min_tokens,
            evaluation_ngrams: options.contamination.as_ref().map(|contamination| contamination.len() as u64),
        }
    }

    pub(super) fn add(&mut self, filtered: &Filtered, path: &Path) {
        self.documents += filtered.documents;
        self.text_bytes += filtered.text_bytes;
        self.repaired += filtered.repaired;
        self.cut += filtered.cut;
        for (reason, line, why) in &filtered.dropped {
            self.drop(*reason, format!("{}:{line}", path.display()), why.clone());
        }
    }

    pub(super) fn wants_example(&self, reason: Reason) -> bool {
        self.dropped.get(&reason).is_none_or(|dropped| dropped.examples.len() < EXAMPLES)
    }

    pub(super) fn count(&mut self, reason: Reason) {
        self.dropped.entry(reason).or_default().documents += 1;
    }

    pub(super) fn drop(&mut self, reason: Reason, document: String, why: String) {
        if self.wants_example(reason) {
            self.dropped.entry(reason).or_default().examples.push(Example { document, why });
        }
        self.count(reason);
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), DataError> {
        let text = serde_json::to_vec_pretty(self).expect("a report is plain data");
        Ok(write_atomic(path, |file| file.write_all(&text))?)
    }
}

impl fmt::Display for CleanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} documents read, {} written", self.documents, self.written)?;
        writeln!(f, "{} repaired, {} cut for contamination", self.repaired, self.cut)?;
        for (reason, dropped) in &self.dropped {
            let words = match reason {
                Reason::OtherLanguage => "in another language",
                Reason::TooShort => "too short",
                Reason::Contaminated => "contaminated",
                Reason::NearDuplicate => "near-duplicates",
            };
            writeln!(f, "{} dropped: {words}", dropped.documents)?;
            for Example { document, why } in &dropped.examples {
                writeln!(f, "    {document} ({why})")?;
            }
        }
        Ok(())
    }
}
