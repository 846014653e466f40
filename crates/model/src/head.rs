//! What follows the last layer: final norm, an encoder's own layers, the vocabulary and
//! order losses.
//!
//! ```text
//!   decoder   norm -> vocabulary
//!   encoder   [norm] -> scored tokens -> dense, f, norm -> vocabulary + bias
//!                    -> first tokens  -> pooler -> order of the sentences
//! ```

use crate::embedding::Table;
use crate::linear::Linear;
use crate::norm::{Norm, SavedNorm};
use crate::order::{Order, SavedOrder};
use crate::vocabulary::{LossGradient, Score, TokenLosses, Vocabulary};
use crate::{Context, Microbatch, Store};
use henge_comm::CommError;
use henge_spec::{Arch, Model, NormPlacement};
use henge_tensor::{Backend, Matrix, NonLinearity};
use std::ops::Range;

pub(crate) struct Head<B: Backend> {
    norm: Option<Norm<B>>,
    encoder: Option<EncoderHead<B>>,
    vocabulary: Vocabulary<B>,
}

/// What only an encoder has behind its last layer.
struct EncoderHead<B: Backend> {
    transform: Transform<B>,
    order: Order<B>,
}

/// The losses of a microbatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    /// Of each token, `[b, s]`.
    pub tokens: TokenLosses,
    /// Of the order of each pair of sentences, `[b]`, 0 where not scored; empty for decoders.
    pub order: Vec<f64>,
}

/// What backward needs.
pub(crate) struct SavedHead<B: Backend> {
    norm: Option<SavedNorm<B>>,
    /// This rank's part of the gradient of what the vocabulary saw.
    dscored: B::Activation,
    encoder: Option<SavedEncoder<B>>,
}

struct SavedEncoder<B: Backend> {
    /// Rows and columns of the last layer's output.
    shape: (usize, usize),
    scored: Vec<usize>,
    transform: SavedTransform<B>,
    order: SavedOrder<B>,
}

impl<B: Backend> Head<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, model: &Model, shares_embedding: bool) -> Self {
        let norm = || Norm::new(backend, store, chunk, "final_norm", model.norm_eps);
        let encoder = || EncoderHead {
            transform: Transform::new(backend, store, chunk, model),
            order: Order::new(backend, store, chunk),
        };
        Self {
            norm: (model.norm == NormPlacement::Pre).then(norm),
            encoder: (model.arch == Arch::Bert).then(encoder),
            vocabulary: Vocabulary::new(backend, store, chunk, model, shares_embedding),
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        if let Some(norm) = &mut self.norm {
            norm.refresh(backend, values);
        }
        if let Some(EncoderHead { transform, order }) = &mut self.encoder {
            transform.refresh(backend, values);
            order.refresh(backend, values);
        }
        self.vocabulary.refresh(backend, values);
    }

    /// The losses, and what backward needs.
    pub fn forward(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        x: B::Activation,
        micro: &Microbatch,
        mut gradient: LossGradient<B>,
    ) -> Result<(Losses, SavedHead<B>), CommError> {
        let (hidden, norm) = self.normed(at.backend, x);
        let Some(EncoderHead { transform, order }) = &self.encoder else {
            let scoring = self.vocabulary.of(at, embedding, &hidden, &micro.labels);
            let (tokens, dscored) = scoring.losses_and_gradient(&mut gradient)?;
            return Ok((Losses { tokens, order: vec![] }, SavedHead { norm, dscored, encoder: None }));
        };
        let (scored, labels) = scored(&micro.labels);
        let (features, transform) = transform.forward(at.backend, at.backend.take_rows(&hidden, &scored));
        let scoring = self.vocabulary.of(at, embedding, &features, &labels);
        let (found, dscored) = scoring.losses_and_gradient(&mut gradient)?;
        let (order_losses, order) = order.forward(at.backend, &hidden, &micro.order, &mut gradient);
        let losses = Losses { tokens: spread(&found, &scored, micro.labels.len()), order: order_losses };
        let shape = (hidden.rows(), hidden.columns());
        Ok((losses, SavedHead { norm, dscored, encoder: Some(SavedEncoder { shape, scored, transform, order }) }))
    }

    /// Gradient of the input.
    pub fn backward(
        &self,
        at: &Context<B>,
        saved: SavedHead<B>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let SavedHead { norm, mut dscored, encoder } = saved;
        at.reduce_backward(&mut dscored)?;
        let dhidden = match (&self.encoder, encoder) {
            (Some(head), Some(saved)) => head.backward(at.backend, &dscored, saved, grads),
            _ => dscored,
        };
        Ok(match (&self.norm, norm) {
            (Some(norm), Some(saved)) => norm.backward_alone(at.backend, &dhidden, &saved, grads),
            _ => dhidden,
        })
    }

