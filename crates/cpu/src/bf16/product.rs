//! `y = a b` with `a [rows, depth]` as it stands and `b` packed: forward and input gradient.
//!
//! ```text
//!   task: 256 rows x 512 columns     tasks that follow each other share the columns of b
//!
//!   depth up to 768                  deeper: blocks of 512 terms
//!   sums -> epilogue -> y            sums + partial (float32, second cache) -> partial ... -> y
//! ```
//!
//! The epilogue of a block of 32 x 32 sums runs between the tile instructions of the next,
//! some rows a step: vectors and tiles are different units.

use super::{BLOCK, Bf16, COLUMNS, DEPTH, Machine, PAIR, Packed, WHOLE};
use crate::math;
use crate::simd::{Simd, kernel};
use crate::team::Parts;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::tile::Hardware;
use crate::tile::{Software, Tiles, Unit};
use henge_tensor::NonLinearity;
use std::ops::Range;

/// Most rows of a task.
const ROWS: usize = 256;
/// bf16 numbers of a copied block of `a`: a line more than its depth a row.
const COPY_STRIDE: usize = DEPTH + BLOCK;

/// What becomes of the sums.
pub enum Output<'a> {
    /// `y = sums + bias`, rounded to bf16.
    Narrow { y: Parts<'a, u16>, stride: usize, bias: Option<&'a [f32]> },
    /// `pre = sums + bias` and `y = f(pre)`, both rounded to bf16.
    Activated { pre: Parts<'a, u16>, y: Parts<'a, u16>, stride: usize, bias: Option<&'a [f32]>, f: NonLinearity },
    /// `y = sums + bias` in float32, rows of `stride`.
    Wide { y: Parts<'a, f32>, stride: usize, bias: Option<&'a [f32]> },
}

/// Called with the rows and columns of a finished part.
pub type Finish<'a> = dyn Fn(Range<usize>, Range<usize>) + Sync + 'a;

struct Call<'a> {
    a: Bf16<'a>,
    b: Packed<'a>,
    output: &'a Output<'a>,
}

/// Float32 numbers of scratch that [`product`] needs for each thread.
pub fn product_scratch(depth: usize) -> usize {
    if depth <= WHOLE { 0 } else { ROWS * COLUMNS + BLOCK * COPY_STRIDE / 2 }
}

/// The product; `scratch` holds [`product_scratch`] numbers for each thread. `finish` is
/// called with the rows and columns of each finished part, which a cache still holds; columns
/// start at multiples of [`COLUMNS`].
pub fn product(machine: Machine, a: Bf16, b: Packed, output: &Output, scratch: &mut [f32], finish: &Finish) {
    let (rows, columns, threads) = (a.rows, b.packing.columns, machine.team.threads());
    assert_eq!(a.columns, b.packing.depth, "terms of a product");
    assert!(b.values.len() >= b.packing.len(), "a packed operand");
    let column_blocks = columns.div_ceil(COLUMNS);
    // Some tasks for each thread, where there are rows enough.
    let fine = rows * column_blocks / (4 * threads);
    let height = fine.clamp(BLOCK, ROWS).next_multiple_of(BLOCK);
    let (row_blocks, size) = (rows.div_ceil(height), product_scratch(a.columns));
    let (call, scratch) = (Call { a, b, output }, Parts::of(scratch));
    machine.team.each(row_blocks * column_blocks, &|worker, task| {
        let (row, column) = (task % row_blocks * height, task / row_blocks * COLUMNS);
        let (rows, columns) = (row..(row + height).min(rows), column..(column + COLUMNS).min(columns));
        // SAFETY: each worker has its own scratch.
        let scratch = unsafe { scratch.part(worker * size, size) };
        run(machine.level, machine.tiles, &call, rows.clone(), columns.clone(), scratch);
        finish(rows, columns);
    });
}

kernel! {
    fn run<S>(tiles: Tiles, call: &Call, rows: Range<usize>, columns: Range<usize>, scratch: &mut [f32]) {
        match tiles {
            // SAFETY: named by detection only; a task runs on one thread.
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Tiles::Hardware => Task::new(call, rows, columns, scratch).run::<S>(&mut unsafe { Hardware::configured() }),
            _ => Task::new(call, rows, columns, scratch).run::<S>(&mut Software::default()),
        }
    }
}

/// A block of sums.
#[repr(C, align(64))]
pub(super) struct Sums(pub [f32; BLOCK * BLOCK]);

