//! Layer norm: `y = (x - mean) / sqrt(var + eps) * gain + bias`, over channels.

use crate::Store;
use henge_tensor::Backend;

/// Gain and bias, whole on every tensor rank.
pub(crate) struct Norm<B: Backend> {
    gain: B::Vector,
    bias: B::Vector,
    gain_at: usize,
    bias_at: usize,
    eps: f64,
}

/// What backward needs: the input and its statistics.
pub(crate) struct SavedNorm<B: Backend> {
    x: B::Activation,
    stats: B::NormStats,
}

impl<B: Backend> Norm<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, name: &str, eps: f64) -> Self {
        let gain = store.slot(chunk, &format!("{name}.gain"));
        let bias = store.slot(chunk, &format!("{name}.bias"));
        let (gain_at, bias_at) = (gain.range.start, bias.range.start);
        Self {
            gain: backend.prepare_vector(&store.values, gain_at, gain.range.len()),
            bias: backend.prepare_vector(&store.values, bias_at, bias.range.len()),
            gain_at,
            bias_at,
            eps,
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        backend.refresh_vector(&mut self.gain, values, self.gain_at);
        backend.refresh_vector(&mut self.bias, values, self.bias_at);
    }

    /// `x` is kept for backward and handed back by it.
    pub fn forward(&self, backend: &B, x: B::Activation) -> (B::Activation, SavedNorm<B>) {
        let (y, stats) = backend.layer_norm(&x, &self.gain, &self.bias, self.eps);
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
        backend.layer_norm_backward(dy, &saved.x, &saved.stats, &self.gain, dx, grads, self.gain_at, self.bias_at);
    }
}

impl<B: Backend> SavedNorm<B> {
    /// The norm's input, which is also the residual stream.
    pub fn input(&self) -> &B::Activation {
        &self.x
    }
}
