//! The transformer's operation set.

use crate::{CachedAttention, ElementBytes, Held, Kind, Real, Transfer, ViewMut, cached};
use henge_random::Dropout;
use henge_spec::Activation;
use std::ops::Range;

/// A flat buffer of parameters, gradients or moments on a backend's device.
pub trait Buffer<R: Real>: Send {
    /// Number of elements.
    fn len(&self) -> usize;
    /// Whether there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies `out.len()` elements from `at` to the host.
    fn read(&self, at: usize, out: &mut [R]);
    /// Copies `values` from the host to `at`.
    fn write(&mut self, at: usize, values: &[R]);
    /// `len` elements from `at` as a file holds them.
    fn read_f32(&self, at: usize, len: usize) -> Vec<f32> {
        let mut host = vec![R::of(0.0); len];
        self.read(at, &mut host);
        host.into_iter().map(|value| value.wide() as f32).collect()
    }
    /// Writes values of a file at `at`.
    fn write_f32(&mut self, at: usize, values: &[f32]) {
        let host: Vec<R> = values.iter().map(|&value| R::of(f64::from(value))).collect();
        self.write(at, &host);
    }
    /// Sets a range to zero.
    fn zero(&mut self, range: Range<usize>);
    /// The range as a transport sees it.
    fn view_mut(&mut self, range: Range<usize>) -> ViewMut<'_>;
}

/// Rows and columns of an activation.
pub trait Matrix {
    /// Number of tokens.
    fn rows(&self) -> usize;
    /// Channels of each token.
    fn columns(&self) -> usize;
}

/// A function of each channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonLinearity {
    /// GeLU in its tanh form.
    GeluTanh,
    /// GeLU by the error function.
    Gelu,
    /// `silu(gate) * up` over `[gate | up]`: half as many columns come out.
    SwiGlu,
    /// Hyperbolic tangent, an encoder's pooler.
    Tanh,
}

impl From<Activation> for NonLinearity {
    fn from(activation: Activation) -> Self {
        match activation {
            Activation::GeluTanh => Self::GeluTanh,
            Activation::Gelu => Self::Gelu,
            Activation::SwiGlu => Self::SwiGlu,
        }
    }
}

/// Which dropout mask an operation applies: a pure function of the place in the run,
/// never of rank, microbatch or thread.
#[derive(Clone, Copy, Debug)]
pub struct DropoutAt<'a> {
    /// Key and rate of the site.
    pub dropout: Dropout,
    /// Position in the run's order of each sequence of the microbatch, `[b]`.
    pub samples: &'a [u64],
    /// Global index of the layer.
    pub layer: usize,
    /// Global index of the first local attention head; 0 outside attention.
    pub first_head: usize,
}

/// Sizes of a local attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences (b).
    pub batch: usize,
    /// Tokens of each sequence (s).
    pub seq: usize,
    /// Local query heads.
    pub heads: usize,
    /// Local key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl AttentionShape {
    /// Columns of the fused activation: queries, keys, values side by side.
    pub fn qkv_columns(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

/// Which keys a query may see.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a> {
    /// Keys at or before the query.
    Causal,
    /// The first `lengths[sample]` keys of each sequence, from every query, `[b]`.
    Lengths(&'a [usize]),
}

/// Everything an attention needs beside its input.
#[derive(Clone, Copy, Debug)]
pub struct AttentionCall<'a> {
    /// Sizes.
    pub shape: AttentionShape,
    /// Visible keys.
    pub mask: Mask<'a>,
    /// Factor on the scores, `1 / sqrt(head_dim)`.
    pub scale: f64,
    /// Dropout on the probabilities.
    pub dropout: Option<DropoutAt<'a>>,
}

/// Cosines and sines by which rotary positions turn pairs of channels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RotaryTable {
    /// Pairs of channels of a head.
    pub pairs: usize,
    /// Cosine of each position and pair, `[positions, pairs]`.
    pub cos: Vec<f32>,
    /// Sine of each position and pair, `[positions, pairs]`.
    pub sin: Vec<f32>,
}

impl RotaryTable {
    /// The table of `positions` positions whose pair `i` turns by `frequencies[i]` radians
    /// a position; both numbers are multiplied by `amplitude`.
    pub fn new(positions: usize, frequencies: &[f64], amplitude: f64) -> Self {
        let of = |f: fn(f64) -> f64| {
            let row = |position| frequencies.iter().map(move |frequency| amplitude * f(position as f64 * frequency));
            (0..positions).flat_map(row).map(|value| value as f32).collect()
        };
        Self { pairs: frequencies.len(), cos: of(f64::cos), sin: of(f64::sin) }
    }

