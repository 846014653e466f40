//! What every layer is handed.

use henge_comm::{Comm, CommError, Group, Reduce};
use henge_random::{Dropout, Site};
use henge_spec::Model;
use henge_tensor::{Backend, DropoutAt, Transfer};
use std::ops::Range;

/// Where a stage stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index on the tensor axis.
    pub tensor: usize,
    /// Ranks of the tensor axis.
    pub tensors: usize,
    /// Virtual stage.
    pub stage: usize,
    /// Number of virtual stages.
    pub stages: usize,
}

impl Place {
    /// Global indices of the stage's layers: equal shares, in order.
    pub fn layers(&self, model: &Model) -> Range<usize> {
        let share = model.layers / self.stages;
        self.stage * share..(self.stage + 1) * share
    }

    /// Whether the stage begins with the embedding.
    pub fn is_first(&self) -> bool {
        self.stage == 0
    }

    /// Whether the stage ends with the head.
    pub fn is_last(&self) -> bool {
        self.stage + 1 == self.stages
    }
}

/// The masks of each site; `None` where nothing is dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dropouts {
    /// After the embedding.
    pub embedding: Option<Dropout>,
    /// On attention probabilities.
    pub attention: Option<Dropout>,
    /// On the attention branch.
    pub attention_residual: Option<Dropout>,
    /// On the MLP branch.
    pub mlp_residual: Option<Dropout>,
    /// On what a task's layer sees of the pooled first token.
    pub task: Option<Dropout>,
}

impl Dropouts {
    /// No dropout: evaluation.
    pub const NONE: Self =
        Self { embedding: None, attention: None, attention_residual: None, mlp_residual: None, task: None };

    /// The masks of a run.
    pub fn of(model: &Model, seed: u64) -> Self {
        let at = |site, rate: f32| (rate > 0.0).then(|| Dropout::new(seed, site, rate));
        Self {
            embedding: at(Site::Embedding, model.dropout.embedding),
            attention: at(Site::AttentionProbability, model.dropout.attention),
            attention_residual: at(Site::AttentionResidual, model.dropout.hidden),
            mlp_residual: at(Site::MlpResidual, model.dropout.hidden),
            task: at(Site::TaskPooled, model.dropout.hidden),
        }
    }
}

/// One microbatch, `b` sequences of `s` tokens.
#[derive(Clone, Debug, Default)]
pub struct Microbatch {
    /// Position of each sequence in the run's order, `[b]`.
    pub samples: Vec<u64>,
    /// Tokens, `[b, s]`.
    pub tokens: Vec<u32>,
    /// Targets, `[b, s]`; negative: not scored.
    pub labels: Vec<i64>,
    /// Tokens of each sequence that an encoder may see, `[b]`; the rest is padding. Empty for
    /// decoders.
    pub lengths: Vec<usize>,
    /// Type of each token, `[b, s]`; empty without types.
    pub types: Vec<u32>,
    /// Class of each sequence, `[b]`; negative: not scored. Of pairs of sentences 0 as written,
    /// 1 swapped; of options the right one, at the first of its group; of spans the first
    /// token. Empty for decoders.
    pub classes: Vec<i64>,
    /// Last token of each span, `[b]`; empty without spans.
    pub ends: Vec<i64>,
}

impl Microbatch {
    /// Number of sequences.
    pub fn batch(&self) -> usize {
        self.samples.len()
    }

    /// Tokens of each sequence.
    pub fn seq(&self) -> usize {
        self.tokens.len() / self.samples.len().max(1)
    }

    /// Tokens that are no padding.
    pub fn used(&self) -> usize {
        if self.lengths.is_empty() { self.tokens.len() } else { self.lengths.iter().sum() }
    }

    /// Cuts the padding behind an encoder's longest sequence off. Nobody looks at it, so what the
    /// sequences give stays the same.
    pub fn trim(&mut self) {
        let (seq, longest) = (self.seq(), self.lengths.iter().copied().max().unwrap_or(usize::MAX));
        if longest < seq {
            self.tokens = heads(&self.tokens, seq, longest);
            self.labels = heads(&self.labels, seq, longest);
            self.types = heads(&self.types, seq, longest);
        }
    }

    /// Position of each token in its sequence, `[b, s]`.
    pub(crate) fn positions(&self) -> Vec<u32> {
        (0..self.batch()).flat_map(|_| 0..self.seq() as u32).collect()
    }
}

/// The first `longest` of each row of `seq`.
fn heads<T: Copy>(rows: &[T], seq: usize, longest: usize) -> Vec<T> {
    rows.chunks(seq).flat_map(|row| &row[..longest]).copied().collect()
}

/// Backend, communicator, model and place of one stage's work.
pub struct Context<'a, B: Backend> {
    /// What computes.
    pub backend: &'a B,
    /// What talks.
    pub comm: &'a dyn Comm<B::Activation>,
    /// The model.
    pub model: &'a Model,
    /// Where this stage stands.
    pub place: Place,
    /// Masks; [`Dropouts::NONE`] in evaluation.
    pub dropouts: Dropouts,
}

impl<B: Backend> Context<'_, B> {
    /// The operator g: partial sums of a row-parallel linear become whole. Its backward is
    /// the identity.
    pub fn reduce_forward(&self, partial: &mut B::Activation) -> Result<(), CommError> {
        self.reduce(partial)
    }

    /// The operator f's backward: input gradients of a column-parallel linear become
    /// whole. Its forward is the identity.
    pub fn reduce_backward(&self, partial: &mut B::Activation) -> Result<(), CommError> {
        self.reduce(partial)
    }

    fn reduce(&self, partial: &mut B::Activation) -> Result<(), CommError> {
        if self.place.tensors == 1 {
            return Ok(());
        }
        self.comm.all_reduce(Group::Tensor, partial.view_mut(), Reduce::Sum)
    }

    /// The mask of a site over whole channels.
    pub fn mask<'m>(&self, dropout: Option<Dropout>, micro: &'m Microbatch, layer: usize) -> Option<DropoutAt<'m>> {
        dropout.map(|dropout| DropoutAt { dropout, samples: &micro.samples, layer, first_head: 0 })
    }
}