    /// The losses, nothing kept.
    pub fn evaluate(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        x: B::Activation,
        micro: &Microbatch,
    ) -> Result<Losses, CommError> {
        let (hidden, _) = self.normed(at.backend, x);
        let Some(EncoderHead { transform, order }) = &self.encoder else {
            let tokens = self.vocabulary.of(at, embedding, &hidden, &micro.labels).losses()?;
            return Ok(Losses { tokens, order: vec![] });
        };
        let (scored, labels) = scored(&micro.labels);
        let (features, _) = transform.forward(at.backend, at.backend.take_rows(&hidden, &scored));
        let found = self.vocabulary.of(at, embedding, &features, &labels).losses()?;
        let order = order.losses(at.backend, &hidden, &micro.order);
        Ok(Losses { tokens: spread(&found, &scored, micro.labels.len()), order })
    }

    /// Loss of each row of `x`, and whether its target has the largest logit.
    pub fn score(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        x: B::Activation,
        targets: &[i64],
    ) -> Result<Vec<Score>, CommError> {
        let features = self.features(at.backend, x);
        self.vocabulary.of(at, embedding, &features, targets).scores()
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
        let features = self.features(at.backend, x);
        let labels = vec![-1; features.rows()];
        self.vocabulary.of(at, embedding, &features, &labels).logits(rows)
    }

    /// What the vocabulary sees of the last layer's output.
    fn features(&self, backend: &B, x: B::Activation) -> B::Activation {
        let (hidden, _) = self.normed(backend, x);
        match &self.encoder {
            Some(head) => head.transform.forward(backend, hidden).0,
            None => hidden,
        }
    }

    fn normed(&self, backend: &B, x: B::Activation) -> (B::Activation, Option<SavedNorm<B>>) {
        match &self.norm {
            Some(norm) => {
                let (hidden, saved) = norm.forward(backend, x);
                (hidden, Some(saved))
            }
            None => (x, None),
        }
    }
}

impl<B: Backend> EncoderHead<B> {
    /// Gradient of the last layer's normed output.
    fn backward(
        &self,
        backend: &B,
        dfeatures: &B::Activation,
        saved: SavedEncoder<B>,
        grads: &mut B::Buffer,
    ) -> B::Activation {
        let SavedEncoder { shape: (rows, columns), scored, transform, order } = saved;
        let mut dx = backend.zeroed(rows, columns);
        backend.add_rows(&mut dx, &scored, &self.transform.backward(backend, dfeatures, transform, grads));
        self.order.backward(backend, order, &mut dx, grads);
        dx
    }
}

/// Rows that have a target, and the targets.
fn scored(labels: &[i64]) -> (Vec<usize>, Vec<i64>) {
    labels.iter().enumerate().filter(|(_, label)| **label >= 0).unzip()
}

/// Values of some rows among zeros.
fn spread(values: &[f64], rows: &[usize], len: usize) -> Vec<f64> {
    let mut all = vec![0.0; len];
    for (&row, &value) in rows.iter().zip(values) {
        all[row] = value;
    }
    all
}

/// An encoder's layers before its vocabulary: `norm(f(x w^T + bias))`, whole on every tensor
/// rank.
struct Transform<B: Backend> {
    dense: Linear<B>,
    norm: Norm<B>,
    f: NonLinearity,
}

struct SavedTransform<B: Backend> {
    x: B::Activation,
    pre: B::Activation,
    norm: SavedNorm<B>,
}

impl<B: Backend> Transform<B> {
    fn new(backend: &B, store: &Store<B>, chunk: usize, model: &Model) -> Self {
        Self {
            dense: Linear::new(backend, store, chunk, &["head.dense".to_string()]),
            norm: Norm::new(backend, store, chunk, "head.norm", model.norm_eps),
            f: model.activation.into(),
        }
    }

    fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.dense.refresh(backend, values);
        self.norm.refresh(backend, values);
    }

    fn forward(&self, backend: &B, x: B::Activation) -> (B::Activation, SavedTransform<B>) {
        let (inner, pre) = self.dense.forward_activated(backend, &x, self.f);
        let (y, norm) = self.norm.forward(backend, inner);
        (y, SavedTransform { x, pre, norm })
    }

    fn backward(
        &self,
        backend: &B,
        dy: &B::Activation,
        saved: SavedTransform<B>,
        grads: &mut B::Buffer,
    ) -> B::Activation {
        let SavedTransform { x, pre, norm } = saved;
        let dinner = self.norm.backward_alone(backend, dy, &norm, grads);
        let dpre = backend.activation_backward(dinner, &pre, self.f);
        self.dense.backward(backend, &x, &dpre, grads)
    }
}
