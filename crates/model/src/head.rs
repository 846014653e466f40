//! What follows the last layer: final norm, an encoder's own layers, the vocabulary and
//! order losses.
//!
//! ```text
//!   decoder   norm -> vocabulary
//!   encoder   [norm] -> scored tokens -> dense, f, norm -> vocabulary + bias
//!                    -> first tokens  -> pooler -> order of the sentences
//!   task      [norm] -> [first tokens -> pooler] -> linear
//! ```

use crate::embedding::Table;
use crate::linear::Linear;
use crate::norm::{Norm, SavedNorm};
use crate::order::{Order, SavedOrder};
use crate::task::{SavedTask, Task};
use crate::vocabulary::{LossGradient, Score, TokenLosses, Vocabulary};
use crate::{Context, Microbatch, Store};
use henge_comm::CommError;
use henge_spec::{Arch, Model, NormPlacement};
use henge_tensor::{Backend, Matrix, NonLinearity};
use std::ops::Range;

pub(crate) struct Head<B: Backend> {
    norm: Option<Norm<B>>,
    ending: Ending<B>,
}

/// What follows the norm.
enum Ending<B: Backend> {
    Decoder(Vocabulary<B>),
    Encoder(EncoderHead<B>),
    /// Of a fine-tuned encoder.
    Task(Task<B>),
}

/// What only an encoder has behind its last layer.
struct EncoderHead<B: Backend> {
    transform: Transform<B>,
    vocabulary: Vocabulary<B>,
    order: Order<B>,
}

/// The losses of a microbatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    /// Of each token, `[b, s]`.
    pub tokens: TokenLosses,
    /// Of the class of each sequence, `[b]`, 0 where not scored; empty for decoders.
    pub classes: Vec<f64>,
}

/// What backward needs.
pub(crate) struct SavedHead<B: Backend> {
    norm: Option<SavedNorm<B>>,
    ending: SavedEnding<B>,
}

