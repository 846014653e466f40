//! The two-layer MLP: `f(x A^T + a) B^T`, A split by rows of `[4h, h]`, B by columns.

use crate::linear::Linear;
use crate::{Context, Store};
use henge_comm::CommError;
use henge_spec::Activation as NonLinearity;
use henge_tensor::Backend;

pub(crate) struct Mlp<B: Backend> {
    up: Linear<B>,
    down: Linear<B>,
    f: NonLinearity,
}

/// What backward needs.
pub(crate) struct SavedMlp<B: Backend> {
    x: B::Activation,
    pre: B::Activation,
    inner: B::Activation,
}

impl<B: Backend> Mlp<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, layer: usize, f: NonLinearity) -> Self {
        let linear = |part: &str| Linear::new(backend, store, chunk, &[format!("layer.{layer}.mlp.{part}")]);
        Self { up: linear("up"), down: linear("down"), f }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.up.refresh(backend, values);
        self.down.refresh(backend, values);
    }

    /// The second bias, added with dropout and residual after the reduction.
    pub fn bias(&self) -> &B::Vector {
        self.down.bias()
    }

    /// `x` is whole on every tensor rank; so is the result.
    pub fn forward(&self, at: &Context<B>, x: B::Activation) -> Result<(B::Activation, SavedMlp<B>), CommError> {
        let (inner, pre) = self.up.forward_activated(at.backend, &x, self.f);
        let mut branch = self.down.forward_partial(at.backend, &inner);
        at.reduce_forward(&mut branch)?;
        Ok((branch, SavedMlp { x, pre, inner }))
    }

    /// Gradient of the input, whole on every tensor rank, from that of the branch.
    pub fn backward(
        &self,
        at: &Context<B>,
        dy: &B::Activation,
        saved: SavedMlp<B>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let SavedMlp { x, pre, inner } = saved;
        let dinner = self.down.backward(at.backend, &inner, dy, grads);
        let dpre = at.backend.activation_backward(dinner, &pre, self.f);
        drop((pre, inner));
        let mut dx = self.up.backward(at.backend, &x, &dpre, grads);
        at.reduce_backward(&mut dx)?;
        Ok(dx)
    }
}
