//! A task's examples as sequences of a run.

use henge_data::tokenizer::Tokenizer;
use henge_eval::EvalError;
use henge_eval::downstream::{Encoded, EpochOrder, Packer, Padded, Target, TaskData, TaskReport, Truncation};
use henge_spec::Batching;
use henge_train::{Pair, Sequence, Source, TrainError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Encoded examples kept, so that the sequences of a group are encoded once.
const KEPT: usize = 64;

/// How sequences are cut and grouped.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Tokens of each, padded.
    pub length: usize,
    /// What goes where two texts are too long together.
    pub truncation: Truncation,
    /// Sequences of an example.
    pub group: usize,
}

/// A file's examples, encoded when they are asked for.
pub struct TaskExamples {
    data: TaskData,
    file: String,
    tokenizer: Arc<Tokenizer>,
    cut: Cut,
    pad: u32,
    recent: Mutex<VecDeque<(usize, Arc<Encoded>)>>,
}

impl TaskExamples {
    /// `pad` stands behind each sequence's end.
    pub fn new(data: TaskData, file: &str, tokenizer: Arc<Tokenizer>, (cut, pad): (Cut, u32)) -> Self {
        Self { data, file: file.to_string(), tokenizer, cut, pad, recent: Mutex::default() }
    }

    /// Examples; of passages, windows.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Outputs of a model by example, from those of its sequences in order; what a last batch
    /// was filled up with is left out.
    pub fn outputs(&self, logits: &[Vec<f32>]) -> Vec<Vec<f32>> {
        logits.chunks(self.cut.group).take(self.len()).map(|group| group.concat()).collect()
    }

    /// The task's scores of [`Self::outputs`].
    pub fn report(&self, outputs: &[Vec<f32>]) -> TaskReport {
        self.data.report(outputs)
    }

    /// Sequence `place` of an example.
    fn sequence(&self, example: usize, place: usize) -> Result<Sequence, TrainError> {
        let encoded = self.encoded(example).map_err(|error| self.refused(example, &error))?;
        let one = &encoded.sequences[place];
        let Padded { tokens, types, .. } = Padded::new([one], Some(self.cut.length), self.pad);
        let (class, end) = match encoded.target {
            Target::Class(class) if place == 0 => (class as i64, None),
            Target::Class(_) => (-1, None),
            Target::Span { start, end } => (start as i64, Some(end as i64)),
        };
        let types = types.into_iter().map(u32::from).collect();
        let pair = Pair { types, length: one.tokens.len(), class, end };
        Ok(Sequence { tokens, labels: vec![-1; self.cut.length], pair: Some(pair) })
    }

    fn encoded(&self, example: usize) -> Result<Arc<Encoded>, EvalError> {
        let recent = || self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, encoded)) = recent().iter().find(|(known, _)| *known == example) {
            return Ok(encoded.clone());
        }
        let encoded = Arc::new(self.data.encode(example, &mut self.packer()?)?);
        let mut recent = recent();
        recent.push_back((example, encoded.clone()));
        if recent.len() > KEPT {
            recent.pop_front();
        }
        Ok(encoded)
    }

    fn packer(&self) -> Result<Packer<'_>, EvalError> {
        Packer::new(&self.tokenizer, self.cut.length, self.cut.truncation)
    }

    fn refused(&self, example: usize, error: &EvalError) -> TrainError {
        TrainError::GivenBatches { file: self.file.clone(), problem: format!("example {example}: {error}") }
    }
}

/// The training order: epoch after epoch.
pub struct TaskSource {
    examples: Arc<TaskExamples>,
    order: EpochOrder,
    batching: Batching,
}

impl TaskSource {
    /// Batches in the order of a seed.
    pub fn new(examples: Arc<TaskExamples>, seed: u64, batching: Batching) -> Self {
        let order = EpochOrder::new(seed, examples.len() as u64);
        Self { examples, order, batching }
    }
}

impl Source for TaskSource {
    fn batch(&self, _step: u64, consumed: u64) -> Option<usize> {
        Some(self.batching.at(consumed))
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let group = self.examples.cut.group as u64;
        self.examples.sequence(self.order.example(position / group) as usize, (position % group) as usize)
    }
}

/// Every example once, in the file's order. The last batch is filled up with sequences of
/// which nothing is scored.
pub struct TaskValidation {
    /// The examples.
    pub examples: Arc<TaskExamples>,
    /// Sequences of a batch.
    pub global_batch: usize,
}

impl Source for TaskValidation {
    fn batch(&self, _step: u64, consumed: u64) -> Option<usize> {
        let sequences = (self.examples.len() * self.examples.cut.group) as u64;
        (consumed < sequences).then_some(self.global_batch)
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let (group, last) = (self.examples.cut.group as u64, self.examples.len() as u64 - 1);
        let (example, place) = (position / group, (position % group) as usize);
        let sequence = self.examples.sequence(example.min(last) as usize, place)?;
        Ok(if example > last { sequence.unscored() } else { sequence })
    }
}
