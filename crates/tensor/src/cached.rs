//! Attention over the keys and values of earlier tokens: what decoding adds to the
//! operation set.
//!
//! A cache is a flat buffer with a slot for each sequence:
//!
//! ```text
//!   [slot][keys | values][key and value head][position < capacity][head_dim]
//! ```
//!
//! so that all keys of one head of one sequence lie together, and a new token is appended
//! without moving any other.

use crate::{Backend, Buffer, Matrix, Real};

/// New tokens of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedRun {
    /// The sequence's place in the cache.
    pub slot: usize,
    /// Tokens of the sequence that are in the cache.
    pub past: usize,
    /// Tokens that follow them now.
    pub new: usize,
}

/// Everything a cached attention needs beside its input and the cache.
#[derive(Clone, Copy, Debug)]
pub struct CachedAttention<'a> {
    /// Local query heads.
    pub heads: usize,
    /// Local key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Longest sequence that a slot holds.
    pub capacity: usize,
    /// Factor on the scores, `1 / sqrt(head_dim)`.
    pub scale: f64,
    /// Whose tokens the rows are: those of the first run, then those of the next.
    pub runs: &'a [CachedRun],
}

impl CachedAttention<'_> {
    /// Columns of the fused activation: queries, keys, values side by side.
    pub fn qkv_columns(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Rows of the fused activation.
    pub fn rows(&self) -> usize {
        self.runs.iter().map(|run| run.new).sum()
    }

    /// Elements of a slot.
    pub fn slot_len(&self) -> usize {
        2 * self.kv_heads * self.capacity * self.head_dim
    }

    /// Offset in the cache of a key; those of later positions follow.
    pub fn key_at(&self, slot: usize, kv_head: usize, position: usize) -> usize {
        slot * self.slot_len() + (kv_head * self.capacity + position) * self.head_dim
    }

    /// Offset in the cache of a value; those of later positions follow.
    pub fn value_at(&self, slot: usize, kv_head: usize, position: usize) -> usize {
        self.key_at(slot, self.kv_heads + kv_head, position)
    }

    /// First column of a local key head in the fused activation.
    pub fn key_column(&self, kv_head: usize) -> usize {
        (self.heads + kv_head) * self.head_dim
    }

    /// First column of a local value head in the fused activation.
    pub fn value_column(&self, kv_head: usize) -> usize {
        (self.heads + self.kv_heads + kv_head) * self.head_dim
    }
}

/// [`Backend::attention_cached`] by its definition, over values on the host.
pub(crate) fn by_definition<B: Backend + ?Sized>(
    backend: &B,
    qkv: &B::Activation,
    cache: &mut B::Buffer,
    call: &CachedAttention,
) -> B::Activation {
    assert_eq!((qkv.rows(), qkv.columns()), (call.rows(), call.qkv_columns()), "fused attention input");
    let (host, columns, width) = (backend.download(qkv), call.qkv_columns(), call.heads * call.head_dim);
    let mut y = vec![0.0f32; qkv.rows() * width];
    let mut first = 0;
    for run in call.runs {
        assert!(run.past + run.new <= call.capacity, "{run:?} in a cache of {}", call.capacity);
        let rows = &host[first * columns..(first + run.new) * columns];
        append::<B>(rows, cache, call, run);
        for kv_head in 0..call.kv_heads {
            let out = &mut y[first * width..(first + run.new) * width];
            attend::<B>(rows, cache, call, run, kv_head, out);
        }
        first += run.new;
    }
    backend.upload(qkv.rows(), width, &y)
}

/// Keys and values of a run's rows to their places.
fn append<B: Backend + ?Sized>(rows: &[f32], cache: &mut B::Buffer, call: &CachedAttention, run: &CachedRun) {
    for (i, row) in rows.chunks_exact(call.qkv_columns()).enumerate() {
        let mut put = |at: usize, column: usize| cache.write(at, &real::<B>(&row[column..][..call.head_dim]));
        for kv_head in 0..call.kv_heads {
            put(call.key_at(run.slot, kv_head, run.past + i), call.key_column(kv_head));
            put(call.value_at(run.slot, kv_head, run.past + i), call.value_column(kv_head));
        }
    }
}

/// The query heads of one key and value head, over every token of a run.
fn attend<B: Backend + ?Sized>(
    rows: &[f32],
    cache: &B::Buffer,
    call: &CachedAttention,
    run: &CachedRun,
    kv_head: usize,
    y: &mut [f32],
) {
    let (d, n) = (call.head_dim, run.past + run.new);
    let (keys, values) = (
        wide::<B>(cache, call.key_at(run.slot, kv_head, 0), n * d),
        wide::<B>(cache, call.value_at(run.slot, kv_head, 0), n * d),
    );
    let group = call.heads / call.kv_heads;
    for (i, row) in rows.chunks_exact(call.qkv_columns()).enumerate() {
        let visible = run.past + i + 1;
        for head in kv_head * group..(kv_head + 1) * group {
            let query: Vec<f64> = row[head * d..][..d].iter().map(|&q| f64::from(q)).collect();
            let dot = |key: &[f64]| key.iter().zip(&query).map(|(k, q)| k * q).sum::<f64>();
            let scores: Vec<f64> = keys.chunks_exact(d).take(visible).map(|key| call.scale * dot(key)).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
            let total: f64 = weights.iter().sum();
            let out = &mut y[(i * call.heads + head) * d..][..d];
            for (c, out) in out.iter_mut().enumerate() {
                let sum: f64 =
                    weights.iter().zip(values.chunks_exact(d)).map(|(weight, value)| weight * value[c]).sum();
                *out = (sum / total) as f32;
            }
        }
    }
}

fn real<B: Backend + ?Sized>(values: &[f32]) -> Vec<B::Real> {
    values.iter().map(|&value| B::Real::of(f64::from(value))).collect()
}

fn wide<B: Backend + ?Sized>(buffer: &B::Buffer, at: usize, len: usize) -> Vec<f64> {
    let mut values = vec![B::Real::of(0.0); len];
    buffer.read(at, &mut values);
    values.into_iter().map(Real::wide).collect()
}
