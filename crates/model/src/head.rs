//! Final norm, vocabulary-parallel head and loss (1909.08053, section 3).
//!
//! Tokens are taken in blocks, so that `[tokens, V/t]` logits never exist whole. Of each
//! block: logits over the shard, three reductions of one number per token (maximum, sum of
//! exponentials, target's logit), losses, and at once the gradients of the block, since the
//! weight of each loss is known before the first forward. Nothing of vocabulary size is
//! kept for backward and no logits are computed twice.

use crate::embedding::Table;
use crate::norm::{Norm, SavedNorm};
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
}

pub(crate) struct Head<B: Backend> {
    norm: Norm<B>,
    /// The head's own table; `None` where it is the embedding's on the same stage.
    table: Option<Table<B>>,
}

/// What backward needs: the norm's and the gradient of its output.
pub(crate) struct SavedHead<B: Backend> {
    norm: SavedNorm<B>,
    dnormed: B::Activation,
}

impl<B: Backend> Head<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, model: &Model, shares_embedding: bool) -> Self {
        let name = if model.tie_embeddings { TOKEN_TABLE } else { "head.weight" };
        Self {
            norm: Norm::new(backend, store, chunk, "final_norm", model.norm_eps),
            table: (!shares_embedding).then(|| Table::new(backend, store, chunk, name)),
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.norm.refresh(backend, values);
        if let Some(table) = &mut self.table {
            table.refresh(backend, values);
        }
    }

    fn table<'a>(&'a self, embedding: Option<&'a Table<B>>) -> &'a Table<B> {
        self.table.as_ref().or(embedding).expect("a head has a table of its own or the embedding's")
    }

    /// Loss of each token, and what backward needs.
    pub fn forward(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        x: B::Activation,
        labels: &[i64],
        mut gradient: LossGradient<B>,
    ) -> Result<(TokenLosses, SavedHead<B>), CommError> {
        let (normed, norm) = self.norm.forward(at.backend, x);
        let mut dnormed = at.backend.blank(normed.rows(), normed.columns());
        let mut losses = Vec::with_capacity(labels.len());
        for rows in blocks(labels.len()) {
            let block = Block { at, table: self.table(embedding), x: &normed, rows, labels };
            losses.extend(block.loss_and_gradient(&mut dnormed, &mut gradient)?);
        }
        Ok((losses, SavedHead { norm, dnormed }))
    }

    /// Gradient of the input.
    pub fn backward(
        &self,
        at: &Context<B>,
        saved: SavedHead<B>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let SavedHead { norm, mut dnormed } = saved;
        at.reduce_backward(&mut dnormed)?;
        let mut dx = at.backend.zeroed(dnormed.rows(), dnormed.columns());
        self.norm.backward(at.backend, &dnormed, &norm, &mut dx, grads);
        Ok(dx)
    }

    /// Loss of each token, nothing kept.
    pub fn evaluate(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        x: B::Activation,
        labels: &[i64],
    ) -> Result<TokenLosses, CommError> {
        let (normed, _) = self.norm.forward(at.backend, x);
        let mut losses = Vec::with_capacity(labels.len());
        for rows in blocks(labels.len()) {
            let block = Block { at, table: self.table(embedding), x: &normed, rows, labels };
            let (_, stats) = block.reduced_stats()?;
            losses.extend(at.backend.vocabulary_losses(&stats, block.targets()));
        }
        Ok(losses)
    }

    /// Loss of each row of `x`, and whether its target has the largest logit.
    pub fn score(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        x: B::Activation,
        targets: &[i64],
    ) -> Result<Vec<Score>, CommError> {
        let (normed, _) = self.norm.forward(at.backend, x);
        let mut scores = Vec::with_capacity(targets.len());
        for rows in blocks(targets.len()) {
            let block = Block { at, table: self.table(embedding), x: &normed, rows, labels: targets };
            let (_, stats) = block.reduced_stats()?;
            let losses = at.backend.vocabulary_losses(&stats, block.targets());
            let (max, target) = (host(&stats.max), host(&stats.target));
            let best = max.iter().zip(&target).map(|(max, target)| target >= max);
            scores.extend(losses.into_iter().zip(best).map(|(loss, is_best)| Score { loss, is_best }));
        }
        Ok(scores)
    }

    /// This rank's logits `[rows, V/t]` of some tokens, on the host, with the global index
    /// of the first column.
    pub fn logits(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        x: B::Activation,
        rows: Range<usize>,
    ) -> (Vec<f32>, usize) {
        let (normed, _) = self.norm.forward(at.backend, x);
        let table = self.table(embedding);
        let labels = vec![-1; normed.rows()];
        let block = Block { at, table, x: &normed, rows, labels: &labels };
        let (logits, _) = block.sweep();
        (at.backend.logits_values(&logits), table.first_row)
    }
}

fn blocks(tokens: usize) -> impl Iterator<Item = Range<usize>> {
    (0..tokens).step_by(LOSS_BLOCK).map(move |start| start..(start + LOSS_BLOCK).min(tokens))
}

/// One block of tokens on its way through the loss.
struct Block<'a, B: Backend> {
    at: &'a Context<'a, B>,
    table: &'a Table<B>,
    x: &'a B::Activation,
    rows: Range<usize>,
    labels: &'a [i64],
}

impl<'a, B: Backend> Block<'a, B> {
    fn targets(&self) -> &'a [i64] {
        &self.labels[self.rows.clone()]
    }

    fn shard(&self) -> VocabularyShard<'a> {
        let rows = (self.rows.start, self.rows.end);
        VocabularyShard { first_row: self.table.first_row, rows, targets: self.targets() }
    }

    fn sweep(&self) -> (B::Logits, VocabularyStats<B::Buffer>) {
        self.at.backend.vocabulary_sweep(self.x, &self.table.weight, None, &self.shard())
    }

    /// The three reductions: maximum, then sum of exponentials and target's logit.
    fn reduced_stats(&self) -> Result<(B::Logits, VocabularyStats<B::Buffer>), CommError> {
        let (logits, mut stats) = self.sweep();
        if self.at.place.tensors == 1 {
            return Ok((logits, stats));
        }
        let local = copy_of(self.at.backend, &stats.max);
        reduce(self.at.comm, &mut stats.max, Reduce::Max)?;
        self.at.backend.vocabulary_rescale(&mut stats, &local);
        reduce(self.at.comm, &mut stats.sum, Reduce::Sum)?;
        reduce(self.at.comm, &mut stats.target, Reduce::Sum)?;
        Ok((logits, stats))
    }

    fn loss_and_gradient(
        &self,
        dx: &mut B::Activation,
        gradient: &mut LossGradient<B>,
    ) -> Result<TokenLosses, CommError> {
        let (logits, stats) = self.reduced_stats()?;
        let (backend, table) = (self.at.backend, self.table);
        let losses = backend.vocabulary_losses(&stats, self.targets());
        let LossGradient { grads, scale } = gradient;
        backend.vocabulary_gradient(
            logits,
            &stats,
            self.x,
            &table.weight,
            &self.shard(),
            *scale,
            dx,
            grads,
            table.at,
            None,
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
