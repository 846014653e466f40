//! Attention of a few new tokens over cached keys and values.
//!
//! One query against many keys is a product of matrix and vector: each key and value is
//! read once, so the time is that of reading the cache. A task is one sequence and one key
//! and value head with its query heads; it appends the new keys and values itself, since
//! nobody else reads them. Panels of queries, as training has them, would read no less
//! here and mostly compute nothing.

use crate::math;
use crate::simd::{Level, get, kernel, put};
use crate::team::{Parts, Team};
use henge_tensor::{CachedAttention, CachedRun};

kernel! {
    /// `scores[j] = scale query . keys[j]`, `keys [n, d]`; returns the largest.
    fn dots<S>(query: &[f32], keys: &[f32], scale: f32, scores: &mut [f32]) -> f32 {
        let mut largest = f32::NEG_INFINITY;
        for (key, score) in keys.chunks_exact(query.len()).zip(scores.iter_mut()) {
            let mut sum = S::splat(0.0);
            for i in (0..query.len()).step_by(S::LANES) {
                sum = S::fma(get::<S>(query, i), get::<S>(key, i), sum);
            }
            *score = scale * S::sum(sum);
            largest = largest.max(*score);
        }
        largest
    }
    /// `scores = exp(scores - largest)`; returns their sum.
    fn exponentials<S>(scores: &mut [f32], largest: f32) -> f32 {
        let mut total = 0.0;
        for i in (0..scores.len()).step_by(S::LANES) {
            put::<S>(scores, i, math::exp::<S>(S::sub(get::<S>(scores, i), S::splat(largest))));
        }
        for score in scores.iter() {
            total += *score;
        }
        total
    }
    /// `out = factor sum_j weights[j] values[j]`, `values [n, d]`.
    fn weighted_sum<S>(weights: &[f32], values: &[f32], factor: f32, out: &mut [f32]) {
        let width = out.len();
        for i in (0..width).step_by(S::LANES) {
            let mut sum = S::splat(0.0);
            for (value, &weight) in values.chunks_exact(width).zip(weights) {
                sum = S::fma(S::splat(weight), get::<S>(value, i), sum);
            }
            put::<S>(out, i, S::mul(sum, S::splat(factor)));
        }
    }
}

/// What the tasks share.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub level: Level,
    /// `[rows, qkv_columns]`.
    pub qkv: &'a [f32],
    pub call: &'a CachedAttention<'a>,
}

/// Numbers of scratch that a worker of [`forward`] needs.
pub fn scratch_len(call: &CachedAttention) -> usize {
    call.runs.iter().map(|run| run.past + run.new).max().unwrap_or(0)
}

/// Appends to the cache and fills `y [rows, heads d]`.
pub fn forward(inputs: Inputs, team: &Team, cache: &mut [f32], y: &mut [f32], scratch: &mut [f32]) {
    let (call, size) = (inputs.call, scratch_len(inputs.call));
    for run in call.runs {
        assert!(run.past + run.new <= call.capacity, "{run:?} in a cache of {}", call.capacity);
    }
    let firsts: Vec<usize> = call
        .runs
        .iter()
        .scan(0, |end, run| {
            *end += run.new;
            Some(*end - run.new)
        })
        .collect();
    let (cache, y, scratch) = (Parts::of(cache), Parts::of(y), Parts::of(scratch));
    team.each(call.runs.len() * call.kv_heads, &|worker, task| {
        let (run, kv_head) = (task / call.kv_heads, task % call.kv_heads);
        let at = Task { inputs, run: call.runs[run], first: firsts[run], kv_head };
        // SAFETY: each worker has its own scratch.
        let scores = unsafe { scratch.part(worker * size, size) };
        at.run(&cache, &y, scores);
    });
}

/// One sequence and one key and value head.
struct Task<'a> {
    inputs: Inputs<'a>,
    run: CachedRun,
    /// Row of the run's first token.
    first: usize,
    kv_head: usize,
}

impl Task<'_> {
    fn row(&self, token: usize) -> &[f32] {
        let width = self.inputs.call.qkv_columns();
        &self.inputs.qkv[(self.first + token) * width..][..width]
    }

    fn run(&self, cache: &Parts<f32>, y: &Parts<f32>, scores: &mut [f32]) {
        let (call, CachedRun { slot, past, new }) = (self.inputs.call, self.run);
        let (d, len) = (call.head_dim, (past + new) * call.head_dim);
        // SAFETY: no other task has this slot and head, and keys and values lie apart.
        let (keys, values) = unsafe {
            (cache.part(call.key_at(slot, self.kv_head, 0), len), cache.part(call.value_at(slot, self.kv_head, 0), len))
        };
        for token in 0..new {
            let (at, row) = ((past + token) * d, self.row(token));
            keys[at..at + d].copy_from_slice(&row[call.key_column(self.kv_head)..][..d]);
            values[at..at + d].copy_from_slice(&row[call.value_column(self.kv_head)..][..d]);
        }
        let group = call.heads / call.kv_heads;
        for token in 0..new {
            let visible = past + token + 1;
            for head in self.kv_head * group..(self.kv_head + 1) * group {
                let query = &self.row(token)[head * d..][..d];
                // SAFETY: each head of each token belongs to one task.
                let out = unsafe { y.part(((self.first + token) * call.heads + head) * d, d) };
                let (keys, values) = (&keys[..visible * d], &values[..visible * d]);
                self.attend(query, keys, values, &mut scores[..visible], out);
            }
        }
    }

    fn attend(&self, query: &[f32], keys: &[f32], values: &[f32], scores: &mut [f32], out: &mut [f32]) {
        let level = self.inputs.level;
        let largest = dots(level, query, keys, self.inputs.call.scale as f32, scores);
        let total = exponentials(level, scores, largest);
        weighted_sum(level, scores, values, 1.0 / total, out);
    }
}
