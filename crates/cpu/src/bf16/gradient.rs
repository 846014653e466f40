//! `dw [n, k] += dy^T x` over tokens: weight gradients, straight into float32.
//!
//! ```text
//!   first, for 2048 tokens:  x  -> pairs of tokens side by side (B tiles), 512 tokens a chunk
//!
//!   then a task of 256 rows x 512 columns of dw, chunk by chunk:
//!
//!   dy [512 tokens, 32] -> turned, 32 x 512 (A tiles, 32 KiB: first cache)
//!                              |
//!   x of the chunk, 16 panels: | sums of 512 tokens -> dw, while the next panel sums
//!   half of the second cache --+    (the task's part of dw stays in the second cache)
//! ```
//!
//! Chunks are added in order, so results depend neither on tasks nor on threads.

use super::product::{Sums, multiply, store, zero};
use super::{BLOCK, Bf16, COLUMNS, Machine, PAIR, Packing};
use crate::simd::{Simd, kernel};
use crate::team::Parts;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::tile::Hardware;
use crate::tile::{Software, Tiles, Unit};
use std::ops::Range;

/// Tokens whose products are summed in tiles.
const CHUNK: usize = 512;
/// Tokens that are packed at a time.
const TOKENS: usize = 2048;
/// Most rows of `dw` of a task.
const ROWS: usize = 256;
/// bf16 numbers of a turned panel of `dy`.
const TURNED: usize = CHUNK * BLOCK;

/// The operands.
#[derive(Clone, Copy)]
pub struct Gradient<'a> {
    /// `[tokens, columns]`.
    pub x: Bf16<'a>,
    /// `[tokens, rows]`.
    pub dy: Bf16<'a>,
}

/// bf16 numbers of scratch that [`weight_gradient`] needs.
pub fn gradient_scratch(tokens: usize, columns: usize, threads: usize) -> usize {
    packed_len(tokens.min(TOKENS), columns) + threads * TURNED
}

fn packed_len(tokens: usize, columns: usize) -> usize {
    tokens.div_ceil(CHUNK) * Packing { depth: CHUNK, columns }.len()
}

/// Adds to `dw`; `scratch` holds [`gradient_scratch`] numbers.
pub fn weight_gradient(machine: Machine, call: Gradient, dw: &mut [f32], scratch: &mut [u16]) {
    let Gradient { x, dy } = call;
    assert_eq!((x.rows, dw.len()), (dy.rows, x.columns * dy.columns), "a weight gradient");
    if dw.is_empty() {
        return;
    }
    let (packed, turned) = scratch.split_at_mut(packed_len(x.rows.min(TOKENS), x.columns));
    for first in (0..x.rows).step_by(TOKENS) {
        let tokens = first..(first + TOKENS).min(x.rows);
        let call = Gradient { x: x.rows(tokens.clone()), dy: dy.rows(tokens) };
        pack_tokens(machine, call.x, packed);
        add_products(machine, call, packed, dw, turned);
    }
}

/// Tokens in pairs, chunk by chunk, each as a packed operand `[512, columns]`.
fn pack_tokens(machine: Machine, x: Bf16, packed: &mut [u16]) {
    let packing = Packing { depth: CHUNK, columns: x.columns };
    let chunks = x.rows.div_ceil(CHUNK);
    let parts = Parts::of(packed);
    machine.team.each(chunks * packing.panels(), &|_, task| {
        let (chunk, panel) = (task / packing.panels(), task % packing.panels());
        let tokens = chunk * CHUNK..((chunk + 1) * CHUNK).min(x.rows);
        // SAFETY: panels do not overlap and each is one task.
        let out = unsafe { parts.part(chunk * packing.len() + packing.at(panel, 0), packing.steps() * PAIR) };
        pair_tokens(machine.level, x, tokens, panel * BLOCK, out);
    });
}

