//! Norms over channels: layer norm, `y = (x - mean) / sqrt(var + eps) * gain + bias`, and
//! RMS norm (1910.07467), the same about zero and without bias.

use crate::Store;
use henge_tensor::{Backend, Matrix};

/// Gain and bias, whole on every tensor rank. Without a bias it is an RMS norm.
pub(crate) struct Norm<B: Backend> {
    gain: Parameter<B>,
    bias: Option<Parameter<B>>,
    eps: f64,
}

/// A prepared vector and its place in the flat buffers.
pub(crate) struct Parameter<B: Backend> {
    pub vector: B::Vector,
    pub at: usize,
}

/// What backward needs: the input and its statistics.
pub(crate) struct SavedNorm<B: Backend> {
    x: B::Activation,
    stats: B::NormStats,
}

impl<B: Backend> Parameter<B> {
    /// The vector of a logical name, where the model has it.
    pub fn find(backend: &B, store: &Store<B>, chunk: usize, name: &str) -> Option<Self> {
        let range = store.find(chunk, name)?.range.clone();
        Some(Self { vector: backend.prepare_vector(&store.values, range.start, range.len()), at: range.start })
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        backend.refresh_vector(&mut self.vector, values, self.at);
    }
}

impl<B: Backend> Norm<B> {
    /// The norm of a logical name.
    ///
    /// # Panics
    /// If the chunk does not hold it.
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, name: &str, eps: f64) -> Self {
        Self::find(backend, store, chunk, name, eps).unwrap_or_else(|| panic!("chunk {chunk} holds no `{name}`"))
    }

    /// The norm of a logical name, where the model has it.
    pub fn find(backend: &B, store: &Store<B>, chunk: usize, name: &str, eps: f64) -> Option<Self> {
        let parameter = |part: &str| Parameter::find(backend, store, chunk, &format!("{name}.{part}"));
        Some(Self { gain: parameter("gain")?, bias: parameter("bias"), eps })
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.gain.refresh(backend, values);
        if let Some(bias) = &mut self.bias {
            bias.refresh(backend, values);
        }
    }

    /// `x` is kept for backward and handed back by it.
    pub fn forward(&self, backend: &B, x: B::Activation) -> (B::Activation, SavedNorm<B>) {
        let (y, stats) = match &self.bias {
            Some(bias) => backend.layer_norm(&x, &self.gain.vector, &bias.vector, self.eps),
            None => backend.rms_norm(&x, &self.gain.vector, self.eps),
        };
        (y, SavedNorm { x, stats })
    }

    /// Adds the input's gradient to `dx`, the residual stream's.
    pub fn backward(
        &self,
        backend: &B,
        dy: &B::Activation,
        saved: &SavedNorm<B>,
        dx: &mut B::Activation,
        grads: &mut B::Buffer,
    ) {
        let (SavedNorm { x, stats }, gain) = (saved, &self.gain.vector);
        match &self.bias {
            Some(bias) => backend.layer_norm_backward(dy, x, stats, gain, dx, grads, self.gain.at, bias.at),
            None => backend.rms_norm_backward(dy, x, stats, gain, dx, grads, self.gain.at),
        }
    }

    /// The norm's output where there is a norm, else `x` itself.
    pub fn forward_if_any(norm: Option<&Self>, backend: &B, x: B::Activation) -> (B::Activation, Option<SavedNorm<B>>) {
        match norm {
            Some(norm) => {
                let (y, saved) = norm.forward(backend, x);
                (y, Some(saved))
            }
            None => (x, None),
        }
    }

    /// Gradient of the input where there is a norm, else `dy` itself.
    pub fn backward_if_any(
        norm: Option<&Self>,
        backend: &B,
        dy: B::Activation,
        saved: Option<SavedNorm<B>>,
        grads: &mut B::Buffer,
    ) -> B::Activation {
        match (norm, saved) {
            (Some(norm), Some(saved)) => norm.backward_alone(backend, &dy, &saved, grads),
            _ => dy,
        }
    }

    /// Gradient of the input alone.
    pub fn backward_alone(
        &self,
        backend: &B,
        dy: &B::Activation,
        saved: &SavedNorm<B>,
        grads: &mut B::Buffer,
    ) -> B::Activation {
        let mut dx = backend.zeroed(saved.x.rows(), saved.x.columns());
        self.backward(backend, dy, saved, &mut dx, grads);
        dx
    }
}

impl<B: Backend> SavedNorm<B> {
    /// The norm's input, which is also the residual stream.
    pub fn input(&self) -> &B::Activation {
        &self.x
    }
}
