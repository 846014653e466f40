//! A backend whose operations are timed at their door, so that no kernel knows of a clock.

use crate::ledger::{Entry, Ledger, Operation};
use crate::{
    AdamStep, AttentionCall, Backend, Buffer, CachedAttention, DropoutAt, Held, Kind, Mask, Matrix, NonLinearity,
    Rotation, VocabularyShard, VocabularyStats,
};
use std::ops::Range;
use std::time::Instant;

/// Bytes of an element as the backend holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementBytes {
    /// Of activations that products read or write, and of logits.
    pub activation: usize,
    /// Of a weight in the order of one product.
    pub weight: usize,
}

/// `B`, with every operation of a step written to a [`Ledger`]: calls, seconds, FLOP of
/// products and the bytes of operands and results. What needs no time (taking a buffer,
/// reading a host value) is passed on untimed.
///
/// ```
/// use henge_tensor::{Backend, ElementBytes, Ledger, Timed};
/// fn spent<B: Backend>(backend: B) -> f64 {
///     let ledger = Ledger::default();
///     let timed = Timed::new(backend, ledger.clone(), ElementBytes { activation: 4, weight: 4 });
///     let mut x = timed.zeroed(64, 64);
///     let y = timed.duplicate(&x);
///     timed.add(&mut x, &y);
///     ledger.take().values().map(|entry| entry.seconds).sum()
/// }
/// ```
pub struct Timed<B> {
    inner: B,
    ledger: Ledger,
    bytes: ElementBytes,
}

/// A weight `[rows, columns]`, prepared by the inner backend.
pub struct TimedWeight<W> {
    inner: W,
    rows: usize,
    columns: usize,
}

/// Work of one call.
#[derive(Clone, Copy, Default)]
struct Cost {
    flops: f64,
    bytes: f64,
}

impl Cost {
    /// Of what multiplies nothing.
    fn moving(bytes: usize) -> Self {
        Self { flops: 0.0, bytes: bytes as f64 }
    }
}

impl<B: Backend> Timed<B> {
    /// `inner`, writing to `ledger`.
    pub fn new(inner: B, ledger: Ledger, bytes: ElementBytes) -> Self {
        Self { inner, ledger, bytes }
    }

    fn clock<T>(&self, operation: Operation, cost: Cost, work: impl FnOnce(&B) -> T) -> T {
        let begin = Instant::now();
        let result = work(&self.inner);
        let seconds = begin.elapsed().as_secs_f64();
        self.ledger.add(operation, Entry { calls: 1, seconds, flops: cost.flops, bytes: cost.bytes });
        result
    }

    /// `passes` over a matrix.
    fn over(&self, passes: usize, x: &B::Activation) -> Cost {
        Cost::moving(passes * x.rows() * x.columns() * self.bytes.activation)
    }

    /// `passes` over as many parameters.
    fn parameters(passes: usize, len: usize) -> Cost {
        Cost::moving(passes * len * size_of::<B::Real>())
    }

    /// A product with a prepared weight whose result is written `results` times.
    fn product(&self, tokens: usize, inputs: usize, outputs: usize, results: usize) -> Cost {
        let moved =
            tokens * (inputs + results * outputs) * self.bytes.activation + inputs * outputs * self.bytes.weight;
        Cost { flops: 2.0 * (tokens * inputs * outputs) as f64, bytes: moved as f64 }
    }

    /// `products` of a head's width over each pair of a query and a key that it sees.
    fn attention_cost(&self, call: &AttentionCall, products: usize, moved: usize) -> Cost {
        let shape = call.shape;
        let pairs: usize = match call.mask {
            Mask::Causal => shape.batch * shape.seq * (shape.seq + 1) / 2,
            Mask::Lengths(lengths) => lengths.iter().map(|length| shape.seq * length).sum(),
        };
        let flops = (2 * products * pairs * shape.heads * shape.head_dim) as f64;
        Cost { flops, bytes: (moved * shape.batch * shape.seq * self.bytes.activation) as f64 }
    }

    /// `products` with the head's table over some tokens, and `passes` over their logits.
    fn head(&self, tokens: usize, table: &TimedWeight<B::Weight>, products: usize, passes: usize) -> Cost {
        let &TimedWeight { rows, columns, .. } = table;
        let logits = passes * tokens * rows * self.bytes.activation;
        let operands = products * (tokens * columns * self.bytes.activation + rows * columns * self.bytes.weight);
        Cost { flops: 2.0 * (products * tokens * rows * columns) as f64, bytes: (logits + operands) as f64 }
    }
}

