//! The memory a rank is expected to hold, by kind.

/// Bytes that a rank is expected to hold at its peak, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryForecast {
    /// Weights in master and compute precision.
    pub weights: u64,
    /// Gradient accumulators.
    pub gradients: u64,
    /// Optimizer moments.
    pub optimizer: u64,
    /// Tensors kept between forward and backward, over all microbatches in flight.
    pub activations: u64,
}

impl MemoryForecast {
    /// Sum over all kinds, bytes.
    pub fn total(&self) -> u64 {
        self.weights + self.gradients + self.optimizer + self.activations
    }
}
