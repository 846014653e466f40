//! A linear layer's parameters: where they stand and how they are prepared.
//!
//! Column-parallel and row-parallel linears are the same product over a block of the
//! weight; what differs is where the tensor group talks, which their users show.

use crate::Store;
use crate::norm::Parameter;
use henge_tensor::{Backend, Matrix, NonLinearity};

/// A weight `[out, in]` of one or more logical tensors side by side, and its bias.
pub(crate) struct Linear<B: Backend> {
    weight: B::Weight,
    bias: Option<Parameter<B>>,
    at: usize,
}

impl<B: Backend> Linear<B> {
    /// Over the local blocks of `names`, fused along the output.
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, names: &[String]) -> Self {
        let weights: Vec<_> = names.iter().map(|name| store.slot(chunk, &format!("{name}.weight"))).collect();
        let biases: Vec<_> = names.iter().filter_map(|name| store.find(chunk, &format!("{name}.bias"))).collect();
        for pair in weights.windows(2).chain(biases.windows(2)) {
            assert_eq!(pair[0].range.end, pair[1].range.start, "fused parameters stand side by side");
        }
        let at = weights[0].range.start;
        let rows = weights.iter().map(|slot| slot.block.1).sum();
        Self {
            weight: backend.prepare(&store.values, at, rows, weights[0].block.3),
            bias: biases.first().map(|first| {
                let outputs = biases.iter().map(|slot| slot.block.1).sum();
                assert_eq!(biases.len(), weights.len(), "all or none of fused linears have a bias");
                let at = first.range.start;
                Parameter { vector: backend.prepare_vector(&store.values, at, outputs), at }
            }),
            at,
        }
    }

    /// Prepares again after an optimizer step.
    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        backend.refresh(&mut self.weight, values, self.at);
        if let Some(bias) = &mut self.bias {
            bias.refresh(backend, values);
        }
    }

    /// The bias, for whoever adds it after a reduction.
    pub fn bias(&self) -> Option<&B::Vector> {
        self.bias.as_ref().map(|bias| &bias.vector)
    }

    /// `x w^T + bias`.
    pub fn forward(&self, backend: &B, x: &B::Activation) -> B::Activation {
        backend.linear(x, &self.weight, self.bias())
    }

    /// `x w^T`; the bias is added after the reduction over the tensor group.
    pub fn forward_partial(&self, backend: &B, x: &B::Activation) -> B::Activation {
        backend.linear(x, &self.weight, None)
    }

    /// `(f(y), y)` with `y = x w^T + bias`.
    pub fn forward_activated(&self, backend: &B, x: &B::Activation, f: NonLinearity) -> (B::Activation, B::Activation) {
        backend.linear_activated(x, &self.weight, self.bias(), f)
    }

    /// Adds the gradients of weight and bias and returns that of the input, `dy w`.
    pub fn backward(&self, backend: &B, x: &B::Activation, dy: &B::Activation, grads: &mut B::Buffer) -> B::Activation {
        debug_assert_eq!(x.rows(), dy.rows());
        if let Some(bias) = &self.bias {
            backend.bias_gradient(dy, grads, bias.at);
        }
        backend.linear_weight_gradient(x, dy, grads, self.at);
        backend.linear_input_gradient(dy, &self.weight)
    }
}