    /// Cosines and sines of a position, `[pairs]` each.
    pub fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let row = position * self.pairs..(position + 1) * self.pairs;
        (&self.cos[row.clone()], &self.sin[row])
    }
}

/// Which way channels are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// By the position's angle.
    Forward,
    /// Back by it: the transpose, which takes gradients.
    Back,
}

/// A turn of the leading heads of a fused activation: channel `i` of a head with channel
/// `i + head_dim / 2` (2104.09864, in the halves' form of Hugging Face).
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// Angles.
    pub table: &'a RotaryTable,
    /// Position of each token, `[rows]`.
    pub positions: &'a [u32],
    /// Heads that turn, from the first column on: queries and keys.
    pub heads: usize,
    /// Which way.
    pub turn: Turn,
}

/// A shard of the vocabulary as the loss sees it.
#[derive(Clone, Copy, Debug)]
pub struct VocabularyShard<'a> {
    /// Global index of the shard's first row.
    pub first_row: usize,
    /// Tokens of the activation that are scored by this call.
    pub rows: (usize, usize),
    /// Target of each of those tokens, a global index; negative: not scored.
    pub targets: &'a [i64],
}

/// What each token's loss needs, one number per token and kind, over the shard until
/// reduced over the tensor group: `max` by maximum, then `sum` (after
/// [`Backend::vocabulary_rescale`]) and `target` by sum.
pub struct VocabularyStats<B> {
    /// Largest logit.
    pub max: B,
    /// Sum over the shard of `exp(logit - max)`.
    pub sum: B,
    /// Logit of the target where the shard holds it, else 0.
    pub target: B,
}

/// One AdamW step over a range (Adam with decoupled weight decay).
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay: `w -= lr * weight_decay * w` before the update.
    pub weight_decay: f64,
    /// Number of the update, from 1, for the bias corrections.
    pub update: u64,
    /// Factor on the gradient (clip coefficient over loss scale).
    pub gradient_scale: f64,
}

/// The operations of a transformer step on one rank's device.
///
/// Matrices are `[rows, columns]` with a token a row. `grads` is the rank's flat
/// gradient buffer, `at` the offset of a parameter in it; parameter gradients add.
/// Sizes that do not fit are our own mistake and assert.
pub trait Backend: Send {
    /// Element type of parameters and gradients.
    type Real: Real;
    /// Flat buffer of parameters, gradients or moments.
    type Buffer: Buffer<Self::Real>;
    /// A matrix of tokens; its memory layout is the backend's own.
    type Activation: Matrix + Transfer;
    /// A matrix prepared for products, `[out, in]`.
    type Weight: Send;
    /// A bias or gain, prepared.
    type Vector: Send;
    /// What a norm keeps for its backward: one or two numbers per token.
    type NormStats: Send;
    /// What attention keeps for its backward: one number per token and head.
    type AttentionStats: Send;
    /// Logits of a block of tokens over the local shard.
    type Logits: Send;

    /// What computes, for logs: instruction set, precision, threads.
    fn describe(&self) -> String;
    /// Bytes of an element as products read it.
    fn element_bytes(&self) -> ElementBytes;
    /// Bytes held now and at most, by kind.
    fn held(&self) -> Held;

    // ---- memory ----

    /// A buffer of zeros.
    fn zeros(&self, len: usize, kind: Kind) -> Self::Buffer;
    /// A weight `[rows, columns]` prepared from `buffer[at..]`.
    fn prepare(&self, buffer: &Self::Buffer, at: usize, rows: usize, columns: usize) -> Self::Weight;
    /// Prepares again after an optimizer step, in place.
    fn refresh(&self, weight: &mut Self::Weight, buffer: &Self::Buffer, at: usize);
    /// A vector prepared from `buffer[at..at + len]`.
    fn prepare_vector(&self, buffer: &Self::Buffer, at: usize, len: usize) -> Self::Vector;
    /// Prepares again after an optimizer step, in place.
    fn refresh_vector(&self, vector: &mut Self::Vector, buffer: &Self::Buffer, at: usize);
    /// An activation from host values, row by row.
    fn upload(&self, rows: usize, columns: usize, values: &[f32]) -> Self::Activation;
    /// An activation's values on the host, row by row.
    fn download(&self, x: &Self::Activation) -> Vec<f32>;
    /// A copy.
    fn duplicate(&self, x: &Self::Activation) -> Self::Activation;
    /// An activation of undefined values, to receive a message into.
    fn blank(&self, rows: usize, columns: usize) -> Self::Activation;

