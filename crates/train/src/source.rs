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
    /// What an encoder reads beside the tokens.
    pub pair: Option<Pair>,
}

impl Sequence {
    /// The same inputs with nothing scored: what fills a last batch up.
    pub fn unscored(mut self) -> Self {
        self.labels.fill(-1);
        self.pair = self.pair.map(|pair| Pair { class: -1, ..pair });
        self
    }
}

/// Two sentences in one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Type of each token, `[s]`: which sentence it belongs to.
    pub types: Vec<u32>,
    /// Tokens before the padding.
    pub length: usize,
    /// 0 as written, 1 swapped; of a fine-tuning task what it asks, of options at the first of
    /// its group, of a span its first token; negative: not scored.
    pub class: i64,
    /// Last token of a span.
    pub end: Option<i64>,
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
    /// Tokens are held against `vocab_size` as they are read.
    pub fn new(order: SampleOrder, batching: Batching, vocab_size: usize) -> Self {
        Self { corpus: Corpus { order, vocab_size }, batching }
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
    /// Tokens are held against `vocab_size` as they are read.
    pub fn new(order: SampleOrder, global_batch: usize, vocab_size: usize) -> Self {
        Self { corpus: Corpus { order, vocab_size }, global_batch }
    }
}

impl Source for ValidationSource {
    fn batch(&self, _step: u64, consumed: u64) -> Option<usize> {
        (consumed < self.corpus.order.distinct_samples()).then_some(self.global_batch)
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let last = self.corpus.order.distinct_samples() - 1;
        let sequence = self.corpus.sequence(position.min(last))?;
        Ok(if position > last { sequence.unscored() } else { sequence })
    }
}

struct Corpus {
    order: SampleOrder,
    vocab_size: usize,
}

impl Corpus {
    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let mut tokens = self.order.sample(position)?;
        if let Some(at) = tokens.iter().position(|&token| token as usize >= self.vocab_size) {
            let (bin, place) = self.order.place_of(position, at as u64)?;
            return Err(TrainError::TokenBeyondVocabulary {
                origin: bin.display().to_string(),
                token: u64::from(tokens[at]),
                place: format!("position {place} (sample {position} of the run)"),
                vocab_size: self.vocab_size,
            });
        }
        let labels = tokens[1..].iter().map(|&token| i64::from(token)).collect();
        tokens.pop();
        Ok(Sequence { tokens, labels, pair: None })
    }
}
