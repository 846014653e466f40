//! Sentence pairs for encoders: masked, padded, with the order to be judged (1909.08053,
//! section 5.3).

use crate::{Pair, Sequence, Source, TrainError};
use henge_data::bert::{BertSample, BertSamples};
use henge_data::order::Blend;
use henge_spec::Batching;

/// Corpora of sentences in the order of a run: sample i is a pure function of i.
pub struct PairSource {
    corpora: Vec<BertSamples>,
    blend: Blend,
    batching: Batching,
    frame: Frame,
}

/// How samples are padded.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Tokens of a sequence.
    pub seq_len: usize,
    /// The padding token.
    pub pad: u32,
}

impl PairSource {
    /// Corpora with their weights.
    ///
    /// # Errors
    /// A weight that is not a positive number.
    ///
    /// # Panics
    /// When there is no corpus.
    pub fn new(corpora: Vec<(BertSamples, f64)>, batching: Batching, frame: Frame) -> Result<Self, TrainError> {
        let (corpora, weights): (Vec<_>, Vec<_>) = corpora.into_iter().unzip();
        Ok(Self { corpora, blend: Blend::new(&weights)?, batching, frame })
    }
}

impl Source for PairSource {
    fn batch(&self, _step: u64, consumed: u64) -> Option<usize> {
        Some(self.batching.at(consumed))
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let (corpus, number) = self.blend.turn(position);
        Ok(self.frame.sequence(self.corpora[corpus].sample(number)?))
    }
}

/// A validation corpus from its beginning, each sample once. The last batch is filled up with
/// samples of which nothing is scored.
pub struct PairValidationSource {
    /// The corpus.
    pub samples: BertSamples,
    /// Sequences of a batch.
    pub global_batch: usize,
    /// How samples are padded.
    pub frame: Frame,
}

impl Source for PairValidationSource {
    fn batch(&self, _step: u64, consumed: u64) -> Option<usize> {
        (consumed < self.samples.distinct_samples()).then_some(self.global_batch)
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let last = self.samples.distinct_samples() - 1;
        let sequence = self.frame.sequence(self.samples.sample(position.min(last))?);
        Ok(if position > last { sequence.unscored() } else { sequence })
    }
}

impl Frame {
    fn sequence(self, sample: BertSample) -> Sequence {
        let BertSample { mut tokens, types, masked, is_swapped } = sample;
        let length = tokens.len();
        let mut labels = vec![-1; self.seq_len];
        for token in masked {
            labels[token.position] = i64::from(token.id);
        }
        tokens.resize(self.seq_len, self.pad);
        let mut types: Vec<u32> = types.into_iter().map(u32::from).collect();
        types.resize(self.seq_len, 0);
        Sequence { tokens, labels, pair: Some(Pair { types, length, class: i64::from(is_swapped), end: None }) }
    }
}
