//! A fine-tuning task's head: one linear layer over the pooled first token or over every
//! token (1810.04805, section 4). Whole on every tensor rank. What is pooled is dropped from as
//! a hidden state is (Megatron-LM, `classification.py`); of spans the layers have done it.
//!
//! Softmax runs over the classes of a sequence, over the options of an example or over the
//! tokens of a sequence: a handful of numbers, taken on the host in double precision.

use crate::linear::Linear;
use crate::pooler::{Pooler, SavedPooler};
use crate::{Context, Microbatch, Store};
use henge_spec::TaskHead;
use henge_tensor::{Backend, Matrix};

pub(crate) struct Task<B: Backend> {
    head: TaskHead,
    pooler: Option<Pooler<B>>,
    linear: Linear<B>,
}

/// What backward needs.
pub(crate) struct SavedTask<B: Backend> {
    /// Rows and columns of the encoder's output.
    shape: (usize, usize),
    pooler: Option<SavedPooler<B>>,
    /// What the linear layer saw.
    x: B::Activation,
    dlogits: B::Activation,
}

impl<B: Backend> Task<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, head: TaskHead) -> Self {
        Self {
            head,
            pooler: head.is_pooled().then(|| Pooler::new(backend, store, chunk)),
            linear: Linear::new(backend, store, chunk, &["task".to_string()]),
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        if let Some(pooler) = &mut self.pooler {
            pooler.refresh(backend, values);
        }
        self.linear.refresh(backend, values);
    }

    /// Loss of each sequence of `hidden [b s, h]`, and what the backward of
    /// `scale * sum(losses)` needs.
    pub fn forward(
        &self,
        at: &Context<B>,
        hidden: B::Activation,
        micro: &Microbatch,
        scale: f64,
    ) -> (Vec<f64>, SavedTask<B>) {
        let (backend, shape) = (at.backend, (hidden.rows(), hidden.columns()));
        let (mut x, pooler) = self.pool(backend, hidden, micro.batch());
        self.drop(at, micro, &mut x);
        let logits = self.linear.forward(backend, &x);
        let (losses, dlogits) = self.cross_entropy(&backend.download(&logits), micro, scale);
        let dlogits = backend.upload(logits.rows(), logits.columns(), &dlogits);
        (losses, SavedTask { shape, pooler, x, dlogits })
    }

    /// Logits of each sequence: `[b, classes]`, `[b, 1]` or, of spans, `[b, s, 2]`.
    pub fn logits(&self, backend: &B, hidden: B::Activation, sequences: usize) -> Vec<f32> {
        let (x, _) = self.pool(backend, hidden, sequences);
        backend.download(&self.linear.forward(backend, &x))
    }

    /// Gradient of `hidden`.
    pub fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        saved: SavedTask<B>,
        grads: &mut B::Buffer,
    ) -> B::Activation {
        let (backend, SavedTask { shape, pooler: saved, x, dlogits }) = (at.backend, saved);
        let mut dx = self.linear.backward(backend, &x, &dlogits, grads);
        self.drop(at, micro, &mut dx);
        let (Some(pooler), Some(saved)) = (&self.pooler, saved) else { return dx };
        let mut dhidden = backend.zeroed(shape.0, shape.1);
        pooler.backward(backend, dx, saved, &mut dhidden, grads);
        dhidden
    }

    /// Drops of what is pooled, `[b, h]`; its own backward.
    fn drop(&self, at: &Context<B>, micro: &Microbatch, pooled: &mut B::Activation) {
        if let Some(mask) = at.mask(at.dropouts.task, micro, 0).filter(|_| self.pooler.is_some()) {
            at.backend.dropout(pooled, &mask);
        }
    }

    /// What the linear layer sees, before anything is dropped.
    fn pool(&self, backend: &B, hidden: B::Activation, sequences: usize) -> (B::Activation, Option<SavedPooler<B>>) {
        let Some(pooler) = &self.pooler else { return (hidden, None) };
        let (pooled, saved) = pooler.forward(backend, &hidden, sequences);
        (pooled, Some(saved))
    }

    /// Loss of each sequence, an example's at its first, and the gradient of the logits.
    fn cross_entropy(&self, logits: &[f32], micro: &Microbatch, scale: f64) -> (Vec<f64>, Vec<f32>) {
        let mut losses = vec![0.0; micro.batch()];
        let mut gradient = vec![0.0; logits.len()];
        for softmax in self.softmaxes(micro) {
            let Softmax { sequence, first, stride, count, target, weight } = softmax;
            let at = |i: usize| first + i * stride;
            let values: Vec<f64> = (0..count).map(|i| f64::from(logits[at(i)])).collect();
            let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = values.iter().map(|value| (value - max).exp()).sum();
            losses[sequence] += weight * (sum.ln() + max - values[target]);
            for (i, value) in values.iter().enumerate() {
                let probability = (value - max).exp() / sum;
                gradient[at(i)] = (scale * weight * (probability - f64::from(u8::from(i == target)))) as f32;
            }
        }
        (losses, gradient)
    }

    /// Every softmax of a microbatch that has a target.
    fn softmaxes(&self, micro: &Microbatch) -> Vec<Softmax> {
        let (seq, outputs) = (micro.seq(), self.head.outputs());
        let scored = micro.classes.iter().enumerate().filter(|(_, class)| **class >= 0);
        let of = |(sequence, &class): (usize, &i64)| {
            let one = Softmax { sequence, first: 0, stride: 1, count: 0, target: class as usize, weight: 1.0 };
            match self.head {
                TaskHead::Classes(classes) => vec![Softmax { first: sequence * outputs, count: classes, ..one }],
                TaskHead::Choice(options) => vec![Softmax { first: sequence, count: options, ..one }],
                // Mean of the losses of both ends; padding takes no part.
                TaskHead::Span => {
                    let (first, count) = (sequence * seq * outputs, micro.lengths[sequence]);
                    let start = Softmax { first, stride: outputs, count, weight: 0.5, ..one };
                    let target = micro.ends[sequence] as usize;
                    vec![start, Softmax { first: first + 1, stride: outputs, count, weight: 0.5, target, ..one }]
                }
            }
        };
        scored.flat_map(of).collect()
    }
}

/// One softmax over logits `first`, `first + stride`, ...
struct Softmax {
    sequence: usize,
    first: usize,
    stride: usize,
    count: usize,
    target: usize,
    weight: f64,
}