impl<B: Backend> Backend for Timed<B> {
    type Real = B::Real;
    type Buffer = B::Buffer;
    type Activation = B::Activation;
    type Weight = TimedWeight<B::Weight>;
    type Vector = B::Vector;
    type NormStats = B::NormStats;
    type AttentionStats = B::AttentionStats;
    type Logits = B::Logits;

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn element_bytes(&self) -> ElementBytes {
        self.inner.element_bytes()
    }

    fn held(&self) -> Held {
        self.inner.held()
    }

    fn zeros(&self, len: usize, kind: Kind) -> B::Buffer {
        self.inner.zeros(len, kind)
    }

    fn prepare(&self, buffer: &B::Buffer, at: usize, rows: usize, columns: usize) -> Self::Weight {
        TimedWeight { inner: self.inner.prepare(buffer, at, rows, columns), rows, columns }
    }

    fn refresh(&self, weight: &mut Self::Weight, buffer: &B::Buffer, at: usize) {
        let len = weight.rows * weight.columns;
        let moved = len * (size_of::<B::Real>() + 2 * self.bytes.weight);
        let cost = Cost::moving(moved);
        self.clock(Operation::Prepare, cost, |b| b.refresh(&mut weight.inner, buffer, at));
    }

    fn prepare_vector(&self, buffer: &B::Buffer, at: usize, len: usize) -> B::Vector {
        self.inner.prepare_vector(buffer, at, len)
    }

    fn refresh_vector(&self, vector: &mut B::Vector, buffer: &B::Buffer, at: usize) {
        self.clock(Operation::Prepare, Cost::default(), |b| b.refresh_vector(vector, buffer, at));
    }

    fn upload(&self, rows: usize, columns: usize, values: &[f32]) -> B::Activation {
        self.inner.upload(rows, columns, values)
    }

    fn download(&self, x: &B::Activation) -> Vec<f32> {
        self.inner.download(x)
    }

    fn duplicate(&self, x: &B::Activation) -> B::Activation {
        self.clock(Operation::Residual, self.over(2, x), |b| b.duplicate(x))
    }

    fn blank(&self, rows: usize, columns: usize) -> B::Activation {
        self.inner.blank(rows, columns)
    }

    fn zeroed(&self, rows: usize, columns: usize) -> B::Activation {
        let cost = Cost::moving(rows * columns * self.bytes.activation);
        self.clock(Operation::Residual, cost, |b| b.zeroed(rows, columns))
    }

    fn add(&self, x: &mut B::Activation, y: &B::Activation) {
        self.clock(Operation::Residual, self.over(3, y), |b| b.add(x, y));
    }

    fn dropout(&self, x: &mut B::Activation, at: &DropoutAt) {
        self.clock(Operation::Residual, self.over(2, x), |b| b.dropout(x, at));
    }

    fn add_branch(
        &self,
        residual: &B::Activation,
        branch: B::Activation,
        bias: Option<&B::Vector>,
        dropout: Option<&DropoutAt>,
    ) -> B::Activation {
        let cost = self.over(3, residual);
        self.clock(Operation::Residual, cost, |b| b.add_branch(residual, branch, bias, dropout))
    }

    fn take_rows(&self, x: &B::Activation, rows: &[usize]) -> B::Activation {
        let moved = 2 * rows.len() * x.columns() * self.bytes.activation;
        let cost = Cost::moving(moved);
        self.clock(Operation::Residual, cost, |b| b.take_rows(x, rows))
    }

    fn add_rows(&self, x: &mut B::Activation, rows: &[usize], y: &B::Activation) {
        self.clock(Operation::Residual, self.over(3, y), |b| b.add_rows(x, rows, y));
    }

    fn lookup(&self, table: &Self::Weight, first_row: usize, ids: &[u32]) -> B::Activation {
        let moved = ids.len() * table.columns * (self.bytes.weight + self.bytes.activation);
        let cost = Cost::moving(moved);
        self.clock(Operation::Embedding, cost, |b| b.lookup(&table.inner, first_row, ids))
    }