/// Where a block of sums belongs.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    column: usize,
    block: usize,
}

struct Task<'a> {
    call: &'a Call<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
    blocks: usize,
    partial: &'a mut [f32],
    copy: &'a mut [f32],
}

impl<'a> Task<'a> {
    #[inline(always)]
    fn new(call: &'a Call<'a>, rows: Range<usize>, columns: Range<usize>, scratch: &'a mut [f32]) -> Self {
        let depth = call.a.columns;
        let blocks = if depth <= WHOLE { 1 } else { depth.div_ceil(DEPTH) };
        let (partial, copy) = scratch.split_at_mut(if blocks > 1 { ROWS * COLUMNS } else { 0 });
        Self { call, rows, columns, blocks, partial, copy }
    }

    #[inline(always)]
    fn run<S: Simd>(mut self, unit: &mut impl Unit) {
        let mut sums = [Sums([0.0; BLOCK * BLOCK]), Sums([0.0; BLOCK * BLOCK])];
        let (mut flip, mut last) = (0, None);
        for block in 0..self.blocks {
            let steps = self.steps(block);
            for row in self.rows.clone().step_by(BLOCK) {
                let (a, stride) = self.left::<S>(block, row, steps.len());
                for column in self.columns.clone().step_by(BLOCK) {
                    let panel = self.call.b.packing.at(column / BLOCK, steps.start);
                    let b = self.call.b.values[panel..][..steps.len() * PAIR].as_ptr();
                    let [first, second] = &mut sums;
                    let (own, other) = if flip == 0 { (first, second) } else { (second, first) };
                    let each = BLOCK.div_ceil(steps.len().max(1));
                    self.prefetch::<S>(block, row + BLOCK, (column - self.columns.start) / BLOCK, steps.len());
                    zero(unit);
                    for step in 0..steps.len() {
                        // SAFETY: inside the operand's rows and the panel, by the sizes above.
                        unsafe { multiply(unit, a.wrapping_add(step * BLOCK), stride, b.add(step * PAIR)) };
                        if let Some(place) = last {
                            let done = step * each;
                            self.finish::<S>(place, other, done.min(BLOCK)..(done + each).min(BLOCK));
                        }
                    }
                    if let (Some(place), true) = (last, steps.is_empty()) {
                        self.finish::<S>(place, other, 0..BLOCK);
                    }
                    // SAFETY: a block of sums.
                    unsafe { store(unit, own.0.as_mut_ptr()) };
                    last = Some(Place { row, column, block });
                    flip ^= 1;
                }
            }
        }
        if let Some(place) = last {
            self.finish::<S>(place, &sums[flip ^ 1], 0..BLOCK);
        }
    }

    /// Steps of a block of terms.
    fn steps(&self, block: usize) -> Range<usize> {
        let steps = self.call.b.packing.steps();
        if self.blocks == 1 { 0..steps } else { block * (DEPTH / BLOCK)..((block + 1) * (DEPTH / BLOCK)).min(steps) }
    }

    /// Rows of `a` of one block of terms, and the bytes between them. Where sums are cut they
    /// are copied together: rows far apart crowd in few sets of the first cache.
    #[inline(always)]
    fn left<S: Simd>(&mut self, block: usize, row: usize, steps: usize) -> (*const u16, usize) {
        let Bf16 { values, stride, .. } = self.call.a;
        let from = row * stride + block * DEPTH;
        if self.blocks == 1 {
            return (values[from..].as_ptr(), 2 * stride);
        }
        for r in 0..BLOCK {
            let to = &mut self.copy[r * COPY_STRIDE / 2..][..steps * BLOCK / 2];
            let row = &values[from + r * stride..][..steps * BLOCK];
            // SAFETY: as many bytes on both sides.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr().cast(), to.as_mut_ptr(), to.len()) };
        }
        (self.copy.as_ptr().cast(), 2 * COPY_STRIDE)
    }

