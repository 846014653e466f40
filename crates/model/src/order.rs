//! The order of an encoder's two sentences, judged from the first token (1909.08053, section
//! 5.3; 1909.11942): pooler, then two classes. Whole on every tensor rank.

use crate::Store;
use crate::embedding::Table;
use crate::norm::Parameter;
use crate::pooler::{Pooler, SavedPooler};
use crate::vocabulary::LossGradient;
use henge_tensor::{Backend, Matrix, VocabularyShard};

pub(crate) struct Order<B: Backend> {
    pooler: Pooler<B>,
    classes: Table<B>,
    bias: Parameter<B>,
}

/// What backward needs.
pub(crate) struct SavedOrder<B: Backend> {
    pooler: SavedPooler<B>,
    dpooled: B::Activation,
}

impl<B: Backend> Order<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize) -> Self {
        Self {
            pooler: Pooler::new(backend, store, chunk),
            classes: Table::new(backend, store, chunk, "order.weight"),
            bias: Parameter::find(backend, store, chunk, "order.bias").expect("classes have biases"),
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.pooler.refresh(backend, values);
        self.classes.refresh(backend, values);
        self.bias.refresh(backend, values);
    }

    /// Loss of each sequence of `hidden [b s, h]`, and what backward needs. The classes'
    /// gradients are made at once.
    pub fn forward(
        &self,
        backend: &B,
        hidden: &B::Activation,
        order: &[i64],
        gradient: &mut LossGradient<B>,
    ) -> (Vec<f64>, SavedOrder<B>) {
        let (pooled, pooler) = self.pooler.forward(backend, hidden, order.len());
        let shard = shard(order);
        let (logits, stats) = backend.vocabulary_sweep(&pooled, &self.classes.weight, Some(&self.bias.vector), &shard);
        let losses = backend.vocabulary_losses(&stats, order);
        let mut dpooled = backend.blank(pooled.rows(), pooled.columns());
        let LossGradient { grads, class_scale, .. } = gradient;
        backend.vocabulary_gradient(
            logits,
            &stats,
            &pooled,
            &self.classes.weight,
            &shard,
            *class_scale,
            &mut dpooled,
            grads,
            self.classes.at,
            Some(self.bias.at),
        );
        (losses, SavedOrder { pooler, dpooled })
    }

    /// Loss of each sequence, nothing kept.
    pub fn losses(&self, backend: &B, hidden: &B::Activation, order: &[i64]) -> Vec<f64> {
        let (pooled, _) = self.pooler.forward(backend, hidden, order.len());
        let bias = Some(&self.bias.vector);
        let (_, stats) = backend.vocabulary_sweep(&pooled, &self.classes.weight, bias, &shard(order));
        backend.vocabulary_losses(&stats, order)
    }

    /// Adds the gradient of the first tokens to `dhidden`.
    pub fn backward(&self, backend: &B, saved: SavedOrder<B>, dhidden: &mut B::Activation, grads: &mut B::Buffer) {
        self.pooler.backward(backend, saved.dpooled, saved.pooler, dhidden, grads);
    }
}

/// The two classes are a small vocabulary that no rank splits.
fn shard(order: &[i64]) -> VocabularyShard<'_> {
    VocabularyShard { first_row: 0, rows: (0, order.len()), targets: order }
}
