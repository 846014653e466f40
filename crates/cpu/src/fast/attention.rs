//! Attention by blocks, forward (see `plain::attention` for the formulas).
//!
//! Everything is computed transposed, queries in the lanes, so that maximum, sum and
//! scaling of a softmax are vertical:
//!
//! ```text
//!                    a panel of queries (32)                    d = head_dim
//!   Q^T [d, 32]      +-----------+        keys in blocks of 112
//!                    |           |
//!   K [112, d]  x    +-----------+  =  S^T [112, 32]   14 KiB: first cache
//!                                         | mask, online softmax, dropout
//!   V^T [d, 112] x   P^T [112, 32]    +=  O^T [d, 32]  rescaled when a maximum grows
//! ```
//!
//! A task is one sequence and head; its keys and values are copied together first.
//! Blocks past the last visible key are not computed. No `s x s` matrix exists.

use super::elementwise::{multiply, scale};
use super::masks::{self, Place};
use crate::math;
use crate::product::{Old, Tile, tile_by_columns, tile_by_rows};
use crate::simd::{Level, get, kernel, put};
use crate::team::{Parts, Team};
use henge_tensor::{AttentionCall, Mask};

/// Keys of a block: whole tiles of every level and whole blocks of the dropout generator.
pub const KEYS: usize = 112;

kernel! {
    /// One block of the online softmax, `scores [keys, panel]` to numerators: updates each
    /// lane's maximum and sum, and gives the factor for what was summed before.
    fn softmax_block<S>(scores: &mut [f32], max: &mut [f32], sum: &mut [f32], factor: &mut [f32]) {
        let panel = 2 * S::LANES;
        for lane in [0, S::LANES] {
            let old = get::<S>(max, lane);
            let mut new = old;
            for key in (lane..scores.len()).step_by(panel) {
                new = S::max(new, get::<S>(scores, key));
            }
            // A lane that has seen no key yet has no maximum to subtract.
            let shift = S::if_less(new, S::splat(f32::MIN), S::splat(0.0), new);
            let keep = math::exp::<S>(S::sub(old, shift));
            let mut total = S::mul(get::<S>(sum, lane), keep);
            for key in (lane..scores.len()).step_by(panel) {
                let e = math::exp::<S>(S::sub(get::<S>(scores, key), shift));
                total = S::add(total, e);
                put::<S>(scores, key, e);
            }
            put::<S>(max, lane, new);
            put::<S>(sum, lane, total);
            put::<S>(factor, lane, keep);
        }
    }
    /// `x [rows, panel] *= factor [panel]`.
    fn scale_lanes<S>(x: &mut [f32], factor: &[f32]) {
        for row in x.chunks_exact_mut(2 * S::LANES) {
            for lane in [0, S::LANES] {
                put::<S>(row, lane, S::mul(get::<S>(row, lane), get::<S>(factor, lane)));
            }
        }
    }
}

/// What both directions read.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub level: Level,
    /// `[b s, qkv_columns]`.
    pub qkv: &'a [f32],
    pub call: &'a AttentionCall<'a>,
}

/// A panel of queries of one sequence and head.
#[derive(Clone, Copy)]
pub struct QueryPanel {
    pub sample: usize,
    pub head: usize,
    /// Its first query.
    pub first: usize,
    /// Queries that exist.
    pub len: usize,
}