    fn lookup_gradient(
        &self,
        dy: &B::Activation,
        first_row: usize,
        table_rows: usize,
        ids: &[u32],
        grads: &mut B::Buffer,
        at: usize,
    ) {
        let moved = dy.rows() * dy.columns() * (self.bytes.activation + 2 * size_of::<B::Real>());
        let cost = Cost::moving(moved);
        self.clock(Operation::Embedding, cost, |b| b.lookup_gradient(dy, first_row, table_rows, ids, grads, at));
    }

    fn layer_norm(
        &self,
        x: &B::Activation,
        gain: &B::Vector,
        bias: &B::Vector,
        eps: f64,
    ) -> (B::Activation, B::NormStats) {
        self.clock(Operation::Norm, self.over(2, x), |b| b.layer_norm(x, gain, bias, eps))
    }

    fn layer_norm_backward(
        &self,
        dy: &B::Activation,
        x: &B::Activation,
        stats: &B::NormStats,
        gain: &B::Vector,
        dx: &mut B::Activation,
        grads: &mut B::Buffer,
        gain_at: usize,
        bias_at: usize,
    ) {
        self.clock(Operation::NormBackward, self.over(4, x), |b| {
            b.layer_norm_backward(dy, x, stats, gain, dx, grads, gain_at, bias_at);
        });
    }

    fn rms_norm(&self, x: &B::Activation, gain: &B::Vector, eps: f64) -> (B::Activation, B::NormStats) {
        self.clock(Operation::Norm, self.over(2, x), |b| b.rms_norm(x, gain, eps))
    }

    fn rms_norm_backward(
        &self,
        dy: &B::Activation,
        x: &B::Activation,
        stats: &B::NormStats,
        gain: &B::Vector,
        dx: &mut B::Activation,
        grads: &mut B::Buffer,
        gain_at: usize,
    ) {
        self.clock(Operation::NormBackward, self.over(4, x), |b| {
            b.rms_norm_backward(dy, x, stats, gain, dx, grads, gain_at);
        });
    }

    fn linear(&self, x: &B::Activation, w: &Self::Weight, bias: Option<&B::Vector>) -> B::Activation {
        let operation = Operation::Forward { inputs: w.columns, outputs: w.rows };
        let cost = self.product(x.rows(), w.columns, w.rows, 1);
        self.clock(operation, cost, |b| b.linear(x, &w.inner, bias))
    }

    fn linear_activated(
        &self,
        x: &B::Activation,
        w: &Self::Weight,
        bias: Option<&B::Vector>,
        f: NonLinearity,
    ) -> (B::Activation, B::Activation) {
        let operation = Operation::Forward { inputs: w.columns, outputs: w.rows };
        let cost = self.product(x.rows(), w.columns, w.rows, 2);
        self.clock(operation, cost, |b| b.linear_activated(x, &w.inner, bias, f))
    }

    fn linear_input_gradient(&self, dy: &B::Activation, w: &Self::Weight) -> B::Activation {
        let operation = Operation::InputGradient { inputs: w.columns, outputs: w.rows };
        let cost = self.product(dy.rows(), w.columns, w.rows, 1);
        self.clock(operation, cost, |b| b.linear_input_gradient(dy, &w.inner))
    }

    fn linear_weight_gradient(&self, x: &B::Activation, dy: &B::Activation, grads: &mut B::Buffer, at: usize) {
        let (inputs, outputs) = (x.columns(), dy.columns());
        let tokens = x.rows() * (inputs + outputs) * self.bytes.activation;
        let moved = tokens + 2 * inputs * outputs * size_of::<B::Real>();
        let cost = Cost { flops: 2.0 * (x.rows() * inputs * outputs) as f64, bytes: moved as f64 };
        let operation = Operation::WeightGradient { inputs, outputs };
        self.clock(operation, cost, |b| b.linear_weight_gradient(x, dy, grads, at));
    }

    fn bias_gradient(&self, dy: &B::Activation, grads: &mut B::Buffer, at: usize) {
        self.clock(Operation::ActivationBackward, self.over(1, dy), |b| b.bias_gradient(dy, grads, at));
    }

    fn activation_backward(&self, dy: B::Activation, pre: &B::Activation, f: NonLinearity) -> B::Activation {
        let moved = (dy.rows() * dy.columns() + 2 * pre.rows() * pre.columns()) * self.bytes.activation;
        let cost = Cost::moving(moved);
        self.clock(Operation::ActivationBackward, cost, |b| b.activation_backward(dy, pre, f))
    }

