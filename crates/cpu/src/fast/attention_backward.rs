//! Attention by blocks, backward (see `plain::attention` for the formulas).
//!
//! ```text
//!   per panel of 32 queries and block of 112 keys, queries in the lanes:
//!
//!   S^T  = K (scale Q)^T      P^T = exp(S^T - L)          recomputed, never stored
//!   dP^T = V dY^T             dS^T = P^T (F dP^T - D)     D = dY . Y of each query
//!
//!   dV [112, d]   += (F P^T) dY         dK [112, d] += dS^T (scale Q)
//!   dQ^T [d, 32]  += K^T dS^T           scaled and turned at the panel's end
//! ```
//!
//! `F` are the dropout factors. A task is one sequence and key-value head; the query
//! heads that share it add to the same `dK` and `dV` in order.

use super::attention::{
    Carver, Inputs, KEYS, QueryPanel, add_transposed_times_panel, by_rows_times_panel, transpose_rows,
};
use super::elementwise::multiply;
use crate::math;
use crate::product::{Old, Tile, tile_by_rows};
use crate::simd::{Level, get, kernel, put};
use crate::team::{Parts, Team};
use henge_tensor::AttentionCall;

kernel! {
    /// Scores to probabilities and gradients of probabilities (with dropout applied) to
    /// those of scores, both `[keys, panel]`.
    fn softmax_backward<S>(scores: &mut [f32], gradients: &mut [f32], logs: &[f32], dots: &[f32]) {
        for (scores, gradients) in scores.chunks_exact_mut(2 * S::LANES).zip(gradients.chunks_exact_mut(2 * S::LANES)) {
            for lane in [0, S::LANES] {
                let p = math::exp::<S>(S::sub(get::<S>(scores, lane), get::<S>(logs, lane)));
                let difference = S::sub(get::<S>(gradients, lane), get::<S>(dots, lane));
                put::<S>(scores, lane, p);
                put::<S>(gradients, lane, S::mul(p, difference));
            }
        }
    }
    fn dot<S>(a: &[f32], b: &[f32]) -> f32 {
        let mut sum = S::splat(0.0);
        for i in (0..a.len()).step_by(S::LANES) {
            sum = S::fma(get::<S>(a, i), get::<S>(b, i), sum);
        }
        S::sum(sum)
    }
}

/// What the backward reads beside the inputs.
#[derive(Clone, Copy)]
pub struct Outputs<'a> {
    /// `[b s, heads d]`.
    pub y: &'a [f32],
    /// Gradient of `y`.
    pub dy: &'a [f32],
    /// `[b s, heads]`.
    pub logs: &'a [f32],
}

/// Numbers of scratch that a worker of [`backward`] needs.
pub fn backward_scratch(level: Level, call: &AttentionCall) -> usize {
    let (seq, dim, panel) = (call.shape.seq, call.shape.head_dim, level.panel());
    4 * seq * dim + 3 * dim * panel + 2 * panel * dim.next_multiple_of(panel) + 3 * KEYS * panel
}

/// Overwrites `dqkv` with the gradient of the fused input.
pub fn backward(inputs: Inputs, outputs: Outputs, team: &Team, dqkv: &mut [f32], scratch: &mut [f32]) {
    let shape = inputs.call.shape;
    let (group, dim) = (shape.heads / shape.kv_heads, shape.head_dim);
    let size = backward_scratch(inputs.level, inputs.call);
    let (dqkv, scratch) = (Parts::of(dqkv), Parts::of(scratch));
    team.each(shape.batch * shape.kv_heads, &|worker, task| {
        // SAFETY: each worker has its own scratch.
        let mut scratch = Carver(unsafe { scratch.part(worker * size, size) });
        let (sample, first_head) = (task / shape.kv_heads, task % shape.kv_heads * group);
        let [_, key, value] = inputs.columns_of(first_head);
        let [keys, values, dkeys, dvalues] = [(); 4].map(|()| scratch.take(shape.seq * dim));
        inputs.copy_rows(sample, key, keys);
        inputs.copy_rows(sample, value, values);
        dkeys.fill(0.0);
        dvalues.fill(0.0);
        for head in first_head..first_head + group {
            for at in inputs.panels(sample, head) {
                let mut panel = Panel::new(inputs, outputs, at, Carver(&mut *scratch.0));
                panel.add_gradients((keys, values), (dkeys, dvalues));
                panel.write_queries(&dqkv);
            }
        }
        write_rows(inputs, &dqkv, sample, key, dkeys);
        write_rows(inputs, &dqkv, sample, value, dvalues);
    });
}

