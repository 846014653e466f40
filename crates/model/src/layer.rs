//! A transformer layer: attention, then MLP, each a branch beside the residual stream.

use crate::attention::{Attention, Rotary};
use crate::mlp::Mlp;
use crate::residual::{Branch, Residual, SavedResidual};
use crate::{Context, Microbatch, Step, Store};
use henge_comm::CommError;
use henge_spec::Model;
use henge_tensor::Backend;

pub(crate) struct Layer<B: Backend> {
    attention: Residual<B, Attention<B>>,
    mlp: Residual<B, Mlp<B>>,
}

/// What backward needs.
pub(crate) struct SavedLayer<B: Backend> {
    attention: SavedResidual<B, Attention<B>>,
    mlp: SavedResidual<B, Mlp<B>>,
}

impl<B: Backend> Layer<B> {
    pub fn new(
        backend: &B,
        store: &Store<B>,
        chunk: usize,
        model: &Model,
        index: usize,
        rotary: Option<&Rotary>,
    ) -> Self {
        let attention = Attention::new(backend, store, chunk, index, rotary.cloned());
        let mlp = Mlp::new(backend, store, chunk, index, model.activation.into());
        Self {
            attention: Residual::new(backend, store, chunk, model, (index, "norm1"), attention),
            mlp: Residual::new(backend, store, chunk, model, (index, "norm2"), mlp),
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.attention.refresh(backend, values);
        self.mlp.refresh(backend, values);
    }

    /// `[b s, h]` to the same.
    pub fn forward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        x: B::Activation,
    ) -> Result<(B::Activation, SavedLayer<B>), CommError> {
        let (y, attention) = self.attention.forward(at, micro, x, at.dropouts.attention_residual)?;
        let (z, mlp) = self.mlp.forward(at, micro, y, at.dropouts.mlp_residual)?;
        Ok((z, SavedLayer { attention, mlp }))
    }

    /// As [`Layer::forward`] for the new tokens of a decoding step; nothing is kept but
    /// their keys and values, in `cache`.
    pub fn forward_cached(
        &self,
        at: &Context<B>,
        step: &Step,
        capacity: usize,
        cache: &mut B::Buffer,
        x: B::Activation,
    ) -> Result<B::Activation, CommError> {
        let attention = &self.attention.branch;
        let y =
            self.attention.forward_with(at.backend, x, |x| attention.forward_cached(at, step, capacity, cache, &x))?;
        let micro = Microbatch::default(); // an MLP asks nothing of it
        self.mlp.forward_with(at.backend, y, |y| Ok(self.mlp.branch.forward(at, &micro, y)?.0))
    }

    /// Gradient of the input from that of the output.
    pub fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        dz: B::Activation,
        saved: SavedLayer<B>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let dy = self.mlp.backward(at, micro, dz, saved.mlp, at.dropouts.mlp_residual, grads)?;
        self.attention.backward(at, micro, dy, saved.attention, at.dropouts.attention_residual, grads)
    }
}
