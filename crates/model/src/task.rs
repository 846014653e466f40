//! A fine-tuning task's head: one linear layer over the pooled first token or over every
//! token (1810.04805, section 4). Whole on every tensor rank.
//!
//! Softmax runs over the classes of a sequence, over the options of an example or over the
//! tokens of a sequence: a handful of numbers, taken on the host in double precision.

use crate::linear::Linear;
use crate::{Microbatch, Store};
use henge_spec::TaskHead;
use henge_tensor::{Backend, Matrix, NonLinearity};

pub(crate) struct Task<B: Backend> {
    head: TaskHead,
    pooler: Option<Linear<B>>,
    linear: Linear<B>,
}

/// What backward needs.
pub(crate) struct SavedTask<B: Backend> {
    /// Rows and columns of the encoder's output.
    shape: (usize, usize),
    pooled: Option<Pooled<B>>,
    /// What the linear layer saw.
    x: B::Activation,
    dlogits: B::Activation,
}

struct Pooled<B: Backend> {
    rows: Vec<usize>,
    first: B::Activation,
    pre: B::Activation,
}

impl<B: Backend> Task<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, head: TaskHead) -> Self {
        let linear = |name: &str| Linear::new(backend, store, chunk, &[name.to_string()]);
        Self { head, pooler: head.is_pooled().then(|| linear("pooler")), linear: linear("task") }
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
        backend: &B,
        hidden: B::Activation,
        micro: &Microbatch,
        scale: f64,
    ) -> (Vec<f64>, SavedTask<B>) {
        let shape = (hidden.rows(), hidden.columns());
        let (x, pooled) = self.pool(backend, hidden, micro.batch());
        let logits = self.linear.forward(backend, &x);
        let (losses, dlogits) = self.cross_entropy(&backend.download(&logits), micro, scale);
        let dlogits = backend.upload(logits.rows(), logits.columns(), &dlogits);
        (losses, SavedTask { shape, pooled, x, dlogits })
    }

    /// Logits of each sequence: `[b, classes]`, `[b, 1]` or, of spans, `[b, s, 2]`.
    pub fn logits(&self, backend: &B, hidden: B::Activation, sequences: usize) -> Vec<f32> {
        let (x, _) = self.pool(backend, hidden, sequences);
        backend.download(&self.linear.forward(backend, &x))
    }

    /// Gradient of `hidden`.
    pub fn backward(&self, backend: &B, saved: SavedTask<B>, grads: &mut B::Buffer) -> B::Activation {
        let SavedTask { shape, pooled, x, dlogits } = saved;
        let dx = self.linear.backward(backend, &x, &dlogits, grads);
        let (Some(pooler), Some(Pooled { rows, first, pre })) = (&self.pooler, pooled) else { return dx };
        let dpre = backend.activation_backward(dx, &pre, NonLinearity::Tanh);
        let mut dhidden = backend.zeroed(shape.0, shape.1);
        backend.add_rows(&mut dhidden, &rows, &pooler.backward(backend, &first, &dpre, grads));
        dhidden
    }

    fn pool(&self, backend: &B, hidden: B::Activation, sequences: usize) -> (B::Activation, Option<Pooled<B>>) {
        let Some(pooler) = &self.pooler else { return (hidden, None) };
        let seq = hidden.rows() / sequences.max(1);
        let rows: Vec<usize> = (0..sequences).map(|sequence| sequence * seq).collect();
        let first = backend.take_rows(&hidden, &rows);
        let (pooled, pre) = pooler.forward_activated(backend, &first, NonLinearity::Tanh);
        (pooled, Some(Pooled { rows, first, pre }))
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