    /// An activation of zeros.
    fn zeroed(&self, rows: usize, columns: usize) -> Self::Activation {
        self.upload(rows, columns, &vec![0.0; rows * columns])
    }

    // ---- element-wise ----

    /// `x += y`.
    fn add(&self, x: &mut Self::Activation, y: &Self::Activation);
    /// Multiplies by the dropout mask, in place; its own backward.
    fn dropout(&self, x: &mut Self::Activation, at: &DropoutAt);
    /// `residual + dropout(branch + bias)`.
    fn add_branch(
        &self,
        residual: &Self::Activation,
        branch: Self::Activation,
        bias: Option<&Self::Vector>,
        dropout: Option<&DropoutAt>,
    ) -> Self::Activation;

    // ---- rows ----

    /// Some rows of a matrix, in the order given.
    fn take_rows(&self, x: &Self::Activation, rows: &[usize]) -> Self::Activation;
    /// Adds row `i` of `y` to row `rows[i]` of `x`.
    fn add_rows(&self, x: &mut Self::Activation, rows: &[usize], y: &Self::Activation);

    // ---- embedding ----

    /// Row `ids[i] - first_row` of the table for each token, zeros where the shard does
    /// not hold it.
    fn lookup(&self, table: &Self::Weight, first_row: usize, ids: &[u32]) -> Self::Activation;
    /// Adds each token's gradient to its row of the table's gradient, tokens in order.
    fn lookup_gradient(
        &self,
        dy: &Self::Activation,
        first_row: usize,
        table_rows: usize,
        ids: &[u32],
        grads: &mut Self::Buffer,
        at: usize,
    );

    // ---- norms ----

    /// Layer norm over the columns.
    fn layer_norm(
        &self,
        x: &Self::Activation,
        gain: &Self::Vector,
        bias: &Self::Vector,
        eps: f64,
    ) -> (Self::Activation, Self::NormStats);
    /// Adds the input gradient to `dx` (the residual stream's) and the gain's and bias's
    /// gradients at `gain_at` and `bias_at`. `x` is the norm's input.
    #[allow(clippy::too_many_arguments)] // one kernel's operands; a struct would only rename them
    fn layer_norm_backward(
        &self,
        dy: &Self::Activation,
        x: &Self::Activation,
        stats: &Self::NormStats,
        gain: &Self::Vector,
        dx: &mut Self::Activation,
        grads: &mut Self::Buffer,
        gain_at: usize,
        bias_at: usize,
    );

    /// RMS norm over the columns, `x / sqrt(mean(x^2) + eps) * gain` (1910.07467).
    fn rms_norm(&self, x: &Self::Activation, gain: &Self::Vector, eps: f64) -> (Self::Activation, Self::NormStats);
    /// Adds the input gradient to `dx` (the residual stream's) and the gain's gradient at
    /// `gain_at`. `x` is the norm's input.
    #[allow(clippy::too_many_arguments)] // one kernel's operands; a struct would only rename them
    fn rms_norm_backward(
        &self,
        dy: &Self::Activation,
        x: &Self::Activation,
        stats: &Self::NormStats,
        gain: &Self::Vector,
        dx: &mut Self::Activation,
        grads: &mut Self::Buffer,
        gain_at: usize,
    );

    // ---- linear ----

