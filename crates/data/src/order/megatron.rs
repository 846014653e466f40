//! The document, sample and shuffle index of Megatron's GPTDataset, element for element, so that a run
//! begun there goes on here over the same samples.
//!
//! Unlike the formula order it keeps tables: 4 bytes a document and epoch, 20 a sample. They are built in
//! memory by whoever asks; no rank waits for another's file.

use super::mt19937::RandomState;
use crate::error::DataError;
use crate::indexed::IndexedCorpus;
use std::ops::Range;

/// Below this share of the last epoch in use, it is shuffled apart from the others.
const SEPARATE_BELOW: f64 = 0.80;
/// Tokens a sample has beyond its inputs.
const EXTRA: u64 = 1;

/// What the index depends on besides the corpus.
#[derive(Clone, Debug)]
pub struct MegatronOptions {
    /// The part's sequences: Megatron splits sequences, not documents.
    pub sequences: Range<u64>,
    /// `s`: inputs a sample.
    pub sequence_length: u64,
    /// numpy's seed.
    pub seed: u32,
    /// Samples the run asks for; `None` for one epoch.
    pub samples: Option<u64>,
}

/// The three tables.
#[derive(Debug, PartialEq, Eq)]
pub struct MegatronIndex {
    /// Sequences in the order they are read, epoch after epoch.
    pub document_index: Vec<u32>,
    /// Where each sample begins: place in the document index and token offset there. One more entry than
    /// samples.
    pub sample_index: Vec<(u64, u32)>,
    /// Which sample is read `i`-th.
    pub shuffle_index: Vec<u64>,
}

/// How many epochs, and whether the last is shuffled apart.
#[derive(Debug, PartialEq, Eq)]
struct Epochs {
    count: u64,
    /// Samples before the last epoch, when that is apart.
    samples_before_last: Option<u64>,
}

impl MegatronIndex {
    /// Builds the tables.
    ///
    /// # Errors
    /// A part that holds no full sample, a corrupt index, or one of more than 2^32 sequences, which
    /// Megatron's own tables cannot hold either.
    pub fn build(corpus: &IndexedCorpus, options: &MegatronOptions) -> Result<Self, DataError> {
        if options.sequences.end > u64::from(u32::MAX) {
            return Err(DataError::BadRequest {
                what: format!("the megatron order holds at most 2^32 sequences, not {}", options.sequences.end),
                remedy: "use the formula order".into(),
            });
        }
        let tokens: u64 = options.sequences.clone().map(|i| u64::from(corpus.length(i))).sum();
        let s = options.sequence_length;
        if tokens < s + EXTRA {
            let path = corpus.prefix().to_path_buf();
            return Err(DataError::NoFullSample { path, part: "requested", tokens, needed: s + EXTRA });
        }
        let epochs = epochs(tokens, s, options.samples);
        let mut random = RandomState::new(options.seed);
        let document_index = document_index(&options.sequences, &epochs, &mut random);
        let samples = (epochs.count * tokens - EXTRA) / s;
        let sample_index = sample_index(corpus, &document_index, s, samples);
        let shuffle_index = shuffle_index(epochs.samples_before_last.unwrap_or(samples), samples, &mut random);
        Ok(MegatronIndex { document_index, sample_index, shuffle_index })
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.shuffle_index.len() as u64
    }

    /// The stretches of sample `number` (before shuffling): sequence, tokens to skip, tokens to take.
    pub fn stretches(&self, number: u64, corpus: &IndexedCorpus) -> Vec<(u64, u64, u64)> {
        let (first, skip) = self.sample_index[number as usize];
        let (last, end) = self.sample_index[number as usize + 1];
        let places = (first..=last).map(|place| {
            let sequence = u64::from(self.document_index[place as usize]);
            let skip = if place == first { u64::from(skip) } else { 0 };
            let end = if place == last { u64::from(end) + EXTRA } else { u64::from(corpus.length(sequence)) };
            (sequence, skip, end - skip)
        });
        places.filter(|&(_, _, tokens)| tokens > 0).collect()
    }
}

fn epochs(tokens: u64, s: u64, samples: Option<u64>) -> Epochs {
    let Some(samples) = samples else { return Epochs { count: 1, samples_before_last: None } };
    let count = (samples * s + EXTRA).div_ceil(tokens).max(1);
    if count == 1 {
        return Epochs { count, samples_before_last: None };
    }
    let before_last = ((count - 1) * tokens - EXTRA) / s;
    let of_last = samples.saturating_sub(before_last);
    let an_epoch = (tokens - EXTRA) / s;
    let is_apart = of_last < (SEPARATE_BELOW * an_epoch as f64) as u64;
    Epochs { count, samples_before_last: is_apart.then_some(before_last) }
}

fn document_index(sequences: &Range<u64>, epochs: &Epochs, random: &mut RandomState) -> Vec<u32> {
    let mut shuffled = |count: u64| {
        let mut index: Vec<u32> = Vec::new();
        for _ in 0..count {
            index.extend(sequences.clone().map(|sequence| sequence as u32));
        }
        random.shuffle(&mut index);
        index
    };
    if epochs.samples_before_last.is_none() {
        return shuffled(epochs.count);
    }
    let mut index = shuffled(epochs.count - 1);
    index.extend(shuffled(1));
    index
}

fn sample_index(corpus: &IndexedCorpus, document_index: &[u32], s: u64, samples: u64) -> Vec<(u64, u32)> {
    let mut index = Vec::with_capacity(samples as usize + 1);
    let (mut place, mut offset) = (0u64, 0u64);
    index.push((0, 0));
    for _ in 0..samples {
        let mut remaining = s + EXTRA;
        loop {
            let left = u64::from(corpus.length(u64::from(document_index[place as usize]))) - offset;
            if remaining <= left {
                // The next sample begins on this one's last token.
                offset += remaining - EXTRA;
                break;
            }
            remaining -= left;
            place += 1;
            offset = 0;
        }
        index.push((place, offset as u32));
    }
    index
}

fn shuffle_index(first: u64, all: u64, random: &mut RandomState) -> Vec<u64> {
    let mut index: Vec<u64> = (0..all).collect();
    let (head, tail) = index.split_at_mut(first as usize);
    random.shuffle(head);
    random.shuffle(tail);
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_at_the_threshold() {
        // 1001 tokens, s = 10: 100 samples an epoch; 2 epochs hold 200, the first 100.
        assert_eq!(epochs(1001, 10, None), Epochs { count: 1, samples_before_last: None });
        assert_eq!(epochs(1001, 10, Some(100)), Epochs { count: 1, samples_before_last: None });
        assert_eq!(epochs(1001, 10, Some(101)), Epochs { count: 2, samples_before_last: Some(100) });
        assert_eq!(epochs(1001, 10, Some(179)), Epochs { count: 2, samples_before_last: Some(100) });
        assert_eq!(epochs(1001, 10, Some(180)), Epochs { count: 2, samples_before_last: None });
    }
}