impl Inputs<'_> {
    pub fn dim(&self) -> usize {
        self.call.shape.head_dim
    }

    /// Keys that the queries before `end` see between them.
    pub fn visible(&self, sample: usize, end: usize) -> usize {
        match self.call.mask {
            Mask::Causal => end,
            Mask::Lengths(lengths) => lengths[sample],
        }
    }

    pub fn panels(&self, sample: usize, head: usize) -> impl Iterator<Item = QueryPanel> + use<> {
        let (seq, panel) = (self.call.shape.seq, self.level.panel());
        (0..seq).step_by(panel).map(move |first| QueryPanel { sample, head, first, len: (seq - first).min(panel) })
    }

    /// First columns of a query head's queries and of its keys and values.
    pub fn columns_of(&self, head: usize) -> [usize; 3] {
        let shape = self.call.shape;
        let kv_head = head / (shape.heads / shape.kv_heads);
        let key = shape.heads + kv_head;
        [head, key, key + shape.kv_heads].map(|part| part * shape.head_dim)
    }

    /// Copies one part of a sequence's rows together, `[s, d]`.
    pub fn copy_rows(&self, sample: usize, column: usize, out: &mut [f32]) {
        let (width, dim) = (self.call.shape.qkv_columns(), self.dim());
        for (i, out) in out.chunks_exact_mut(dim).enumerate() {
            out.copy_from_slice(&self.qkv[(sample * self.call.shape.seq + i) * width + column..][..dim]);
        }
    }

    /// `S^T [keys, panel]` of a panel of scaled queries `[d, panel]`, masked keys at
    /// negative infinity.
    pub fn scores(&self, queries: &[f32], keys: &[f32], at: QueryPanel, first_key: usize, scores: &mut [f32]) {
        by_rows_times_panel(self.level, keys, self.dim(), queries, scores);
        if let Mask::Causal = self.call.mask {
            let panel = self.level.panel();
            for (j, scores) in scores.chunks_exact_mut(panel).enumerate() {
                // Lanes of the queries before this key.
                let hidden = (first_key + j).saturating_sub(at.first).min(panel);
                scores[..hidden].fill(f32::NEG_INFINITY);
            }
        }
    }

    /// Dropout factors of a block `[keys, panel]`, or nothing where there is no dropout.
    pub fn factors<'f>(
        &self,
        at: QueryPanel,
        first_key: usize,
        keys: usize,
        block: &'f mut [f32],
    ) -> Option<&'f [f32]> {
        let dropout = self.call.dropout.as_ref()?;
        let block = &mut block[..keys * self.level.panel()];
        let place = Place::new(dropout, at.sample, at.head);
        masks::block(self.level, &place, at.first as u32, first_key as u32, block);
        Some(block)
    }
}

/// `c [m, panel] = a [m, depth] b [depth, panel]`, all dense.
pub fn by_rows_times_panel(level: Level, a: &[f32], depth: usize, b: &[f32], c: &mut [f32]) {
    let (panel, rows) = (level.panel(), level.tile_rows());
    let m = c.len() / panel;
    assert!(a.len() >= m * depth && b.len() >= depth * panel, "operands of a panel product");
    for row in (0..m).step_by(rows) {
        tile_by_rows(
            level,
            &Tile {
                rows: (m - row).min(rows),
                columns: panel,
                depth,
                a: a[row * depth..].as_ptr(),
                a_step: 1,
                a_stride: depth,
                b: b.as_ptr(),
                c: c[row * panel..].as_mut_ptr(),
                c_stride: panel,
                old: Old::Replaced,
            },
        );
    }
}

/// `c [m, panel] += a^T b`, `a [depth, m]`, `b [depth, panel]`, all dense.
pub fn add_transposed_times_panel(level: Level, a: &[f32], b: &[f32], c: &mut [f32]) {
    let (panel, rows) = (level.panel(), level.tile_rows());
    let (m, depth) = (c.len() / panel, b.len() / panel);
    assert!(a.len() >= m * depth, "operands of a panel product");
    for row in (0..m).step_by(rows) {
        tile_by_columns(
            level,
            &Tile {
                rows: (m - row).min(rows),
                columns: panel,
                depth,
                a: a[row..].as_ptr(),
                a_step: m,
                a_stride: 1,
                b: b.as_ptr(),
                c: c[row * panel..].as_mut_ptr(),
                c_stride: panel,
                old: Old::Kept,
            },
        );
    }
}

/// `out [d, panel] = factor * x^T` of up to a panel of rows, missing ones 0.
pub fn transpose_rows<'x>(panel: usize, factor: f32, rows: impl Iterator<Item = &'x [f32]>, out: &mut [f32]) {
    let mut filled = 0;
    for (lane, row) in rows.enumerate() {
        out[lane..].iter_mut().step_by(panel).zip(row).for_each(|(out, &x)| *out = factor * x);
        filled = lane + 1;
    }
    if filled < panel {
        out.chunks_exact_mut(panel).for_each(|out| out[filled..].fill(0.0));
    }
}

/// Pieces of one scratch buffer.
pub struct Carver<'a>(pub &'a mut [f32]);

