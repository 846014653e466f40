//! An encoder's view of a whole sequence: `tanh(x w^T + bias)` of its first token
//! (1810.04805, section 3.1). Whole on every tensor rank.

use crate::Store;
use crate::linear::Linear;
use henge_tensor::{Backend, Matrix, NonLinearity};

pub(crate) struct Pooler<B: Backend>(Linear<B>);

/// What backward needs.
pub(crate) struct SavedPooler<B: Backend> {
    rows: Vec<usize>,
    first: B::Activation,
    pre: B::Activation,
}

impl<B: Backend> Pooler<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize) -> Self {
        Self(Linear::new(backend, store, chunk, &["pooler".to_string()]))
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.0.refresh(backend, values);
    }

    /// `[b s, h]` to `[b, h]`.
    pub fn forward(&self, backend: &B, hidden: &B::Activation, sequences: usize) -> (B::Activation, SavedPooler<B>) {
        let seq = hidden.rows() / sequences.max(1);
        let rows: Vec<usize> = (0..sequences).map(|sequence| sequence * seq).collect();
        let first = backend.take_rows(hidden, &rows);
        let (pooled, pre) = self.0.forward_activated(backend, &first, NonLinearity::Tanh);
        (pooled, SavedPooler { rows, first, pre })
    }

    /// Adds the gradient of the first tokens to `dhidden`.
    pub fn backward(
        &self,
        backend: &B,
        dpooled: B::Activation,
        saved: SavedPooler<B>,
        dhidden: &mut B::Activation,
        grads: &mut B::Buffer,
    ) {
        let SavedPooler { rows, first, pre } = saved;
        let dpre = backend.activation_backward(dpooled, &pre, NonLinearity::Tanh);
        backend.add_rows(dhidden, &rows, &self.0.backward(backend, &first, &dpre, grads));
    }
}
