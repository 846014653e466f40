//! Kernels on one device: matrix products by shape, sweeps by bytes.

use crate::{Cluster, Precision};

/// Output tiles that a product may use and their speed against the largest, as CUTLASS
/// documents them: a small tile reads its operands more often.
const TILES: [(f64, f64, f64); 6] = [
    (256.0, 128.0, 1.0),
    (128.0, 256.0, 1.0),
    (128.0, 128.0, 0.94),
    (128.0, 64.0, 0.80),
    (64.0, 128.0, 0.80),
    (64.0, 64.0, 0.62),
];

/// Ways to cut the inner dimension when the output has too few tiles.
const SPLITS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];

/// A device at a precision, ready to price kernels. All results are seconds.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    cluster: &'a Cluster,
    peak: f64,
    attention_peak: f64,
    operand_bytes: f64,
}

impl<'a> Machine<'a> {
    /// The devices of `cluster` at `precision`.
    pub fn new(cluster: &'a Cluster, precision: Precision) -> Self {
        let attention_peak = cluster.peak(precision.of_attention_and_head());
        Self { cluster, peak: cluster.peak(precision), attention_peak, operand_bytes: precision.operand_bytes() }
    }

    /// A product `[m, k] x [k, n]`: the best tile and split, waves over the
    /// multiprocessors counted whole, or the bytes where it is thin.
    pub fn product(&self, m: f64, n: f64, k: f64) -> f64 {
        let constants = &self.cluster.constants;
        let rate = self.peak * constants.matrix_efficiency / self.cluster.device.multiprocessors;
        let mut compute = f64::INFINITY;
        for (rows, columns, speed) in TILES {
            let tiles = (m / rows).ceil() * (n / columns).ceil();
            for split in SPLITS.into_iter().take_while(|split| *split == 1.0 || k / split >= 512.0) {
                let full = tiles * split / self.cluster.device.multiprocessors;
                let waves = full.max(1.0) + constants.wave_tail * (full.ceil() - full.max(1.0));
                let tile = 2.0 * rows * columns * (k / split + constants.matrix_fill) / (rate * speed);
                let sum = if split > 1.0 { self.bytes(4.0 * split * m * n) } else { 0.0 };
                compute = compute.min(waves * tile + sum);
            }
        }
        let memory = self.bytes(self.operand_bytes * (m * k + k * n + m * n));
        compute.max(memory) + constants.launch
    }

    /// One batched product that reads or writes `matrices` score matrices `[s, s]` with
    /// heads `width` wide: bound by their bytes, the more so the thinner the head.
    pub fn scores_product(&self, matrices: f64, sequence: f64, width: f64, bytes: f64) -> f64 {
        let constants = &self.cluster.constants;
        let moved = matrices * bytes * (sequence * sequence + 2.0 * sequence * width);
        let memory = self.bytes(moved) * (1.0 + constants.thin_head / width);
        let flops = 2.0 * matrices * sequence * sequence * width;
        memory.max(flops / (self.attention_peak * constants.matrix_efficiency)) + constants.launch
    }

    /// One fused attention kernel of this many FLOP. FlashAttention-2 reaches about 0.8 of
    /// what a large product does on the same device (arXiv 2307.08691, figure 4).
    pub fn fused_attention(&self, flops: f64) -> f64 {
        let constants = &self.cluster.constants;
        flops / (0.8 * self.attention_peak * constants.matrix_efficiency) + constants.launch
    }

    /// `kernels` element-wise kernels that move `bytes` in all.
    pub fn sweep(&self, bytes: f64, kernels: f64) -> f64 {
        self.bytes(bytes) + kernels * self.cluster.constants.launch
    }

    fn bytes(&self, bytes: f64) -> f64 {
        bytes / self.cluster.effective_memory_bandwidth()
    }
}