    /// `x w^T + bias`, `[rows, in] -> [rows, out]`.
    fn linear(&self, x: &Self::Activation, w: &Self::Weight, bias: Option<&Self::Vector>) -> Self::Activation;
    /// `(f(y), y)` with `y = x w^T + bias`. A gated `f` halves the columns: those of the
    /// gate stand before those it opens.
    fn linear_activated(
        &self,
        x: &Self::Activation,
        w: &Self::Weight,
        bias: Option<&Self::Vector>,
        f: NonLinearity,
    ) -> (Self::Activation, Self::Activation);
    /// `dy w`, `[rows, out] -> [rows, in]`.
    fn linear_input_gradient(&self, dy: &Self::Activation, w: &Self::Weight) -> Self::Activation;
    /// Adds `dy^T x` `[out, in]` at `at`.
    fn linear_weight_gradient(&self, x: &Self::Activation, dy: &Self::Activation, grads: &mut Self::Buffer, at: usize);
    /// Adds the sum over tokens of `dy` at `at`.
    fn bias_gradient(&self, dy: &Self::Activation, grads: &mut Self::Buffer, at: usize);
    /// `dy * f'(pre)`.
    fn activation_backward(&self, dy: Self::Activation, pre: &Self::Activation, f: NonLinearity) -> Self::Activation;

    // ---- attention ----

    /// Turns queries and keys of fused `[rows, qkv_columns]` by their positions, in place.
    fn rotate(&self, qkv: &mut Self::Activation, rotation: &Rotation);

    /// Attention of fused `[rows, qkv_columns]` to `[rows, heads * head_dim]`, by blocks:
    /// no `s x s` matrix is held.
    fn attention(&self, qkv: &Self::Activation, call: &AttentionCall) -> (Self::Activation, Self::AttentionStats);
    /// Gradient of the fused input, from that of the output.
    fn attention_backward(
        &self,
        dy: &Self::Activation,
        qkv: &Self::Activation,
        y: &Self::Activation,
        stats: &Self::AttentionStats,
        call: &AttentionCall,
    ) -> Self::Activation;

    /// Causal attention of new tokens over the cached and the new ones: fused
    /// `[rows, qkv_columns]` to `[rows, heads * head_dim]`. The new keys and values are
    /// appended to `cache` first ([`CachedAttention`] says where); nothing is kept for a
    /// backward. A backend without a kernel of its own computes this on the host.
    fn attention_cached(
        &self,
        qkv: &Self::Activation,
        cache: &mut Self::Buffer,
        call: &CachedAttention,
    ) -> Self::Activation {
        cached::by_definition(self, qkv, cache, call)
    }

    // ---- vocabulary loss, cut where the tensor group talks ----

    /// Sweep 1: logits of tokens `rows` over the shard, and their local statistics. An
    /// empty shard has `max` negative infinity and sums 0.
    fn vocabulary_sweep(
        &self,
        x: &Self::Activation,
        table: &Self::Weight,
        bias: Option<&Self::Vector>,
        shard: &VocabularyShard,
    ) -> (Self::Logits, VocabularyStats<Self::Buffer>);
    /// Rescales `sum` from the local maximum `local` to the group's, `stats.max`.
    fn vocabulary_rescale(&self, stats: &mut VocabularyStats<Self::Buffer>, local: &Self::Buffer);
    /// `log(sum) + max - target` of each token whose target is not negative, else 0.
    fn vocabulary_losses(&self, stats: &VocabularyStats<Self::Buffer>, targets: &[i64]) -> Vec<f64>;
    /// Sweep 2: overwrites rows `shard.rows` of `dx` with the shard's part of the input
    /// gradient of `scale * sum(losses)`, and adds the table's gradient at `at` (and the
    /// head bias's at `bias_at`).
    #[allow(clippy::too_many_arguments)] // one kernel's operands; a struct would only rename them
    fn vocabulary_gradient(
        &self,
        logits: Self::Logits,
        stats: &VocabularyStats<Self::Buffer>,
        x: &Self::Activation,
        table: &Self::Weight,
        shard: &VocabularyShard,
        scale: f64,
        dx: &mut Self::Activation,
        grads: &mut Self::Buffer,
        at: usize,
        bias_at: Option<usize>,
    );
    /// Logits on the host, `[rows, shard]`.
    fn logits_values(&self, logits: &Self::Logits) -> Vec<f32>;

    // ---- optimizer ----

    /// Sum of squares of a range, in double precision.
    fn sum_of_squares(&self, buffer: &Self::Buffer, range: Range<usize>) -> f64;
    /// Multiplies a range by a factor.
    fn scale(&self, buffer: &mut Self::Buffer, range: Range<usize>, factor: f64);
    /// One AdamW update of a range.
    fn adam(
        &self,
        values: &mut Self::Buffer,
        grads: &Self::Buffer,
        first: &mut Self::Buffer,
        second: &mut Self::Buffer,
        range: Range<usize>,
        step: &AdamStep,
    );
}
