//! Self-attention, heads split whole over the tensor group.
//!
//! `[b s, h] -> qkv [b s, 3 h/t] -> heads -> [b s, h/t] -> partial [b s, h]`. Queries, keys
//! and values are blocks side by side; each rank holds whole heads of each.

use crate::linear::Linear;
use crate::{Context, Microbatch, Store};
use henge_comm::CommError;
use henge_tensor::{AttentionCall, AttentionShape, Backend, CachedAttention, CachedRun, DropoutAt, Mask};

pub(crate) struct Attention<B: Backend> {
    qkv: Linear<B>,
    output: Linear<B>,
    layer: usize,
}

/// What backward needs.
pub(crate) struct SavedAttention<B: Backend> {
    x: B::Activation,
    qkv: B::Activation,
    heads: B::Activation,
    stats: B::AttentionStats,
}

impl<B: Backend> Attention<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, layer: usize) -> Self {
        let name = |part: &str| format!("layer.{layer}.attention.{part}");
        Self {
            qkv: Linear::new(backend, store, chunk, &["q", "k", "v"].map(name)),
            output: Linear::new(backend, store, chunk, &[name("output")]),
            layer,
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.qkv.refresh(backend, values);
        self.output.refresh(backend, values);
    }

    /// The output's bias, added with dropout and residual after the reduction.
    pub fn bias(&self) -> &B::Vector {
        self.output.bias()
    }

    /// `x` is whole on every tensor rank; so is the result.
    pub fn forward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        x: B::Activation,
    ) -> Result<(B::Activation, SavedAttention<B>), CommError> {
        let qkv = self.qkv.forward(at.backend, &x);
        let (heads, stats) = at.backend.attention(&qkv, &self.call(at, micro));
        let mut branch = self.output.forward_partial(at.backend, &heads);
        at.reduce_forward(&mut branch)?;
        Ok((branch, SavedAttention { x, qkv, heads, stats }))
    }

    /// As [`Attention::forward`] for new tokens of sequences whose earlier keys and values
    /// are in `cache`; theirs are appended.
    pub fn forward_cached(
        &self,
        at: &Context<B>,
        runs: &[CachedRun],
        capacity: usize,
        cache: &mut B::Buffer,
        x: &B::Activation,
    ) -> Result<B::Activation, CommError> {
        let qkv = self.qkv.forward(at.backend, x);
        let heads = at.backend.attention_cached(&qkv, cache, &Self::cached_call(at, runs, capacity));
        let mut branch = self.output.forward_partial(at.backend, &heads);
        at.reduce_forward(&mut branch)?;
        Ok(branch)
    }

    /// The sizes of this rank's cached attention.
    pub fn cached_call<'r>(at: &Context<B>, runs: &'r [CachedRun], capacity: usize) -> CachedAttention<'r> {
        CachedAttention {
            heads: at.model.heads / at.place.tensors,
            kv_heads: at.model.kv_heads / at.place.tensors,
            head_dim: at.model.head_dim,
            capacity,
            scale: 1.0 / (at.model.head_dim as f64).sqrt(),
            runs,
        }
    }

    /// Gradient of the input, whole on every tensor rank, from that of the branch.
    pub fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        dy: &B::Activation,
        saved: SavedAttention<B>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let SavedAttention { x, qkv, heads, stats } = saved;
        let dheads = self.output.backward(at.backend, &heads, dy, grads);
        let dqkv = at.backend.attention_backward(&dheads, &qkv, &heads, &stats, &self.call(at, micro));
        drop((qkv, heads, dheads));
        let mut dx = self.qkv.backward(at.backend, &x, &dqkv, grads);
        at.reduce_backward(&mut dx)?;
        Ok(dx)
    }

    fn call<'m>(&self, at: &Context<B>, micro: &'m Microbatch) -> AttentionCall<'m> {
        let heads = at.model.heads / at.place.tensors;
        let first_head = at.place.tensor * heads;
        let dropout = at.dropouts.attention;
        AttentionCall {
            shape: AttentionShape {
                batch: micro.batch(),
                seq: micro.seq(),
                heads,
                kv_heads: at.model.kv_heads / at.place.tensors,
                head_dim: at.model.head_dim,
            },
            mask: Mask::Causal,
            scale: 1.0 / (at.model.head_dim as f64).sqrt(),
            dropout: dropout.map(|dropout| DropoutAt {
                dropout,
                samples: &micro.samples,
                layer: self.layer,
                first_head,
            }),
        }
    }
}
