//! A pre-layer-norm transformer layer (1909.08053, section 3 and figure 7b):
//!
//! ```text
//! y = x + dropout(attention(norm1(x)) + bias)
//! z = y + dropout(mlp(norm2(y)) + bias)
//! ```

use crate::attention::{Attention, SavedAttention};
use crate::mlp::{Mlp, SavedMlp};
use crate::norm::{Norm, SavedNorm};
use crate::{Context, Microbatch, Step, Store};
use henge_comm::CommError;
use henge_spec::Model;
use henge_tensor::{Backend, DropoutAt};

pub(crate) struct Layer<B: Backend> {
    index: usize,
    norm1: Norm<B>,
    attention: Attention<B>,
    norm2: Norm<B>,
    mlp: Mlp<B>,
}

/// What backward needs.
pub(crate) struct SavedLayer<B: Backend> {
    norm1: SavedNorm<B>,
    attention: SavedAttention<B>,
    norm2: SavedNorm<B>,
    mlp: SavedMlp<B>,
}

impl<B: Backend> Layer<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, model: &Model, index: usize) -> Self {
        let norm = |part| Norm::new(backend, store, chunk, &format!("layer.{index}.{part}"), model.norm_eps);
        Self {
            index,
            norm1: norm("norm1"),
            attention: Attention::new(backend, store, chunk, index),
            norm2: norm("norm2"),
            mlp: Mlp::new(backend, store, chunk, index, model.activation),
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.norm1.refresh(backend, values);
        self.attention.refresh(backend, values);
        self.norm2.refresh(backend, values);
        self.mlp.refresh(backend, values);
    }

    /// `[b s, h]` to the same.
    pub fn forward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        x: B::Activation,
    ) -> Result<(B::Activation, SavedLayer<B>), CommError> {
        let (normed, norm1) = self.norm1.forward(at.backend, x);
        let (branch, attention) = self.attention.forward(at, micro, normed)?;
        let mask = at.mask(at.dropouts.attention_residual, micro, self.index);
        let y = at.backend.add_branch(norm1.input(), branch, Some(self.attention.bias()), mask.as_ref());
        let (normed, norm2) = self.norm2.forward(at.backend, y);
        let (branch, mlp) = self.mlp.forward(at, normed)?;
        let mask = at.mask(at.dropouts.mlp_residual, micro, self.index);
        let z = at.backend.add_branch(norm2.input(), branch, Some(self.mlp.bias()), mask.as_ref());
        Ok((z, SavedLayer { norm1, attention, norm2, mlp }))
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
        let (normed, norm1) = self.norm1.forward(at.backend, x);
        let branch = self.attention.forward_cached(at, &step.runs, capacity, cache, &normed)?;
        let y = at.backend.add_branch(norm1.input(), branch, Some(self.attention.bias()), None);
        let (normed, norm2) = self.norm2.forward(at.backend, y);
        let (branch, _) = self.mlp.forward(at, normed)?;
        Ok(at.backend.add_branch(norm2.input(), branch, Some(self.mlp.bias()), None))
    }

    /// Gradient of the input from that of the output: one residual stream, to which each
    /// norm adds its branch's share.
    pub fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        dz: B::Activation,
        saved: SavedLayer<B>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let mut stream = dz;
        let mask = at.mask(at.dropouts.mlp_residual, micro, self.index);
        let dropped = dropped(at.backend, &stream, mask.as_ref());
        let dnormed = self.mlp.backward(at, dropped.as_ref().unwrap_or(&stream), saved.mlp, grads)?;
        self.norm2.backward(at.backend, &dnormed, &saved.norm2, &mut stream, grads);
        drop((dnormed, saved.norm2));

        let mask = at.mask(at.dropouts.attention_residual, micro, self.index);
        let dropped = self::dropped(at.backend, &stream, mask.as_ref());
        let dbranch = dropped.as_ref().unwrap_or(&stream);
        let dnormed = self.attention.backward(at, micro, dbranch, saved.attention, grads)?;
        self.norm1.backward(at.backend, &dnormed, &saved.norm1, &mut stream, grads);
        Ok(stream)
    }
}

/// The branch's gradient: a masked copy of the stream's, or `None` where nothing drops.
fn dropped<B: Backend>(backend: &B, stream: &B::Activation, mask: Option<&DropoutAt>) -> Option<B::Activation> {
    mask.map(|mask| {
        let mut copy = backend.duplicate(stream);
        backend.dropout(&mut copy, mask);
        copy
    })
}
