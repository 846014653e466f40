//! Explicit batches from a JSON file, for comparison with other systems.

use crate::{Pair, Sequence, Source, TrainError};
use henge_spec::{Arch, Model};
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    batches: Vec<Batch>,
}

#[derive(Deserialize)]
struct Batch {
    tokens: Vec<Vec<u64>>,
    labels: Vec<Vec<i64>>,
    /// What an encoder reads beside them.
    attention_mask: Option<Vec<Vec<u8>>>,
    token_type_ids: Option<Vec<Vec<u32>>>,
    order: Option<Vec<i64>>,
}

/// `{"batches": [{"tokens": [[...]], "labels": [[...]]}]}`: step i trains on batch i. For an
/// encoder each batch has `attention_mask` and `token_type_ids`, as wide as its tokens, and
/// the `order` of each of its pairs.
#[derive(Debug)]
pub struct GivenBatches {
    sizes: Vec<usize>,
    sequences: Vec<Sequence>,
}

impl GivenBatches {
    /// Checks every batch against the model.
    ///
    /// # Errors
    /// [`TrainError::GivenBatches`] and [`TrainError::TokenBeyondVocabulary`], naming the
    /// batch and the sequence.
    pub fn parse(text: &str, file: &str, model: &Model) -> Result<Self, TrainError> {
        let wrong = |problem: String| TrainError::GivenBatches { file: file.to_string(), problem };
        let parsed: File = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let (mut sizes, mut sequences) = (Vec::new(), Vec::new());
        for (index, batch) in parsed.batches.into_iter().enumerate() {
            sizes.push(batch.tokens.len());
            let reader = BatchReader { batch, index, model, file };
            sequences.extend(reader.sequences()?);
        }
        if sizes.is_empty() { Err(wrong("there is no batch".to_string())) } else { Ok(Self { sizes, sequences }) }
    }

    /// Sequences of each batch.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }
}

/// One batch on its way to sequences.
struct BatchReader<'a> {
    batch: Batch,
    index: usize,
    model: &'a Model,
    file: &'a str,
}

impl BatchReader<'_> {
    fn sequences(self) -> Result<Vec<Sequence>, TrainError> {
        let Batch { tokens, labels, .. } = &self.batch;
        if tokens.is_empty() || tokens.len() != labels.len() {
            let problem = format!("has {} rows of tokens and {} of labels", tokens.len(), labels.len());
            return Err(self.wrong(&problem));
        }
        (0..tokens.len()).map(|row| self.sequence(row)).collect()
    }

    fn sequence(&self, row: usize) -> Result<Sequence, TrainError> {
        let (tokens, labels) = (&self.batch.tokens[row], &self.batch.labels[row]);
        let (length, longest) = (self.batch.tokens[0].len(), self.model.seq_len);
        if tokens.len() != length || labels.len() != length || length == 0 || length > longest {
            return Err(self.wrong(&format!(
                "sequence {row} has {} tokens and {} labels; each row of a batch needs the same number of both, \
                 from 1 to model.seq_len = {longest}",
                tokens.len(),
                labels.len()
            )));
        }
        let most = tokens.iter().copied().chain(labels.iter().filter_map(|&l| u64::try_from(l).ok())).max();
        if let Some(token) = most.filter(|&token| token >= self.model.vocab_size as u64) {
            let place = format!("batch {}, sequence {row}", self.index);
            let (origin, vocab_size) = (self.file.to_string(), self.model.vocab_size);
            return Err(TrainError::TokenBeyondVocabulary { origin, token, place, vocab_size });
        }
        let pair = if self.model.arch == Arch::Bert { Some(self.pair(row, length)?) } else { None };
        let tokens = tokens.iter().map(|&token| token as u32).collect();
        Ok(Sequence { tokens, labels: labels.clone(), pair })
    }

    fn pair(&self, row: usize, tokens: usize) -> Result<Pair, TrainError> {
        let Batch { attention_mask, token_type_ids, order, .. } = &self.batch;
        let absent = |key: &str| self.wrong(&format!("`{key}` has no row for sequence {row}; an encoder reads one"));
        let mask = attention_mask.as_ref().and_then(|rows| rows.get(row)).ok_or_else(|| absent("attention_mask"))?;
        let types = token_type_ids.as_ref().and_then(|rows| rows.get(row)).ok_or_else(|| absent("token_type_ids"))?;
        let order = *order.as_ref().and_then(|rows| rows.get(row)).ok_or_else(|| absent("order"))?;
        let length = mask.iter().take_while(|&&seen| seen == 1).count();
        let is_prefix = mask[length..].iter().all(|&seen| seen == 0);
        if mask.len() != tokens || !is_prefix || length == 0 {
            let problem =
                format!("the attention_mask of sequence {row} is not ones, then zeros, over its {tokens} tokens");
            return Err(self.wrong(&problem));
        }
        let known = |&kind: &u32| (kind as usize) < self.model.token_types.max(1);
        if types.len() != tokens || !types.iter().all(known) || !(-1..2).contains(&order) {
            let problem = format!(
                "sequence {row} needs {tokens} token_type_ids below model.token_types = {} and an order of 0, 1 or -1",
                self.model.token_types
            );
            return Err(self.wrong(&problem));
        }
        Ok(Pair { types: types.clone(), length, class: order, end: None })
    }

    fn wrong(&self, problem: &str) -> TrainError {
        TrainError::GivenBatches { file: self.file.to_string(), problem: format!("batch {}: {problem}", self.index) }
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
