//! What a corpus holds: counts, lengths, use of the vocabulary, and samples as text.

use crate::corpus::Corpus;
use crate::error::DataError;
use crate::tokenizer::Tokenizer;
use serde::Serialize;

/// Tokens read at a time.
const STRIDE: u64 = 1 << 20;
/// Sequences shown as text are cut to this many tokens.
const SHOWN_TOKENS: usize = 64;

/// Numbers of a corpus.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    pub tokens: u64,
    pub sequences: u64,
    pub documents: u64,
    /// Documents of no sequence.
    pub empty_documents: u64,
    /// numpy's name of the element type.
    pub dtype: &'static str,
    pub has_modes: bool,
    /// Tokens a sequence.
    pub sequence_lengths: Lengths,
    pub largest_id: u32,
    /// Distinct ids that occur.
    pub distinct_ids: u64,
    /// Entropy of the ids' frequencies, nats a token: the loss of a model that knows only them.
    pub unigram_entropy: f64,
    /// The most frequent ids with their counts.
    pub most_frequent: Vec<(u32, u64)>,
    pub tokenizer: Option<String>,
    pub end_of_document: Option<u32>,
}

/// Lengths of the sequences, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lengths {
    pub shortest: u64,
    pub mean: f64,
    pub longest: u64,
    /// Median, 90th and 99th percentile, each the lower end of a power-of-two bin.
    pub at_least: [u64; 3],
}

/// Reads the whole corpus once; memory grows with the largest id only.
pub fn inspect(corpus: &Corpus) -> Result<Inspection, DataError> {
    let indexed = corpus.indexed();
    let counts = count_ids(corpus)?;
    let unigram_entropy = entropy(&counts);
    let mut most_frequent: Vec<(u32, u64)> =
        counts.iter().enumerate().filter(|(_, c)| **c > 0).map(|(id, c)| (id as u32, *c)).collect();
    let (distinct_ids, largest_id) = (most_frequent.len() as u64, most_frequent.last().map_or(0, |entry| entry.0));
    most_frequent.sort_by_key(|&(id, count)| (std::cmp::Reverse(count), id));
    most_frequent.truncate(10);
    let mut empty_documents = 0;
    for document in 0..indexed.documents() {
        empty_documents += u64::from(indexed.document(document)?.is_empty());
    }
    Ok(Inspection {
        tokens: indexed.tokens(),
        sequences: indexed.sequences(),
        documents: indexed.documents(),
        empty_documents,
        dtype: indexed.token_type().name(),
        has_modes: indexed.layout().has_modes,
        sequence_lengths: lengths((0..indexed.sequences()).map(|i| u64::from(indexed.length(i)))),
        largest_id,
        distinct_ids,
        unigram_entropy,
        most_frequent,
        tokenizer: corpus.card().map(|card| card.tokenizer.name.clone()),
        end_of_document: corpus.card().and_then(|card| card.end_of_document),
    })
}

/// `-sum p ln p` over `p = count / total`.
fn entropy(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let share = |count: &u64| *count as f64 / total as f64;
    -counts.iter().filter(|count| **count > 0).map(share).map(|p| p * p.ln()).sum::<f64>()
}

fn count_ids(corpus: &Corpus) -> Result<Vec<u64>, DataError> {
    let indexed = corpus.indexed();
    let (mut counts, mut ids, mut first) = (Vec::new(), Vec::new(), 0);
    while first < indexed.tokens() {
        let count = (indexed.tokens() - first).min(STRIDE);
        ids.clear();
        indexed.read(first, count as usize, &mut ids)?;
        for &id in &ids {
            let id = id as usize;
            if id >= counts.len() {
                if id > 1 << 27 {
                    let (path, value) = (indexed.bin_path().to_path_buf(), id.to_string());
                    return Err(DataError::NotAToken { path, position: first, value });
                }
                counts.resize((id + 1).max(counts.len() * 2), 0);
            }
            counts[id] += 1;
        }
        first += count;
    }
    Ok(counts)
}

fn lengths(all: impl Iterator<Item = u64>) -> Lengths {
    // bins[b] counts lengths of b significant bits: 2^(b - 1) up to 2^b.
    let (mut bins, mut n, mut sum) = ([0u64; 65], 0u64, 0u64);
    let (mut shortest, mut longest) = (u64::MAX, 0);
    for length in all {
        bins[64 - length.leading_zeros() as usize] += 1;
        (n, sum) = (n + 1, sum + length);
        (shortest, longest) = (shortest.min(length), longest.max(length));
    }
    if n == 0 {
        return Lengths { shortest: 0, mean: 0.0, longest: 0, at_least: [0; 3] };
    }
    let at_least = [0.5, 0.9, 0.99].map(|share| {
        let mut below = 0;
        let bin = bins.iter().position(|count| {
            below += count;
            below as f64 >= share * n as f64
        });
        bin.map_or(0, |bin| if bin == 0 { 0 } else { 1 << (bin - 1) })
    });
    Lengths { shortest, mean: sum as f64 / n as f64, longest, at_least }
}

/// The beginnings of `count` sequences spread evenly over the corpus, as (sequence, text).
pub fn decoded_samples(corpus: &Corpus, tokenizer: &Tokenizer, count: u64) -> Result<Vec<(u64, String)>, DataError> {
    let indexed = corpus.indexed();
    let count = count.min(indexed.sequences());
    let sequences = (0..count).map(|k| (u128::from(k) * u128::from(indexed.sequences()) / u128::from(count)) as u64);
    sequences
        .map(|sequence| {
            let mut ids = Vec::new();
            let shown = SHOWN_TOKENS.min(indexed.length(sequence) as usize);
            indexed.read_part(sequence, 0, shown, &mut ids)?;
            Ok((sequence, tokenizer.decode(&ids)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_a_known_list() {
        let all = lengths([0, 1, 2, 3, 4, 7, 8, 1000].into_iter());
        assert_eq!((all.shortest, all.mean, all.longest), (0, 128.125, 1000));
        assert_eq!(all.at_least, [2, 512, 512]);
        assert_eq!(lengths(std::iter::empty()).longest, 0);
    }

    /// Shannon's own examples: a fair coin is ln 2, certainty is nothing, and halves and
    /// quarters are 1.5 bits.
    #[test]
    fn entropy_is_that_of_the_frequencies() {
        let ln2 = std::f64::consts::LN_2;
        for (counts, bits) in [(&[5, 5][..], 1.0), (&[7, 0], 0.0), (&[2, 1, 0, 1], 1.5)] {
            assert!((entropy(counts) - bits * ln2).abs() < 1e-12, "{counts:?}");
        }
    }
}
