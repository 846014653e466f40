//! A linear layer's parameters: where they stand and how they are prepared.
//!
//! Column-parallel and row-parallel linears are the same product over a block of the
//! weight; what differs is where the tensor group talks, which their users show.

use crate::Store;
use henge_spec::Activation as NonLinearity;
use henge_tensor::{Backend, Matrix};

/// A weight `[out, in]` of one or more logical tensors side by side, and its bias.
pub(crate) struct Linear<B: Backend> {
    weight: B::Weight,
    bias: B::Vector,
    weight_at: usize,
    bias_at: usize,
}

impl<B: Backend> Linear<B> {
    /// Over the local blocks of `names`, fused along the output.
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, names: &[String]) -> Self {
        let slots: Vec<_> = names.iter().map(|name| store.slot(chunk, &format!("{name}.weight"))).collect();
        let biases: Vec<_> = names.iter().map(|name| store.slot(chunk, &format!("{name}.bias"))).collect();
        for pair in slots.windows(2).chain(biases.windows(2)) {
            assert_eq!(pair[0].range.end, pair[1].range.start, "fused parameters stand side by side");
        }
        let (weight_at, bias_at) = (slots[0].range.start, biases[0].range.start);
        let rows = slots.iter().map(|slot| slot.block.1).sum();
        let outputs = biases.iter().map(|slot| slot.block.1).sum();
        Self {
            weight: backend.prepare(&store.values, weight_at, rows, slots[0].block.3),
            bias: backend.prepare_vector(&store.values, bias_at, outputs),
            weight_at,
            bias_at,
        }
    }

    /// Prepares again after an optimizer step.
    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        backend.refresh(&mut self.weight, values, self.weight_at);
        backend.refresh_vector(&mut self.bias, values, self.bias_at);
    }

    /// The bias, for whoever adds it after a reduction.
    pub fn bias(&self) -> &B::Vector {
        &self.bias
    }

    /// `x w^T + bias`.
    pub fn forward(&self, backend: &B, x: &B::Activation) -> B::Activation {
        backend.linear(x, &self.weight, Some(&self.bias))
    }

    /// `x w^T`; the bias is added after the reduction over the tensor group.
    pub fn forward_partial(&self, backend: &B, x: &B::Activation) -> B::Activation {
        backend.linear(x, &self.weight, None)
    }

    /// `(f(y), y)` with `y = x w^T + bias`.
    pub fn forward_activated(&self, backend: &B, x: &B::Activation, f: NonLinearity) -> (B::Activation, B::Activation) {
        backend.linear_activated(x, &self.weight, &self.bias, f)
    }

    /// Adds the gradients of weight and bias and returns that of the input, `dy w`.
    pub fn backward(&self, backend: &B, x: &B::Activation, dy: &B::Activation, grads: &mut B::Buffer) -> B::Activation {
        debug_assert_eq!(x.rows(), dy.rows());
        backend.bias_gradient(dy, grads, self.bias_at);
        backend.linear_weight_gradient(x, dy, grads, self.weight_at);
        backend.linear_input_gradient(dy, &self.weight)
    }
}