    /// Brings a share of the next rows of `a` to the second cache.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, block: usize, row: usize, panel: usize, steps: usize) {
        let (a, panels) = (self.call.a, self.columns.len().div_ceil(BLOCK));
        let each = BLOCK.div_ceil(panels);
        let rows = (row + panel * each).min(self.rows.end)..(row + (panel + 1) * each).min(self.rows.end);
        for row in rows.start..rows.end.min(row + BLOCK) {
            for step in 0..steps {
                let at = row * a.stride + block * DEPTH + step * BLOCK;
                S::prefetch_far(a.values.as_ptr().wrapping_add(at).cast());
            }
        }
    }

    /// Takes some rows of a block of sums to where they belong.
    #[inline(always)]
    fn finish<S: Simd>(&mut self, Place { row, column, block }: Place, sums: &Sums, rows: Range<usize>) {
        let columns = (self.columns.end - column).min(BLOCK);
        let height = (self.rows.end - row).min(BLOCK);
        for r in rows.start..rows.end.min(height) {
            let sums = &sums.0[r * BLOCK..][..BLOCK];
            let at = (row - self.rows.start + r) * COLUMNS + column - self.columns.start;
            for j in (0..columns).step_by(S::LANES) {
                // SAFETY: whole vectors of a row of 32 sums; a partial row holds 512.
                unsafe {
                    let mut v = S::load(sums.as_ptr().add(j));
                    if self.blocks > 1 {
                        let partial = self.partial[at + j..][..S::LANES].as_mut_ptr();
                        if block > 0 {
                            v = S::add(S::load(partial), v);
                        }
                        if block + 1 < self.blocks {
                            S::store(partial, v);
                            continue;
                        }
                    }
                    self.call.output.put::<S>(row + r, column + j, (columns - j).min(S::LANES), v);
                }
            }
        }
    }
}

impl Output<'_> {
    /// `n` finished sums of a row.
    ///
    /// # Safety
    /// Each element of the output is put once, and lies inside.
    #[inline(always)]
    unsafe fn put<S: Simd>(&self, row: usize, column: usize, n: usize, sums: S::V) {
        // SAFETY: a bias is as long as the columns; the rest is the caller's.
        unsafe {
            let biased = |bias: &Option<&[f32]>| match bias {
                Some(bias) => S::add(sums, S::load_part(bias[column..][..n].as_ptr(), n)),
                None => sums,
            };
            match self {
                Output::Narrow { y, stride, bias } => {
                    S::store_narrow(y.pointer(row * stride + column), n, biased(bias));
                }
                Output::Activated { pre, y, stride, bias, f } => {
                    let at = row * stride + column;
                    let v = biased(bias);
                    S::store_narrow(pre.pointer(at), n, v);
                    // Backward reads the rounded value, so forward does.
                    let v = S::widened(v);
                    S::store_narrow(y.pointer(at), n, activated::<S>(*f, v));
                }
                Output::Wide { y, stride, bias } => S::store_part(y.pointer(row * stride + column), n, biased(bias)),
            }
        }
    }
}

#[inline(always)]
fn activated<S: Simd>(f: NonLinearity, x: S::V) -> S::V {
    match f {
        NonLinearity::GeluTanh => math::gelu_tanh::<S>(x),
        NonLinearity::Gelu => math::gelu::<S>(x),
        NonLinearity::Tanh => math::tanh::<S>(x),
        NonLinearity::SwiGlu => unreachable!("a gated input is twice as wide as its output"),
    }
}

/// Four tiles of sums at zero.
#[inline(always)]
pub(super) fn zero(unit: &mut impl Unit) {
    unit.zero::<0>();
    unit.zero::<1>();
    unit.zero::<2>();
    unit.zero::<3>();
}

/// 32 rows of `a` (bytes apart) times two tiles of `b`, 32 terms.
///
/// # Safety
/// The pointers address that much.
#[inline(always)]
pub(super) unsafe fn multiply(unit: &mut impl Unit, a: *const u16, stride: usize, b: *const u16) {
    // SAFETY: the caller's.
    unsafe {
        unit.stream::<6>(b, 64);
        unit.load::<4>(a, stride);
        unit.multiply::<0, 4, 6>();
        unit.stream::<7>(b.add(PAIR / 2), 64);
        unit.multiply::<1, 4, 7>();
        unit.load::<5>(a.cast::<u8>().wrapping_add(16 * stride).cast(), stride);
        unit.multiply::<2, 5, 6>();
        unit.multiply::<3, 5, 7>();
    }
}

/// Stores four tiles of sums as a block.
///
/// # Safety
/// `to` addresses a block.
#[inline(always)]
pub(super) unsafe fn store(unit: &mut impl Unit, to: *mut f32) {
    // SAFETY: the caller's.
    unsafe {
        unit.store::<0>(to, 128);
        unit.store::<1>(to.add(16), 128);
        unit.store::<2>(to.add(16 * BLOCK), 128);
        unit.store::<3>(to.add(16 * BLOCK + 16), 128);
    }
}
