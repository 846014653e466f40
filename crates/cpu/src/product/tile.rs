//! The register block of every product.
//!
//! ```text
//!                        b: depth x panel, a panel of 2 vectors' width
//!                        +--------+--------+
//!                      k | vector | vector |   two loads a step
//!                        +--------+--------+
//!   a: rows x depth          |        |
//!   +---------+          +--------+--------+
//!   | a[r][k] | splat -> |  sum   |  sum   | r   rows x 2 sums stay in registers
//!   +---------+          +--------+--------+     while k runs over the depth
//! ```
//!
//! Each element of `c` is one chain of multiply-adds in the order of `k`, whatever the
//! rows of its block: where a product is cut into blocks shows in no bit.
//!
//! With 14 x 2 sums a step of AVX-512 is 28 multiply-adds (14 cycles on two ports) for
//! 16 loads, so that both operands may stream from the second cache.

use crate::simd::{Level, Simd, kernel};

/// Steps of the panel that are fetched ahead.
const AHEAD: usize = 12;

/// Numbers between rows of a copied sliver: the largest depth of a block and a line more,
/// so that rows do not fall on one set of the cache.
pub const SLIVER_STRIDE: usize = super::DEPTH + 16;

/// What happens to the old value of `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old {
    /// It is overwritten.
    Replaced,
    /// It is added to.
    Kept,
}

/// One block of a product: `c[r][j] (+)= sum_k a(r, k) b[k][j]`.
///
/// Whoever fills it in promises that the pointers address what the sizes say.
#[derive(Clone, Copy)]
pub struct Tile {
    /// Rows of `c`, at most [`Level::tile_rows`].
    pub rows: usize,
    /// Columns of `c`, at most [`Level::panel`].
    pub columns: usize,
    /// Terms of each sum.
    pub depth: usize,
    pub a: *const f32,
    /// Numbers between `a(r, k)` and `a(r, k + 1)`.
    pub a_step: usize,
    /// Numbers between `a(r, k)` and `a(r + 1, k)`; read by [`tile_by_rows`] alone.
    pub a_stride: usize,
    /// `depth` rows of a full panel.
    pub b: *const f32,
    pub c: *mut f32,
    /// Numbers between rows of `c`.
    pub c_stride: usize,
    pub old: Old,
}

impl Level {
    /// Rows of a register block.
    pub const fn tile_rows(self) -> usize {
        match self {
            Level::Avx512 => 14,
            Level::Avx2 | Level::Portable => 6,
        }
    }

    /// Columns of a register block, and of a packed panel.
    pub const fn panel(self) -> usize {
        match self {
            Level::Avx512 => 32,
            Level::Avx2 | Level::Portable => 16,
        }
    }
}

kernel! {
    /// The rows of `a` are next to each other: `a(r, k) = a[k * a_step + r]`.
    pub fn tile_by_columns<S>(tile: &Tile) {
        dispatch::<S, 1>(tile)
    }
    /// `a` is a copied sliver: `a(r, k) = a[k * a_step + r * SLIVER_STRIDE]`.
    pub fn tile_of_sliver<S>(tile: &Tile) {
        dispatch::<S, SLIVER_STRIDE>(tile)
    }
    /// The rows of `a` are `a_stride` apart: `a(r, k) = a[k * a_step + r * a_stride]`.
    pub fn tile_by_rows<S>(tile: &Tile) {
        dispatch::<S, 0>(tile)
    }
}

#[inline(always)]
fn dispatch<S: Simd, const STRIDE: usize>(tile: &Tile) {
    debug_assert!(tile.rows <= S::ROWS && tile.columns <= 2 * S::LANES);
    macro_rules! by_rows {
        ($($rows:literal)*) => {
            match tile.rows {
                // SAFETY: the pointers are good for the tile's sizes, by its promise.
                $($rows if $rows <= S::ROWS => unsafe { run::<S, $rows, STRIDE>(tile) },)*
                _ => {}
            }
        };
    }
    by_rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14);
}

#[inline(always)]
unsafe fn run<S: Simd, const ROWS: usize, const STRIDE: usize>(tile: &Tile) {
    let mut sums = [[S::splat(0.0); 2]; ROWS];
    if tile.old == Old::Kept {
        for r in 0..ROWS {
            S::prefetch(tile.c.wrapping_add(r * tile.c_stride));
            S::prefetch(tile.c.wrapping_add(r * tile.c_stride + S::LANES));
        }
    }
    let (mut a, mut b) = (tile.a, tile.b);
    let stride = if STRIDE == 0 { tile.a_stride } else { STRIDE };
    // SAFETY: `a` and `b` advance by one step of `depth` at a time; prefetches past the
    // end are harmless (`wrapping_add` forms the address).
    unsafe {
        for _ in 0..tile.depth {
            let b0 = S::load(b);
            let b1 = S::load(b.add(S::LANES));
            S::prefetch(b.wrapping_add(AHEAD * 2 * S::LANES));
            if S::LANES == 16 {
                S::prefetch(b.wrapping_add(AHEAD * 2 * S::LANES + S::LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let ar = S::splat(*a.add(r * stride));
                sums[0] = S::fma(ar, b0, sums[0]);
                sums[1] = S::fma(ar, b1, sums[1]);
            }
            a = a.wrapping_add(tile.a_step);
            b = b.wrapping_add(2 * S::LANES);
        }
        write::<S, ROWS>(tile, &sums);
    }
}

/// The branches stand outside the loops, so that these unroll and the sums stay in
/// registers.
#[inline(always)]
unsafe fn write<S: Simd, const ROWS: usize>(tile: &Tile, sums: &[[S::V; 2]; ROWS]) {
    let full = tile.columns == 2 * S::LANES;
    let row = |r: usize| tile.c.wrapping_add(r * tile.c_stride);
    // SAFETY: rows `0..rows` of `c`, `columns` numbers each.
    unsafe {
        if full && tile.old == Old::Kept {
            for (r, sums) in sums.iter().enumerate() {
                let c = row(r);
                S::store(c, S::add(S::load(c), sums[0]));
                S::store(c.add(S::LANES), S::add(S::load(c.add(S::LANES)), sums[1]));
            }
        } else if full {
            for (r, sums) in sums.iter().enumerate() {
                S::store(row(r), sums[0]);
                S::store(row(r).add(S::LANES), sums[1]);
            }
        } else {
            let (first, second) = (tile.columns.min(S::LANES), tile.columns.saturating_sub(S::LANES));
            for (r, sums) in sums.iter().enumerate() {
                write_part::<S>(tile.old, row(r), first, sums[0]);
                write_part::<S>(tile.old, row(r).wrapping_add(S::LANES), second, sums[1]);
            }
        }
    }
}

#[inline(always)]
unsafe fn write_part<S: Simd>(old: Old, c: *mut f32, n: usize, sum: S::V) {
    // SAFETY: the caller's, for the first `n` numbers.
    unsafe {
        let sum = if old == Old::Kept { S::add(S::load_part(c, n), sum) } else { sum };
        S::store_part(c, n, sum);
    }
}
