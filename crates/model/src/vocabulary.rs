//! Vocabulary-parallel head and loss (1909.08053, section 3).
//!
//! Tokens are taken in blocks, so that `[tokens, V/t]` logits never exist whole. Of each
//! block: logits over the shard, three reductions of one number per token (maximum, sum of
//! exponentials, target's logit), losses, and at once the gradients of the block, since the
//! weight of each loss is known before the first forward. Nothing of vocabulary size is
//! kept for backward and no logits are computed twice.

use crate::embedding::Table;
use crate::norm::Parameter;
use crate::store::TOKEN_TABLE;
use crate::{Context, Store};
use henge_comm::{Comm, CommError, Group, Reduce};
use henge_spec::Model;
use henge_tensor::{Backend, Buffer, Kind, Matrix, VocabularyShard, VocabularyStats};
use std::ops::Range;

/// Tokens of a block: large enough for a product at full speed, small enough that a block
/// of logits stays in the tens of megabytes for vocabularies of 50,000.
pub const LOSS_BLOCK: usize = 512;

/// Loss of each token in natural units, 0 where not scored.
pub type TokenLosses = Vec<f64>;

/// How well a target was predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Negative log likelihood in natural units.
    pub loss: f64,
    /// Whether no other logit is larger than the target's.
    pub is_best: bool,
}

/// What a training forward needs to make gradients at once.
pub struct LossGradient<'a, B: Backend> {
    /// The rank's gradient buffer.
    pub grads: &'a mut B::Buffer,
    /// Weight of each token's loss: loss scale over scored targets of the global batch.
    pub scale: f64,
    /// Weight of each sequence's loss: loss scale over scored sequences of the global batch.
    pub class_scale: f64,
}

/// The table by which hidden states are scored, and the bias of its rows.
pub(crate) struct Vocabulary<B: Backend> {
    /// The head's own table; `None` where it is the embedding's on the same stage.
    table: Option<Table<B>>,
    bias: Option<Parameter<B>>,
}

impl<B: Backend> Vocabulary<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, model: &Model, shares_embedding: bool) -> Self {
        let name = if model.tie_embeddings { TOKEN_TABLE } else { "head.weight" };
        Self {
            table: (!shares_embedding).then(|| Table::new(backend, store, chunk, name)),
            bias: Parameter::find(backend, store, chunk, "head.bias"),
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        if let Some(table) = &mut self.table {
            table.refresh(backend, values);
        }
        if let Some(bias) = &mut self.bias {
            bias.refresh(backend, values);
        }
    }

    /// Scores of `x`'s tokens. `embedding` is the stage's own embedding table.
    pub fn of<'a>(
        &'a self,
        at: &'a Context<'a, B>,
        embedding: Option<&'a Table<B>>,
        x: &'a B::Activation,
        labels: &'a [i64],
    ) -> Scoring<'a, B> {
        let table = self.table.as_ref().or(embedding).expect("a head has a table of its own or the embedding's");
        Scoring { at, table, bias: self.bias.as_ref(), x, labels }
    }
}

/// Tokens `[rows, h]` on their way through the loss.
pub(crate) struct Scoring<'a, B: Backend> {
    at: &'a Context<'a, B>,
    table: &'a Table<B>,
    bias: Option<&'a Parameter<B>>,
    x: &'a B::Activation,
    labels: &'a [i64],
}

impl<'a, B: Backend> Scoring<'a, B> {
    /// Loss of each token, and this rank's part of the gradient of `x`.
    pub fn losses_and_gradient(
        &self,
        gradient: &mut LossGradient<B>,
    ) -> Result<(TokenLosses, B::Activation), CommError> {
        let mut dx = self.at.backend.blank(self.x.rows(), self.x.columns());
        let mut losses = Vec::with_capacity(self.labels.len());
        for block in self.blocks() {
            losses.extend(block.loss_and_gradient(&mut dx, gradient)?);
        }
        Ok((losses, dx))
    }

    /// Loss of each token, nothing kept.
    pub fn losses(&self) -> Result<TokenLosses, CommError> {
        let mut losses = Vec::with_capacity(self.labels.len());
        for block in self.blocks() {
            let (_, stats) = block.reduced_stats()?;
            losses.extend(self.at.backend.vocabulary_losses(&stats, block.targets()));
        }
        Ok(losses)
    }

