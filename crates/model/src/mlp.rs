//! The two-layer MLP: `f(x A^T + a) B^T`, A split by rows of `[4h, h]`, B by columns. A gated
//! one (2002.05202) has two input matrices, `(silu(x G^T) * x A^T) B^T`, run as one product.

use crate::linear::Linear;
use crate::residual::Branch;
use crate::{Context, Microbatch, Store};
use henge_comm::CommError;
use henge_tensor::{Backend, NonLinearity};

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
        let name = |part: &&str| format!("layer.{layer}.mlp.{part}");
        let linear = |parts: &[&str]| Linear::new(backend, store, chunk, &parts.iter().map(name).collect::<Vec<_>>());
        let inputs: &[&str] = if f == NonLinearity::SwiGlu { &["gate", "up"] } else { &["up"] };
        Self { up: linear(inputs), down: linear(&["down"]), f }
    }
}

impl<B: Backend> Branch<B> for Mlp<B> {
    type Saved = SavedMlp<B>;

    fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.up.refresh(backend, values);
        self.down.refresh(backend, values);
    }

    fn bias(&self) -> Option<&B::Vector> {
        self.down.bias()
    }

    fn forward(
        &self,
        at: &Context<B>,
        _micro: &Microbatch,
        x: B::Activation,
    ) -> Result<(B::Activation, SavedMlp<B>), CommError> {
        let (inner, pre) = self.up.forward_activated(at.backend, &x, self.f);
        let mut branch = self.down.forward_partial(at.backend, &inner);
        at.reduce_forward(&mut branch)?;
        Ok((branch, SavedMlp { x, pre, inner }))
    }

    fn input(saved: &SavedMlp<B>) -> &B::Activation {
        &saved.x
    }

    fn backward(
        &self,
        at: &Context<B>,
        _micro: &Microbatch,
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
