//! Self-attention, heads split whole over the tensor group.
//!
//! `[b s, h] -> qkv [b s, 3 h/t] -> heads -> [b s, h/t] -> partial [b s, h]`. Queries, keys
//! and values are blocks side by side; each rank holds whole heads of each. Where positions
//! are rotary, queries and keys turn between the first product and the heads.

use crate::linear::Linear;
use crate::residual::Branch;
use crate::{Context, Microbatch, Step, Store};
use henge_comm::CommError;
use henge_spec::{Arch, Model};
use henge_tensor::{
    AttentionCall, AttentionShape, Backend, CachedAttention, CachedRun, DropoutAt, Mask, RotaryTable, Rotation, Turn,
};
use std::sync::Arc;

pub(crate) struct Attention<B: Backend> {
    qkv: Linear<B>,
    output: Linear<B>,
    layer: usize,
    rotary: Option<Rotary>,
}

/// The angles of a stage's layers.
#[derive(Clone)]
pub(crate) struct Rotary(Arc<RotaryTable>);

impl Rotary {
    /// For every position of a model with rotary positions.
    pub fn of(model: &Model) -> Option<Self> {
        let rope = model.rope?;
        let table = RotaryTable::new(model.seq_len, &rope.frequencies(model.head_dim), rope.amplitude());
        Some(Self(Arc::new(table)))
    }
}

/// What backward needs.
pub(crate) struct SavedAttention<B: Backend> {
    x: B::Activation,
    qkv: B::Activation,
    heads: B::Activation,
    stats: B::AttentionStats,
}

impl<B: Backend> Attention<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, layer: usize, rotary: Option<Rotary>) -> Self {
        let name = |part: &str| format!("layer.{layer}.attention.{part}");
        Self {
            qkv: Linear::new(backend, store, chunk, &["q", "k", "v"].map(name)),
            output: Linear::new(backend, store, chunk, &[name("output")]),
            layer,
            rotary,
        }
    }

    /// Turns queries and keys, or their gradients back; positions are listed only where they
    /// turn anything.
    fn turn(&self, at: &Context<B>, qkv: &mut B::Activation, positions: impl FnOnce() -> Vec<u32>, turn: Turn) {
        let Some(Rotary(table)) = &self.rotary else { return };
        let heads = (at.model.heads + at.model.kv_heads) / at.place.tensors;
        at.backend.rotate(qkv, &Rotation { table, positions: &positions(), heads, turn });
    }

    /// As [`Branch::forward`] for new tokens of sequences whose earlier keys and values are
    /// in `cache`; theirs are appended.
    pub fn forward_cached(
        &self,
        at: &Context<B>,
        step: &Step,
        capacity: usize,
        cache: &mut B::Buffer,
        x: &B::Activation,
    ) -> Result<B::Activation, CommError> {
        let mut qkv = self.qkv.forward(at.backend, x);
        self.turn(at, &mut qkv, || step.positions(), Turn::Forward);
        let heads = at.backend.attention_cached(&qkv, cache, &Self::cached_call(at, &step.runs, capacity));
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
            mask: match at.model.arch {
                Arch::Bert => Mask::Lengths(&micro.lengths),
                Arch::Gpt | Arch::Llama => Mask::Causal,
            },
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

impl<B: Backend> Branch<B> for Attention<B> {
    type Saved = SavedAttention<B>;

    fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.qkv.refresh(backend, values);
        self.output.refresh(backend, values);
    }

    fn bias(&self) -> Option<&B::Vector> {
        self.output.bias()
    }

    fn forward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        x: B::Activation,
    ) -> Result<(B::Activation, SavedAttention<B>), CommError> {
        let mut qkv = self.qkv.forward(at.backend, &x);
        self.turn(at, &mut qkv, || micro.positions(), Turn::Forward);
        let (heads, stats) = at.backend.attention(&qkv, &self.call(at, micro));
        let mut branch = self.output.forward_partial(at.backend, &heads);
        at.reduce_forward(&mut branch)?;
        Ok((branch, SavedAttention { x, qkv, heads, stats }))
    }

    fn input(saved: &SavedAttention<B>) -> &B::Activation {
        &saved.x
    }

    fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        dy: &B::Activation,
        saved: SavedAttention<B>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let SavedAttention { x, qkv, heads, stats } = saved;
        let dheads = self.output.backward(at.backend, &heads, dy, grads);
        let mut dqkv = at.backend.attention_backward(&dheads, &qkv, &heads, &stats, &self.call(at, micro));
        drop((qkv, heads, dheads));
        self.turn(at, &mut dqkv, || micro.positions(), Turn::Back);
        let mut dx = self.qkv.backward(at.backend, &x, &dqkv, grads);
        at.reduce_backward(&mut dx)?;
        Ok(dx)
    }
}
