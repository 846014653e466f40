//! A stage: a run of layers, the embedding before the first, the head after the last.

use crate::attention::Rotary;
use crate::embedding::Embedding;
use crate::head::{Head, Losses, SavedHead};
use crate::layer::{Layer, SavedLayer};
use crate::norm::SavedNorm;
use crate::vocabulary::LossGradient;
use crate::{Context, Microbatch, Place, Store};
use henge_comm::CommError;
use henge_spec::{Model, Recompute};
use henge_tensor::Backend;
use std::ops::Range;

/// The layers of one chunk on one rank.
pub struct Stage<B: Backend> {
    pub(crate) embedding: Option<Embedding<B>>,
    pub(crate) layers: Vec<Layer<B>>,
    pub(crate) head: Option<Head<B>>,
    recompute: Recompute,
}

/// What a microbatch's forward keeps for its backward.
pub struct Saved<B: Backend> {
    embedding: Option<SavedNorm<B>>,
    layers: Kept<B>,
    head: Option<SavedHead<B>>,
}

enum Kept<B: Backend> {
    /// Everything.
    Whole(Vec<SavedLayer<B>>),
    /// The input of every group of layers.
    Inputs(Vec<B::Activation>),
}

/// What comes out of a stage.
pub enum Output<B: Backend> {
    /// An activation for the next stage.
    Hidden(B::Activation),
    /// The losses of the last stage.
    Losses(Losses),
}

impl<B: Backend> Stage<B> {
    /// The stage at `place`, chunk `chunk` of the store.
    pub fn new(
        backend: &B,
        store: &Store<B>,
        chunk: usize,
        model: &Model,
        place: &Place,
        recompute: Recompute,
    ) -> Self {
        let shares_embedding = model.head_is_tied() && place.is_first();
        let rotary = Rotary::of(model);
        let layer = |index| Layer::new(backend, store, chunk, model, index, rotary.as_ref());
        let layers = place.layers(model).map(layer);
        Self {
            embedding: place.is_first().then(|| Embedding::new(backend, store, chunk, model)),
            layers: layers.collect(),
            head: place.is_last().then(|| Head::new(backend, store, chunk, model, shares_embedding)),
            recompute,
        }
    }