kernel! {
    /// A panel of a chunk: tokens past the last are zero, up to a whole step.
    fn pair_tokens<S>(x: Bf16, tokens: Range<usize>, column: usize, out: &mut [u16]) {
        const ZERO: [u16; BLOCK] = [0; BLOCK];
        let row = |token: usize| match token < tokens.end {
            true => x.values[token * x.stride + column..][..BLOCK].as_ptr(),
            false => ZERO.as_ptr(),
        };
        for step in 0..tokens.len().div_ceil(BLOCK) {
            for pair in 0..BLOCK / 2 {
                let token = tokens.start + step * BLOCK + 2 * pair;
                let to = out[step * PAIR + pair * BLOCK..][..PAIR / 2 + BLOCK].as_mut_ptr();
                // SAFETY: two rows of 32 numbers in; a row of each tile out.
                unsafe { S::pair_rows(row(token), row(token + 1), to, PAIR / 2) };
            }
        }
    }
}

fn add_products(machine: Machine, call: Gradient, packed: &[u16], dw: &mut [f32], turned: &mut [u16]) {
    let (rows, columns) = (call.dy.columns, call.x.columns);
    let column_blocks = columns.div_ceil(COLUMNS);
    let fine = rows * column_blocks / (3 * machine.team.threads());
    let height = fine.clamp(BLOCK, ROWS).next_multiple_of(BLOCK);
    let row_blocks = rows.div_ceil(height);
    let (dw, turned) = (Parts::of(dw), Parts::of(turned));
    machine.team.each(row_blocks * column_blocks, &|worker, task| {
        let (row, column) = (task % row_blocks * height, task / row_blocks * COLUMNS);
        // SAFETY: each worker has its own panel.
        let turned = unsafe { turned.part(worker * TURNED, TURNED) };
        let task = Task {
            call,
            packed,
            dw: &dw,
            rows: row..(row + height).min(rows),
            columns: column..(column + COLUMNS).min(columns),
        };
        run(machine.level, machine.tiles, &task, turned);
    });
}

kernel! {
    fn run<S>(tiles: Tiles, task: &Task, turned: &mut [u16]) {
        match tiles {
            // SAFETY: named by detection only; a task runs on one thread.
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Tiles::Hardware => task.run::<S>(&mut unsafe { Hardware::configured() }, turned),
            _ => task.run::<S>(&mut Software::default(), turned),
        }
    }
}