    fn rotate(&self, qkv: &mut B::Activation, rotation: &Rotation) {
        self.clock(Operation::Attention, self.over(2, qkv), |b| b.rotate(qkv, rotation));
    }

    fn attention(&self, qkv: &B::Activation, call: &AttentionCall) -> (B::Activation, B::AttentionStats) {
        let cost = self.attention_cost(call, 2, qkv.columns() + call.shape.heads * call.shape.head_dim);
        self.clock(Operation::Attention, cost, |b| b.attention(qkv, call))
    }

    fn attention_backward(
        &self,
        dy: &B::Activation,
        qkv: &B::Activation,
        y: &B::Activation,
        stats: &B::AttentionStats,
        call: &AttentionCall,
    ) -> B::Activation {
        // Scores again, and the gradients of probabilities, values, queries and keys.
        let cost = self.attention_cost(call, 5, 2 * (qkv.columns() + y.columns()));
        self.clock(Operation::AttentionBackward, cost, |b| b.attention_backward(dy, qkv, y, stats, call))
    }

    fn attention_cached(&self, qkv: &B::Activation, cache: &mut B::Buffer, call: &CachedAttention) -> B::Activation {
        let seen: usize = call.runs.iter().map(|run| run.new * (2 * run.past + run.new + 1) / 2).sum();
        let flops = (4 * seen * call.heads * call.head_dim) as f64;
        let cost = Cost { flops, ..self.over(2, qkv) };
        self.clock(Operation::Attention, cost, |b| b.attention_cached(qkv, cache, call))
    }

    fn vocabulary_sweep(
        &self,
        x: &B::Activation,
        table: &Self::Weight,
        bias: Option<&B::Vector>,
        shard: &VocabularyShard,
    ) -> (B::Logits, VocabularyStats<B::Buffer>) {
        let cost = self.head(shard.rows.1 - shard.rows.0, table, 1, 1);
        self.clock(Operation::Head, cost, |b| b.vocabulary_sweep(x, &table.inner, bias, shard))
    }

    fn vocabulary_rescale(&self, stats: &mut VocabularyStats<B::Buffer>, local: &B::Buffer) {
        let cost = Self::parameters(3, local.len());
        self.clock(Operation::Head, cost, |b| b.vocabulary_rescale(stats, local));
    }

    fn vocabulary_losses(&self, stats: &VocabularyStats<B::Buffer>, targets: &[i64]) -> Vec<f64> {
        let cost = Self::parameters(3, targets.len());
        self.clock(Operation::Head, cost, |b| b.vocabulary_losses(stats, targets))
    }

    fn vocabulary_gradient(
        &self,
        logits: B::Logits,
        stats: &VocabularyStats<B::Buffer>,
        x: &B::Activation,
        table: &Self::Weight,
        shard: &VocabularyShard,
        scale: f64,
        dx: &mut B::Activation,
        grads: &mut B::Buffer,
        at: usize,
        bias_at: Option<usize>,
    ) {
        // Logits are read and turned into gradients, which both products read.
        let cost = self.head(shard.rows.1 - shard.rows.0, table, 2, 4);
        self.clock(Operation::HeadBackward, cost, |b| {
            b.vocabulary_gradient(logits, stats, x, &table.inner, shard, scale, dx, grads, at, bias_at);
        });
    }

    fn logits_values(&self, logits: &B::Logits) -> Vec<f32> {
        self.inner.logits_values(logits)
    }

    fn sum_of_squares(&self, buffer: &B::Buffer, range: Range<usize>) -> f64 {
        let cost = Self::parameters(1, range.len());
        self.clock(Operation::Optimizer, cost, |b| b.sum_of_squares(buffer, range))
    }

    fn scale(&self, buffer: &mut B::Buffer, range: Range<usize>, factor: f64) {
        let cost = Self::parameters(2, range.len());
        self.clock(Operation::Optimizer, cost, |b| b.scale(buffer, range, factor));
    }

    fn adam(
        &self,
        values: &mut B::Buffer,
        grads: &B::Buffer,
        first: &mut B::Buffer,
        second: &mut B::Buffer,
        range: Range<usize>,
        step: &AdamStep,
    ) {
        // Three are read and written, the gradient only read.
        let cost = Self::parameters(7, range.len());
        self.clock(Operation::Optimizer, cost, |b| b.adam(values, grads, first, second, range, step));
    }
}