    /// Loss of each token, and whether its target has the largest logit.
    pub fn scores(&self) -> Result<Vec<Score>, CommError> {
        let mut scores = Vec::with_capacity(self.labels.len());
        for block in self.blocks() {
            let (_, stats) = block.reduced_stats()?;
            let losses = self.at.backend.vocabulary_losses(&stats, block.targets());
            let (max, target) = (host(&stats.max), host(&stats.target));
            let best = max.iter().zip(&target).map(|(max, target)| target >= max);
            scores.extend(losses.into_iter().zip(best).map(|(loss, is_best)| Score { loss, is_best }));
        }
        Ok(scores)
    }

    /// This rank's logits `[rows, V/t]` of some tokens, on the host, with the global index
    /// of the first column.
    pub fn logits(&self, rows: Range<usize>) -> (Vec<f32>, usize) {
        let (logits, _) = Block { of: self, rows }.sweep();
        (self.at.backend.logits_values(&logits), self.table.first_row)
    }

    fn blocks(&self) -> impl Iterator<Item = Block<'_, 'a, B>> {
        let tokens = self.labels.len();
        let starts = (0..tokens).step_by(LOSS_BLOCK);
        starts.map(move |start| Block { of: self, rows: start..(start + LOSS_BLOCK).min(tokens) })
    }
}

/// Some of the tokens.
struct Block<'s, 'a, B: Backend> {
    of: &'s Scoring<'a, B>,
    rows: Range<usize>,
}

impl<'a, B: Backend> Block<'_, 'a, B> {
    fn targets(&self) -> &'a [i64] {
        &self.of.labels[self.rows.clone()]
    }

    fn shard(&self) -> VocabularyShard<'a> {
        let rows = (self.rows.start, self.rows.end);
        VocabularyShard { first_row: self.of.table.first_row, rows, targets: self.targets() }
    }

    fn sweep(&self) -> (B::Logits, VocabularyStats<B::Buffer>) {
        let Scoring { at, table, bias, x, .. } = self.of;
        at.backend.vocabulary_sweep(x, &table.weight, bias.map(|bias| &bias.vector), &self.shard())
    }

    /// The three reductions: maximum, then sum of exponentials and target's logit.
    fn reduced_stats(&self) -> Result<(B::Logits, VocabularyStats<B::Buffer>), CommError> {
        let ((logits, mut stats), at) = (self.sweep(), self.of.at);
        if at.place.tensors == 1 {
            return Ok((logits, stats));
        }
        let local = copy_of(at.backend, &stats.max);
        reduce(at.comm, &mut stats.max, Reduce::Max)?;
        at.backend.vocabulary_rescale(&mut stats, &local);
        reduce(at.comm, &mut stats.sum, Reduce::Sum)?;
        reduce(at.comm, &mut stats.target, Reduce::Sum)?;
        Ok((logits, stats))
    }

    fn loss_and_gradient(
        &self,
        dx: &mut B::Activation,
        gradient: &mut LossGradient<B>,
    ) -> Result<TokenLosses, CommError> {
        let (logits, stats) = self.reduced_stats()?;
        let Scoring { at, table, bias, x, .. } = self.of;
        let backend = at.backend;
        let losses = backend.vocabulary_losses(&stats, self.targets());
        let LossGradient { grads, scale, .. } = gradient;
        backend.vocabulary_gradient(
            logits,
            &stats,
            x,
            &table.weight,
            &self.shard(),
            *scale,
            dx,
            grads,
            table.at,
            bias.map(|bias| bias.at),
        );
        Ok(losses)
    }
}

fn reduce<B, M: henge_tensor::Transfer, R: henge_tensor::Real>(
    comm: &dyn Comm<M>,
    buffer: &mut B,
    how: Reduce,
) -> Result<(), CommError>
where
    B: Buffer<R>,
{
    let all = 0..buffer.len();
    comm.all_reduce(Group::Tensor, buffer.view_mut(all), how)
}

fn copy_of<B: Backend>(backend: &B, buffer: &B::Buffer) -> B::Buffer {
    let host = host(buffer);
    let mut copy = backend.zeros(host.len(), Kind::Buffer);
    copy.write(0, &host);
    copy
}

fn host<R: henge_tensor::Real>(buffer: &impl Buffer<R>) -> Vec<R> {
    let mut host = vec![R::of(0.0); buffer.len()];
    buffer.read(0, &mut host);
    host
}