struct Task<'a> {
    call: Gradient<'a>,
    packed: &'a [u16],
    dw: &'a Parts<'a, f32>,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Task<'_> {
    #[inline(always)]
    fn run<S: Simd>(&self, unit: &mut impl Unit, turned: &mut [u16]) {
        let tokens = self.call.x.rows;
        let mut sums = [Sums([0.0; BLOCK * BLOCK]), Sums([0.0; BLOCK * BLOCK])];
        let (mut flip, mut last) = (0, None);
        for chunk in 0..tokens.div_ceil(CHUNK) {
            let range = chunk * CHUNK..((chunk + 1) * CHUNK).min(tokens);
            for row in self.rows.clone().step_by(BLOCK) {
                self.turn::<S>(range.clone(), row, turned);
                for column in self.columns.clone().step_by(BLOCK) {
                    let [first, second] = &mut sums;
                    let (own, other) = if flip == 0 { (first, second) } else { (second, first) };
                    self.panel::<S>(unit, (chunk, range.len()), (row, column), turned, (last, other));
                    // SAFETY: a block of sums.
                    unsafe { store(unit, own.0.as_mut_ptr()) };
                    last = Some((row, column));
                    flip ^= 1;
                }
            }
        }
        if let Some(place) = last {
            self.finish::<S>(place, &sums[flip ^ 1], 0..BLOCK);
        }
    }

    /// Sums of one block over a chunk; what the last block left is added to `dw` meanwhile.
    #[inline(always)]
    fn panel<S: Simd>(
        &self,
        unit: &mut impl Unit,
        (chunk, tokens): (usize, usize),
        place: (usize, usize),
        turned: &[u16],
        (last, other): (Option<(usize, usize)>, &Sums),
    ) {
        let packing = Packing { depth: CHUNK, columns: self.call.x.columns };
        let steps = tokens.div_ceil(BLOCK);
        let at = chunk * packing.len() + packing.at(place.1 / BLOCK, 0);
        let b = self.packed[at..][..steps * PAIR].as_ptr();
        let each = BLOCK.div_ceil(steps);
        zero(unit);
        for step in 0..steps {
            // SAFETY: inside the turned panel and the packed one, by the sizes above.
            unsafe { multiply(unit, turned[step * PAIR..][..PAIR].as_ptr(), 64, b.add(step * PAIR)) };
            let rows = (step * each).min(BLOCK)..((step + 1) * each).min(BLOCK);
            for row in rows.clone() {
                let at = (place.0 + row) * packing.columns + place.1;
                S::prefetch(self.dw.address(at));
                S::prefetch(self.dw.address(at + 16));
            }
            self.prefetch_turn::<S>(chunk, tokens, place, rows.start);
            if let Some(place) = last {
                self.finish::<S>(place, other, rows);
            }
        }
    }

    /// Adds some rows of a block of sums to `dw`.
    #[inline(always)]
    fn finish<S: Simd>(&self, (row, column): (usize, usize), sums: &Sums, rows: Range<usize>) {
        let (stride, columns) = (self.call.x.columns, (self.columns.end - column).min(BLOCK));
        let height = (self.rows.end - row).min(BLOCK);
        for r in rows.start..rows.end.min(height) {
            // SAFETY: tasks do not overlap.
            let dw = unsafe { self.dw.part((row + r) * stride + column, columns) };
            for j in (0..columns).step_by(S::LANES) {
                let n = (columns - j).min(S::LANES);
                // SAFETY: `n` numbers of a row of `dw`; whole vectors of a row of 32 sums.
                unsafe {
                    let to = dw.as_mut_ptr().add(j);
                    let sum = S::load(sums.0.as_ptr().add(r * BLOCK + j));
                    match n == S::LANES {
                        true => S::store(to, S::add(S::load(to), sum)),
                        false => S::store_part(to, n, S::add(S::load_part(to, n), sum)),
                    }
                }
            }
        }
    }

    /// 32 columns of `dy` of a chunk to A tiles: a column is a row of 32 tokens of each step.
    #[inline(always)]
    fn turn<S: Simd>(&self, tokens: Range<usize>, column: usize, turned: &mut [u16]) {
        let Bf16 { values, stride, .. } = self.call.dy;
        for (step, out) in turned.chunks_exact_mut(PAIR).enumerate().take(tokens.len().div_ceil(BLOCK)) {
            let first = tokens.start + step * BLOCK;
            let from = &values[first * stride + column..];
            let rows = (tokens.end - first).min(BLOCK);
            if rows == BLOCK {
                assert!(from.len() >= (BLOCK - 1) * stride + BLOCK, "rows of a turn");
                // SAFETY: 32 rows of 32 numbers in, two tiles out.
                unsafe { S::turn_block(from.as_ptr(), stride, out.as_mut_ptr()) };
            } else {
                let mut block = [[0u16; BLOCK]; BLOCK];
                for (r, block) in block.iter_mut().enumerate().take(rows) {
                    block.copy_from_slice(&from[r * stride..][..BLOCK]);
                }
                // SAFETY: as above.
                unsafe { S::turn_block(block.as_ptr().cast(), BLOCK, out.as_mut_ptr()) };
            }
        }
    }

    /// Brings what the next turn reads to the second cache, a share with each panel.
    #[inline(always)]
    fn prefetch_turn<S: Simd>(&self, chunk: usize, tokens: usize, (row, column): (usize, usize), part: usize) {
        let Bf16 { values, stride, .. } = self.call.dy;
        let panels = self.columns.len().div_ceil(BLOCK);
        let each = CHUNK.div_ceil(panels * BLOCK);
        let first = ((column - self.columns.start) / BLOCK * BLOCK + part) * each;
        for token in first..(first + 2 * each).min(tokens) {
            let at = (chunk * CHUNK + token) * stride + row + BLOCK;
            S::prefetch_far(values.as_ptr().wrapping_add(at).cast());
        }
    }
}