enum SavedEnding<B: Backend> {
    Decoder {
        /// This rank's part of the gradient of what the vocabulary saw.
        dscored: B::Activation,
    },
    Encoder {
        /// As a decoder's.
        dscored: B::Activation,
        saved: SavedEncoder<B>,
    },
    Task(SavedTask<B>),
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
        let vocabulary = || Vocabulary::new(backend, store, chunk, model, shares_embedding);
        let ending = match (model.task, model.arch) {
            (Some(task), _) => Ending::Task(Task::new(backend, store, chunk, task)),
            (None, Arch::Bert) => Ending::Encoder(EncoderHead {
                transform: Transform::new(backend, store, chunk, model),
                vocabulary: vocabulary(),
                order: Order::new(backend, store, chunk),
            }),
            (None, Arch::Gpt | Arch::Llama) => Ending::Decoder(vocabulary()),
        };
        Self { norm: (model.norm == NormPlacement::Pre).then(norm), ending }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        if let Some(norm) = &mut self.norm {
            norm.refresh(backend, values);
        }
        match &mut self.ending {
            Ending::Decoder(vocabulary) => vocabulary.refresh(backend, values),
            Ending::Encoder(EncoderHead { transform, vocabulary, order }) => {
                transform.refresh(backend, values);
                vocabulary.refresh(backend, values);
                order.refresh(backend, values);
            }
            Ending::Task(task) => task.refresh(backend, values),
        }
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
        let (losses, ending) = match &self.ending {
            Ending::Decoder(vocabulary) => {
                let scoring = vocabulary.of(at, embedding, &hidden, &micro.labels);
                let (tokens, dscored) = scoring.losses_and_gradient(&mut gradient)?;
                (Losses { tokens, classes: vec![] }, SavedEnding::Decoder { dscored })
            }
            Ending::Encoder(head) => head.forward(at, embedding, &hidden, micro, gradient)?,
            Ending::Task(task) => {
                let (classes, saved) = task.forward(at, hidden, micro, gradient.class_scale);
                (Losses { tokens: vec![], classes }, SavedEnding::Task(saved))
            }
        };
        Ok((losses, SavedHead { norm, ending }))
    }

    /// Gradient of the input.
    pub fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        saved: SavedHead<B>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let SavedHead { norm, ending } = saved;
        let dhidden = match (ending, &self.ending) {
            (SavedEnding::Decoder { mut dscored }, Ending::Decoder(_)) => {
                at.reduce_backward(&mut dscored)?;
                dscored
            }
            (SavedEnding::Encoder { mut dscored, saved }, Ending::Encoder(head)) => {
                at.reduce_backward(&mut dscored)?;
                head.backward(at.backend, &dscored, saved, grads)
            }
            (SavedEnding::Task(saved), Ending::Task(task)) => task.backward(at, micro, saved, grads),
            _ => unreachable!("what a head saved is of its own kind"),
        };
        Ok(Norm::backward_if_any(self.norm.as_ref(), at.backend, dhidden, norm, grads))
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
        match &self.ending {
            Ending::Decoder(vocabulary) => {
                let tokens = vocabulary.of(at, embedding, &hidden, &micro.labels).losses()?;
                Ok(Losses { tokens, classes: vec![] })
            }
            Ending::Encoder(head) => head.evaluate(at, embedding, &hidden, micro),
            Ending::Task(task) => {
                let (classes, _) = task.forward(at, hidden, micro, 0.0);
                Ok(Losses { tokens: vec![], classes })
            }
        }
    }

    /// Loss of each row of `x`, and whether its target has the largest logit.
    pub fn score(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        x: B::Activation,
        targets: &[i64],
    ) -> Result<Vec<Score>, CommError> {
        let (features, vocabulary) = self.features(at.backend, x);
        vocabulary.of(at, embedding, &features, targets).scores()
    }

    /// A task's logits of each sequence: `[b, classes]`, `[b, 1]` or, of spans, `[b, s, 2]`.
    ///
    /// # Panics
    /// On the head of another kind of model.
    pub fn task_logits(&self, backend: &B, x: B::Activation, sequences: usize) -> Vec<f32> {
        let Ending::Task(task) = &self.ending else { panic!("only a fine-tuned model has a task") };
        task.logits(backend, self.normed(backend, x).0, sequences)
    }

    /// This rank's logits `[rows, V/t]` of some tokens, on the host, with the global index
    /// of the first column.
    ///
    /// # Panics
    /// On the head of a task.
    pub fn logits(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        x: B::Activation,
        rows: Range<usize>,
    ) -> (Vec<f32>, usize) {
        let (features, vocabulary) = self.features(at.backend, x);
        let labels = vec![-1; features.rows()];
        vocabulary.of(at, embedding, &features, &labels).logits(rows)
    }

    /// What the vocabulary sees of the last layer's output, and the vocabulary.
    fn features(&self, backend: &B, x: B::Activation) -> (B::Activation, &Vocabulary<B>) {
        let (hidden, _) = self.normed(backend, x);
        match &self.ending {
            Ending::Decoder(vocabulary) => (hidden, vocabulary),
            Ending::Encoder(head) => (head.transform.forward(backend, hidden).0, &head.vocabulary),
            Ending::Task(_) => panic!("a task's head scores no vocabulary"),
        }
    }

    pub(crate) fn normed(&self, backend: &B, x: B::Activation) -> (B::Activation, Option<SavedNorm<B>>) {
        Norm::forward_if_any(self.norm.as_ref(), backend, x)
    }
}

impl<B: Backend> EncoderHead<B> {
    fn forward(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        hidden: &B::Activation,
        micro: &Microbatch,
        mut gradient: LossGradient<B>,
    ) -> Result<(Losses, SavedEnding<B>), CommError> {
        let (scored, labels) = scored(&micro.labels);
        let (features, transform) = self.transform.forward(at.backend, at.backend.take_rows(hidden, &scored));
        let scoring = self.vocabulary.of(at, embedding, &features, &labels);
        let (found, dscored) = scoring.losses_and_gradient(&mut gradient)?;
        let (classes, order) = self.order.forward(at.backend, hidden, &micro.classes, &mut gradient);
        let losses = Losses { tokens: spread(&found, &scored, micro.labels.len()), classes };
        let shape = (hidden.rows(), hidden.columns());
        Ok((losses, SavedEnding::Encoder { dscored, saved: SavedEncoder { shape, scored, transform, order } }))
    }

    fn evaluate(
        &self,
        at: &Context<B>,
        embedding: Option<&Table<B>>,
        hidden: &B::Activation,
        micro: &Microbatch,
    ) -> Result<Losses, CommError> {
        let (scored, labels) = scored(&micro.labels);
        let (features, _) = self.transform.forward(at.backend, at.backend.take_rows(hidden, &scored));
        let found = self.vocabulary.of(at, embedding, &features, &labels).losses()?;
        let classes = self.order.losses(at.backend, hidden, &micro.classes);
        Ok(Losses { tokens: spread(&found, &scored, micro.labels.len()), classes })
    }

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
