//! Where sequences come from.

use crate::TrainError;
use henge_data::SampleOrder;
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
    order: SampleOrder,
    batching: Batching,
    origin: String,
    vocab_size: usize,
}

impl CorpusSource {
    /// `origin` names the corpus in errors.
    pub fn new(order: SampleOrder, batching: Batching, origin: &str, vocab_size: usize) -> Self {
        Self { order, batching, origin: origin.to_string(), vocab_size }
    }
}

impl Source for CorpusSource {
    fn batch(&self, _step: u64, consumed: u64) -> Option<usize> {
        Some(self.batching.at(consumed))
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let sample = self.order.sample(position).map_err(|error| TrainError::Data(error.to_string()))?;
        let tokens = sample.tokens;
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= self.vocab_size) {
            return Err(TrainError::TokenBeyondVocabulary {
                origin: self.origin.clone(),
                token: u64::from(token),
                place: format!("sample {position}"),
                vocab_size: self.vocab_size,
            });
        }
        let labels = tokens[1..].iter().map(|&token| i64::from(token)).collect();
        Ok(Sequence { tokens: tokens[..tokens.len() - 1].to_vec(), labels })
    }
}
