//! Explicit batches from a JSON file, for comparison with other systems.

use crate::{Sequence, Source, TrainError};
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    batches: Vec<Batch>,
}

#[derive(Deserialize)]
struct Batch {
    tokens: Vec<Vec<u64>>,
    labels: Vec<Vec<i64>>,
}

/// `{"batches": [{"tokens": [[...]], "labels": [[...]]}]}`: step i trains on batch i.
#[derive(Debug)]
pub struct GivenBatches {
    sizes: Vec<usize>,
    sequences: Vec<Sequence>,
}

impl GivenBatches {
    /// Checks every batch against the model.
    pub fn parse(text: &str, file: &str, vocab_size: usize, seq_len: usize) -> Result<Self, TrainError> {
        let wrong = |problem: String| TrainError::GivenBatches { file: file.to_string(), problem };
        let parsed: File = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mut given = Self { sizes: Vec::new(), sequences: Vec::new() };
        for (index, batch) in parsed.batches.into_iter().enumerate() {
            let place = |sequence: usize| format!("batch {index}, sequence {sequence}");
            if batch.tokens.is_empty() || batch.tokens.len() != batch.labels.len() {
                let (tokens, labels) = (batch.tokens.len(), batch.labels.len());
                return Err(wrong(format!("batch {index} has {tokens} rows of tokens and {labels} of labels")));
            }
            given.sizes.push(batch.tokens.len());
            let length = batch.tokens[0].len();
            for (row, (tokens, labels)) in batch.tokens.into_iter().zip(batch.labels).enumerate() {
                if tokens.len() != length || labels.len() != length || length == 0 || length > seq_len {
                    return Err(wrong(format!(
                        "{} has {} tokens and {} labels; each row of a batch needs the same number of both, \
                         from 1 to model.seq_len = {seq_len}",
                        place(row),
                        tokens.len(),
                        labels.len()
                    )));
                }
                let most = tokens.iter().copied().chain(labels.iter().filter_map(|&l| u64::try_from(l).ok())).max();
                if let Some(token) = most.filter(|&token| token >= vocab_size as u64) {
                    let (origin, place) = (file.to_string(), place(row));
                    return Err(TrainError::TokenBeyondVocabulary { origin, token, place, vocab_size });
                }
                let tokens = tokens.into_iter().map(|token| token as u32).collect();
                given.sequences.push(Sequence { tokens, labels });
            }
        }
        if given.sizes.is_empty() { Err(wrong("there is no batch".to_string())) } else { Ok(given) }
    }

    /// Sequences of each batch.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }
}

impl Source for GivenBatches {
    fn batch(&self, step: u64, _consumed: u64) -> Option<usize> {
        usize::try_from(step).ok().and_then(|step| self.sizes.get(step).copied())
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let sequence = usize::try_from(position).ok().and_then(|position| self.sequences.get(position));
        sequence.cloned().ok_or_else(|| TrainError::UsedUp(format!("there is no sequence {position}")))
    }
}