    /// Prepares every weight again after an optimizer step.
    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        if let Some(embedding) = &mut self.embedding {
            embedding.refresh(backend, values);
        }
        for layer in &mut self.layers {
            layer.refresh(backend, values);
        }
        if let Some(head) = &mut self.head {
            head.refresh(backend, values);
        }
    }

    /// Runs a microbatch. `input` is the previous stage's output, or `None` on the first.
    /// On the last stage the head makes its gradients at once.
    pub fn forward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        input: Option<B::Activation>,
        gradient: LossGradient<B>,
    ) -> Result<(Output<B>, Saved<B>), CommError> {
        let (x, embedding) = self.entry(at, micro, input)?;
        let (y, layers) = match self.recompute {
            Recompute::Every(every) => self.run_keeping_inputs(at, micro, x, every)?,
            Recompute::None | Recompute::Selective => {
                let (y, saved) = self.run(at, micro, x, 0..self.layers.len())?;
                (y, Kept::Whole(saved))
            }
        };
        let Some(head) = &self.head else {
            return Ok((Output::Hidden(y), Saved { embedding, layers, head: None }));
        };
        let table = self.embedding.as_ref().map(|embedding| &embedding.table);
        let (losses, saved) = head.forward(at, table, y, micro, gradient)?;
        Ok((Output::Losses(losses), Saved { embedding, layers, head: Some(saved) }))
    }

    /// Gradient of the stage's input, or `None` on the first. `dy` is the next stage's, or
    /// `None` on the last.
    pub fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        saved: Saved<B>,
        dy: Option<B::Activation>,
        grads: &mut B::Buffer,
    ) -> Result<Option<B::Activation>, CommError> {
        let dy = match (&self.head, saved.head, dy) {
            (Some(head), Some(saved), None) => head.backward(at, micro, saved, grads)?,
            (None, None, Some(dy)) => dy,
            _ => unreachable!("a gradient comes from the head or from the next stage, never both"),
        };
        let normed = saved.embedding;
        let dx = match saved.layers {
            Kept::Whole(saved) => self.run_back(at, micro, dy, saved, 0, grads)?,
            Kept::Inputs(inputs) => self.run_back_from_inputs(at, micro, dy, inputs, grads)?,
        };
        let Some(embedding) = &self.embedding else { return Ok(Some(dx)) };
        embedding.backward(at, micro, dx, normed, grads);
        Ok(None)
    }

    /// Forward without anything kept: losses on the last stage, else the hidden state.
    pub fn evaluate(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        input: Option<B::Activation>,
    ) -> Result<Output<B>, CommError> {
        let y = self.hidden(at, micro, input)?;
        let Some(head) = &self.head else { return Ok(Output::Hidden(y)) };
        let table = self.embedding.as_ref().map(|embedding| &embedding.table);
        Ok(Output::Losses(head.evaluate(at, table, y, micro)?))
    }

    /// The stage's layers without the head and without anything kept.
    pub fn hidden(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        input: Option<B::Activation>,
    ) -> Result<B::Activation, CommError> {
        let (mut x, _) = self.entry(at, micro, input)?;
        for layer in &self.layers {
            x = layer.forward(at, micro, x)?.0;
        }
        Ok(x)
    }

    /// Logits of tokens `rows` over this rank's vocabulary shard and the shard's first
    /// index, from the last stage's hidden state.
    ///
    /// # Panics
    /// On a stage without a head.
    pub fn logits(&self, at: &Context<B>, hidden: B::Activation, rows: Range<usize>) -> (Vec<f32>, usize) {
        let head = self.head.as_ref().expect("logits are asked of the last stage");
        head.logits(at, self.embedding.as_ref().map(|embedding| &embedding.table), hidden, rows)
    }

    /// A task's logits of each sequence, from the last stage's hidden state: `[b, classes]`,
    /// `[b, 1]` or, of spans, `[b, s, 2]`; the same on every tensor rank.
    ///
    /// # Panics
    /// On a stage without a task's head.
    pub fn task_logits(&self, at: &Context<B>, hidden: B::Activation, micro: &Microbatch) -> Vec<f32> {
        let head = self.head.as_ref().expect("logits are asked of the last stage");
        head.task_logits(at.backend, hidden, micro.batch())
    }

    /// The last stage's hidden state as the head sees it: behind the final norm, where there
    /// is one.
    ///
    /// # Panics
    /// On a stage without a head.
    pub fn normed(&self, at: &Context<B>, hidden: B::Activation) -> B::Activation {
        self.head.as_ref().expect("features are asked of the last stage").normed(at.backend, hidden).0
    }

    fn entry(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        input: Option<B::Activation>,
    ) -> Result<(B::Activation, Option<SavedNorm<B>>), CommError> {
        match (&self.embedding, input) {
            (Some(embedding), None) => embedding.forward(at, micro),
            (None, Some(x)) => Ok((x, None)),
            _ => unreachable!("the first stage, and only it, begins with tokens"),
        }
    }

    fn run(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        x: B::Activation,
        layers: Range<usize>,
    ) -> Result<(B::Activation, Vec<SavedLayer<B>>), CommError> {
        let (mut x, mut kept) = (x, Vec::with_capacity(layers.len()));
        for layer in &self.layers[layers] {
            let (y, saved) = layer.forward(at, micro, x)?;
            kept.push(saved);
            x = y;
        }
        Ok((x, kept))
    }

    fn run_keeping_inputs(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        x: B::Activation,
        every: usize,
    ) -> Result<(B::Activation, Kept<B>), CommError> {
        let (mut x, mut inputs) = (x, Vec::new());
        for group in self.layers.chunks(every) {
            inputs.push(at.backend.duplicate(&x));
            for layer in group {
                x = layer.forward(at, micro, x)?.0;
            }
        }
        Ok((x, Kept::Inputs(inputs)))
    }

    /// Backward of the layers from `first` on, of which `saved` holds one entry each.
    fn run_back(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        dy: B::Activation,
        saved: Vec<SavedLayer<B>>,
        first: usize,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let layers = &self.layers[first..first + saved.len()];
        layers.iter().zip(saved).rev().try_fold(dy, |dy, (layer, saved)| layer.backward(at, micro, dy, saved, grads))
    }

    /// Runs each group forward again from its input, then backward: the same operations in
    /// the same order, hence the same bits.
    fn run_back_from_inputs(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        dy: B::Activation,
        inputs: Vec<B::Activation>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let every = self.layers.len() / inputs.len().max(1);
        let mut dy = dy;
        for (group, input) in inputs.into_iter().enumerate().rev() {
            let first = group * every;
            let (_, saved) = self.run(at, micro, input, first..first + every)?;
            dy = self.run_back(at, micro, dy, saved, first, grads)?;
        }
        Ok(dy)
    }
}