impl<'a> Carver<'a> {
    pub fn take(&mut self, len: usize) -> &'a mut [f32] {
        let (piece, rest) = std::mem::take(&mut self.0).split_at_mut(len);
        self.0 = rest;
        piece
    }
}

/// Numbers of scratch that a worker of [`forward`] needs.
pub fn forward_scratch(level: Level, call: &AttentionCall) -> usize {
    let (seq, dim, panel) = (call.shape.seq, call.shape.head_dim, level.panel());
    2 * seq * dim + 2 * dim * panel + 2 * KEYS * panel
}

/// `y [b s, heads d]` and `logs [b s, heads]`, the log of each query's sum of exponentials.
pub fn forward(inputs: Inputs, team: &Team, y: &mut [f32], logs: &mut [f32], scratch: &mut [f32]) {
    let shape = inputs.call.shape;
    let size = forward_scratch(inputs.level, inputs.call);
    let (y, logs, scratch) = (Parts::of(y), Parts::of(logs), Parts::of(scratch));
    team.each(shape.batch * shape.heads, &|worker, task| {
        // SAFETY: each worker has its own scratch.
        let mut scratch = Carver(unsafe { scratch.part(worker * size, size) });
        let (sample, head) = (task / shape.heads, task % shape.heads);
        let [_, key, value] = inputs.columns_of(head);
        let (keys, values) = (scratch.take(shape.seq * shape.head_dim), scratch.take(shape.seq * shape.head_dim));
        inputs.copy_rows(sample, key, keys);
        inputs.copy_rows(sample, value, values);
        for at in inputs.panels(sample, head) {
            let out = PanelOutput { y: &y, logs: &logs };
            panel_forward(inputs, at, (keys, values), Carver(&mut *scratch.0), out);
        }
    });
}

/// Where a panel's outputs go.
struct PanelOutput<'a> {
    y: &'a Parts<'a, f32>,
    logs: &'a Parts<'a, f32>,
}

fn panel_forward(
    inputs: Inputs,
    at: QueryPanel,
    (keys, values): (&[f32], &[f32]),
    mut scratch: Carver,
    out: PanelOutput,
) {
    let (level, dim, panel) = (inputs.level, inputs.dim(), inputs.level.panel());
    let (queries, sums) = (scratch.take(dim * panel), scratch.take(dim * panel));
    let (scores, factors) = (scratch.take(KEYS * panel), scratch.take(KEYS * panel));
    let (width, seq) = (inputs.call.shape.qkv_columns(), inputs.call.shape.seq);
    let first_row = at.sample * seq + at.first;
    let [query, ..] = inputs.columns_of(at.head);
    let rows = (0..at.len).map(|i| &inputs.qkv[(first_row + i) * width + query..][..dim]);
    transpose_rows(panel, inputs.call.scale as f32, rows, queries);
    sums.fill(0.0);
    let (mut max, mut sum, mut keep) = ([f32::NEG_INFINITY; 32], [0.0; 32], [0.0; 32]);
    let visible = inputs.visible(at.sample, at.first + at.len);
    for first_key in (0..visible).step_by(KEYS) {
        let count = (visible - first_key).min(KEYS);
        let block = first_key * dim..(first_key + count) * dim;
        let scores = &mut scores[..count * panel];
        inputs.scores(queries, &keys[block.clone()], at, first_key, scores);
        softmax_block(level, scores, &mut max[..panel], &mut sum[..panel], &mut keep[..panel]);
        if let Some(factors) = inputs.factors(at, first_key, count, factors) {
            multiply(level, scores, factors);
        }
        scale_lanes(level, sums, &keep[..panel]);
        add_transposed_times_panel(level, &values[block], scores, sums);
    }
    let heads = inputs.call.shape.heads;
    for lane in 0..at.len {
        let row = (first_row + lane) * heads + at.head;
        // SAFETY: each query of each head belongs to one task.
        let (y, log) = unsafe { (out.y.part(row * dim, dim), out.logs.part(row, 1)) };
        y.iter_mut().zip(sums[lane..].iter().step_by(panel)).for_each(|(y, &sum)| *y = sum);
        // A query without keys has an output of 0.
        scale(level, y, if sum[lane] > 0.0 { 1.0 / sum[lane] } else { 1.0 });
        log[0] = max[lane] + sum[lane].ln();
    }
}
