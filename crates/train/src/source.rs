//! Where sequences come from.

use crate::TrainError;
use henge_data::order::SampleOrder;
use henge_spec::Batching;

/// Tokens and their targets, `[s]` each; a negative target is not scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Inputs.
    pub tokens: Vec<u32>,
    /// Targets.
    pub labels: Vec<i64>,
}

/// An endless or finite order of sequences, read by every rank for itself.
pub trait Source: Send + Sync {
    /// Sequences of step `step` (from 0), which begins after `consumed` samples; `None`
    /// once the source is used up.
    fn batch(&self, step: u64, consumed: u64) -> Option<usize>;
    /// The sequence at a position of the run's order.
    fn sequence(&self, position: u64) -> Result<Sequence, TrainError>;
}

/// A corpus in its order: sample i of the run is a pure function of i.
pub struct CorpusSource {
    corpus: Corpus,
    batching: Batching,
}

impl CorpusSource {
    /// `origin` names the corpus in errors.
    pub fn new(order: SampleOrder, batching: Batching, origin: &str, vocab_size: usize) -> Self {
        Self { corpus: Corpus { order, origin: origin.to_string(), vocab_size }, batching }
    }
}

impl Source for CorpusSource {
    fn batch(&self, _step: u64, consumed: u64) -> Option<usize> {
        Some(self.batching.at(consumed))
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        self.corpus.sequence(position)
    }
}

/// A validation set from its beginning, each sequence once. The last batch is filled up
/// with sequences of which nothing is scored.
pub struct ValidationSource {
    corpus: Corpus,
    global_batch: usize,
}

impl ValidationSource {
    /// `origin` names the corpus in errors.
    pub fn new(order: SampleOrder, global_batch: usize, origin: &str, vocab_size: usize) -> Self {
        Self { corpus: Corpus { order, origin: origin.to_string(), vocab_size }, global_batch }
    }
}

impl Source for ValidationSource {
    fn batch(&self, _step: u64, consumed: u64) -> Option<usize> {
        (consumed < self.corpus.order.distinct_samples()).then_some(self.global_batch)
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let last = self.corpus.order.distinct_samples() - 1;
        let mut sequence = self.corpus.sequence(position.min(last))?;
        if position > last {
            sequence.labels.fill(-1);
        }
        Ok(sequence)
    }
}

struct Corpus {
    order: SampleOrder,
    origin: String,
    vocab_size: usize,
}

impl Corpus {
    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let mut tokens = self.order.sample(position)?;
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= self.vocab_size) {
            return Err(TrainError::TokenBeyondVocabulary {
                origin: self.origin.clone(),
                token: u64::from(token),
                place: format!("sample {position}"),
                vocab_size: self.vocab_size,
            });
        }
        let labels = tokens[1..].iter().map(|&token| i64::from(token)).collect();
        tokens.pop();
        Ok(Sequence { tokens, labels })
    }
}
