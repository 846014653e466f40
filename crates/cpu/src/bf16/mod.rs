//! Products of bfloat16 tiles with float32 sums.
//!
//! ```text
//!                    panel 0   panel 1  ...  16 panels of 32 columns: half of the second cache
//!                   +---------+---------+--
//!                   | B tiles | B tiles |     streamed past the first cache
//!                   +---------+---------+--
//!   +-----------+   +---------+---------+
//!   | 32 rows   | x | 2 x 2 C |  next   |     A stays in the first cache; while the next
//!   | of A      |   | tiles   |         |     C sums, this one is converted and stored
//!   +-----------+   +---------+---------+
//!   | next rows | brought to the second cache meanwhile
//! ```
//!
//! - [`Bf16`]: a matrix whose rows are tile rows as they stand, read without packing.
//! - [`pack`]: right operands in tile order, weights once per optimizer step.
//! - [`product`]: forward and input gradient; [`gradient`]: weight gradient.
//!
//! Sums longer than [`DEPTH`] run in blocks, added in order in float32, so results depend
//! neither on tasks nor on threads.

mod gradient;
mod pack;
mod product;
#[cfg(test)]
mod tests;

pub use gradient::{Gradient, gradient_scratch, weight_gradient};
pub use pack::{Packed, Packing, pack_straight, pack_transposed};
pub use product::{Finish, Output, product, product_scratch};

use crate::simd::Level;
use crate::team::Team;
use crate::tile::Tiles;

/// Rows and columns of a block of sums.
pub const BLOCK: usize = 32;
/// Terms summed in tiles before they reach memory.
pub const DEPTH: usize = 512;
/// The longest sum that is not cut.
const WHOLE: usize = 768;
/// Columns of a task.
pub const COLUMNS: usize = 512;
/// bf16 numbers of two tiles side by side.
const PAIR: usize = 2 * crate::tile::NUMBERS;

/// What computes.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    pub level: Level,
    pub tiles: Tiles,
    pub team: &'a Team,
}

/// Numbers between the rows of a matrix of so many columns: whole tile rows, and off the
/// multiples of 4096 bytes, which would fall on one set of a cache.
pub fn stride_of(columns: usize) -> usize {
    let stride = columns.next_multiple_of(BLOCK);
    if stride > 0 && stride.is_multiple_of(2048) { stride + BLOCK } else { stride }
}

/// bf16 numbers of a matrix: rows are whole blocks, those past the matrix undefined.
pub fn len_of(rows: usize, columns: usize) -> usize {
    rows.next_multiple_of(BLOCK) * stride_of(columns)
}

/// A matrix `[rows, columns]` of bf16: `stride` numbers a row, zero past the columns, and
/// whole blocks of rows.
#[derive(Clone, Copy)]
pub struct Bf16<'a> {
    pub values: &'a [u16],
    pub rows: usize,
    pub columns: usize,
    pub stride: usize,
}

impl<'a> Bf16<'a> {
    pub fn new(values: &'a [u16], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(stride >= columns.next_multiple_of(BLOCK) && values.len() >= rows.next_multiple_of(BLOCK) * stride);
        Self { values, rows, columns, stride }
    }

    /// Some whole rows, from a multiple of a block on.
    pub fn rows(self, range: std::ops::Range<usize>) -> Self {
        assert!(range.start.is_multiple_of(BLOCK), "rows from {}", range.start);
        Self::new(&self.values[range.start * self.stride..], range.len(), self.columns, self.stride)
    }
}