/// Copies `[s, d]` to its columns of a sequence's rows.
fn write_rows(inputs: Inputs, dqkv: &Parts<f32>, sample: usize, column: usize, rows: &[f32]) {
    let (width, dim) = (inputs.call.shape.qkv_columns(), inputs.dim());
    for (i, row) in rows.chunks_exact(dim).enumerate() {
        let at = (sample * inputs.call.shape.seq + i) * width + column;
        // SAFETY: each key-value head of each sequence belongs to one task.
        unsafe { dqkv.part(at, dim) }.copy_from_slice(row);
    }
}

/// One panel of queries on its way through the blocks of keys.
struct Panel<'a> {
    inputs: Inputs<'a>,
    at: QueryPanel,
    /// Scaled, `[d, panel]`.
    queries: &'a mut [f32],
    /// `[d, panel]`.
    dy: &'a mut [f32],
    /// `[d, panel]`.
    dqueries: &'a mut [f32],
    /// Scaled queries and `dY` in panels of columns, `[panels of d, panel of queries, panel]`.
    query_rows: &'a mut [f32],
    dy_rows: &'a mut [f32],
    /// `[KEYS, panel]` each.
    scores: &'a mut [f32],
    gradients: &'a mut [f32],
    factors: &'a mut [f32],
    logs: [f32; 32],
    dots: [f32; 32],
}

impl<'a> Panel<'a> {
    fn new(inputs: Inputs<'a>, outputs: Outputs<'a>, at: QueryPanel, mut scratch: Carver<'a>) -> Self {
        let (shape, panel, dim) = (inputs.call.shape, inputs.level.panel(), inputs.dim());
        let [queries, dy, dqueries] = [(); 3].map(|()| scratch.take(dim * panel));
        let [query_rows, dy_rows] = [(); 2].map(|()| scratch.take(panel * dim.next_multiple_of(panel)));
        let [scores, gradients, factors] = [(); 3].map(|()| scratch.take(KEYS * panel));
        let row = |i: usize| (at.sample * shape.seq + at.first + i) * shape.heads + at.head;
        // A lane without a query has probabilities of 0.
        let (mut logs, mut dots) = ([f32::INFINITY; 32], [0.0; 32]);
        for i in 0..at.len {
            logs[i] = outputs.logs[row(i)];
            dots[i] = dot(inputs.level, &outputs.y[row(i) * dim..][..dim], &outputs.dy[row(i) * dim..][..dim]);
        }
        let [query, ..] = inputs.columns_of(at.head);
        let first_row = at.sample * shape.seq + at.first;
        let q = |i: usize| &inputs.qkv[(first_row + i) * shape.qkv_columns() + query..][..dim];
        let d = |i: usize| &outputs.dy[row(i) * dim..][..dim];
        let scale = inputs.call.scale as f32;
        transpose_rows(panel, scale, (0..at.len).map(q), queries);
        transpose_rows(panel, 1.0, (0..at.len).map(d), dy);
        panels_of_rows(panel, scale, (0..at.len).map(q), query_rows);
        panels_of_rows(panel, 1.0, (0..at.len).map(d), dy_rows);
        dqueries.fill(0.0);
        Self { inputs, at, queries, dy, dqueries, query_rows, dy_rows, scores, gradients, factors, logs, dots }
    }

    fn add_gradients(&mut self, (keys, values): (&[f32], &[f32]), (dkeys, dvalues): (&mut [f32], &mut [f32])) {
        let (level, panel, dim) = (self.inputs.level, self.inputs.level.panel(), self.inputs.dim());
        let visible = self.inputs.visible(self.at.sample, self.at.first + self.at.len);
        for first_key in (0..visible).step_by(KEYS) {
            let count = (visible - first_key).min(KEYS);
            let block = first_key * dim..(first_key + count) * dim;
            let (scores, gradients) = (&mut self.scores[..count * panel], &mut self.gradients[..count * panel]);
            self.inputs.scores(self.queries, &keys[block.clone()], self.at, first_key, scores);
            by_rows_times_panel(level, &values[block.clone()], dim, self.dy, gradients);
            let factors = self.inputs.factors(self.at, first_key, count, self.factors);
            if let Some(factors) = factors {
                multiply(level, gradients, factors);
            }
            softmax_backward(level, scores, gradients, &self.logs[..panel], &self.dots[..panel]);
            if let Some(factors) = factors {
                multiply(level, scores, factors);
            }
            add_panel_times_rows(level, scores, self.dy_rows, dim, &mut dvalues[block.clone()]);
            add_panel_times_rows(level, gradients, self.query_rows, dim, &mut dkeys[block.clone()]);
            add_transposed_times_panel(level, &keys[block], gradients, self.dqueries);
        }
    }

    fn write_queries(&self, dqkv: &Parts<f32>) {
        let (shape, dim, panel) = (self.inputs.call.shape, self.inputs.dim(), self.inputs.level.panel());
        let [query, ..] = self.inputs.columns_of(self.at.head);
        let scale = self.inputs.call.scale as f32;
        for lane in 0..self.at.len {
            let row = self.at.sample * shape.seq + self.at.first + lane;
            // SAFETY: each query of each head belongs to one task.
            let out = unsafe { dqkv.part(row * shape.qkv_columns() + query, dim) };
            let sums = self.dqueries[lane..].iter().step_by(panel);
            out.iter_mut().zip(sums).for_each(|(out, &sum)| *out = scale * sum);
        }
    }
}

/// Rows `[panel, d]`, missing ones 0, as panels of columns: `[panels of d, panel, panel]`.
fn panels_of_rows<'x>(panel: usize, factor: f32, rows: impl Iterator<Item = &'x [f32]>, out: &mut [f32]) {
    out.fill(0.0);
    for (i, row) in rows.enumerate() {
        for (columns, piece) in row.chunks(panel).enumerate() {
            let out = &mut out[(columns * panel + i) * panel..][..piece.len()];
            out.iter_mut().zip(piece).for_each(|(out, &x)| *out = factor * x);
        }
    }
}

/// `c [m, d] += a b`, `a [m, panel]` dense, `b` a panel of rows by [`panels_of_rows`].
fn add_panel_times_rows(level: Level, a: &[f32], b: &[f32], dim: usize, c: &mut [f32]) {
    let (panel, rows) = (level.panel(), level.tile_rows());
    let m = c.len() / dim;
    assert!(a.len() >= m * panel && b.len() >= panel * dim.next_multiple_of(panel), "operands of a panel product");
    for column in (0..dim).step_by(panel) {
        for row in (0..m).step_by(rows) {
            tile_by_rows(
                level,
                &Tile {
                    rows: (m - row).min(rows),
                    columns: (dim - column).min(panel),
                    depth: panel,
                    a: a[row * panel..].as_ptr(),
                    a_step: 1,
                    a_stride: panel,
                    b: b[column * panel..].as_ptr(),
                    c: c[row * dim + column..].as_mut_ptr(),
                    c_stride: dim,
                    old: Old::Kept,
                },
            );
        }
    }
}
