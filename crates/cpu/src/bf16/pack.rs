//! Right operands in the order in which tiles read them.
//!
//! ```text
//!   panel of 32 columns              step of 32 terms        tile
//!   +-------+-------+--              +--------+--------+     16 rows: terms 2k and 2k+1
//!   | panel | panel |                | tile 0 | tile 1 |     16 words: one column's pair each
//!   |   0   |   1   |   each is:     +--------+--------+
//!   +-------+-------+--              | next step       |
//! ```
//!
//! Terms and columns past the operand are zero.

use super::{BLOCK, Machine, PAIR};
use crate::simd::kernel;
use crate::team::Parts;

/// The sizes of a packed operand `[depth, columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    pub depth: usize,
    pub columns: usize,
}

impl Packing {
    pub fn steps(self) -> usize {
        self.depth.div_ceil(BLOCK)
    }

    pub fn panels(self) -> usize {
        self.columns.div_ceil(BLOCK)
    }

    /// bf16 numbers of the whole.
    pub fn len(self) -> usize {
        self.panels() * self.steps() * PAIR
    }

    /// Where a step of a panel starts.
    pub fn at(self, panel: usize, step: usize) -> usize {
        (panel * self.steps() + step) * PAIR
    }
}

/// A packed right operand.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    pub packing: Packing,
    pub values: &'a [u16],
}

kernel! {
    /// One step of a panel of `w^T`: `rows` columns of the operand are rows of `w`, each of
    /// `stride` numbers, of which `terms` are read.
    fn transposed_step<S>(w: &[f32], stride: usize, rows: usize, terms: usize, step: &mut [u16]) {
        let mut block = [[0u16; BLOCK]; BLOCK];
        for (row, block) in block.iter_mut().enumerate().take(rows) {
            S::narrow(&w[row * stride..][..terms], block);
        }
        // A word of a tile is a pair of terms of a column: words turn, pairs stay.
        for (tile, rows) in step.chunks_exact_mut(PAIR / 2).zip(block.chunks_exact(BLOCK / 2)) {
            // SAFETY: 16 rows of 16 words in, a tile out.
            unsafe { S::turn_words(rows.as_ptr().cast(), BLOCK / 2, tile.as_mut_ptr().cast()) };
        }
    }
    /// One step of a panel of `w`: rows of `w` are terms, `columns` of them are read.
    fn straight_step<S>(w: &[f32], stride: usize, terms: usize, columns: usize, step: &mut [u16]) {
        for pair in 0..BLOCK / 2 {
            let mut rows = [[0u16; BLOCK]; 2];
            for (i, row) in rows.iter_mut().enumerate() {
                if 2 * pair + i < terms {
                    S::narrow(&w[(2 * pair + i) * stride..][..columns], row);
                }
            }
            // SAFETY: two rows of 32 numbers in; a row of each tile out.
            unsafe { S::pair_rows(rows[0].as_ptr(), rows[1].as_ptr(), step[pair * BLOCK..].as_mut_ptr(), PAIR / 2) };
        }
    }
}

/// Packs `w^T` of `w [columns, depth]`, row-major.
pub fn pack_transposed(machine: Machine, packing: Packing, w: &[f32], packed: &mut [u16]) {
    let Packing { depth, columns } = packing;
    each_step(machine, packing, packed, |panel, step, out| {
        let (column, term) = (panel * BLOCK, step * BLOCK);
        let sizes = ((columns - column).min(BLOCK), (depth - term).min(BLOCK));
        transposed_step(machine.level, &w[column * depth + term..], depth, sizes.0, sizes.1, out);
    });
}

/// Packs `w [depth, columns]`, row-major.
pub fn pack_straight(machine: Machine, packing: Packing, w: &[f32], packed: &mut [u16]) {
    let Packing { depth, columns } = packing;
    each_step(machine, packing, packed, |panel, step, out| {
        let (column, term) = (panel * BLOCK, step * BLOCK);
        let sizes = ((depth - term).min(BLOCK), (columns - column).min(BLOCK));
        straight_step(machine.level, &w[term * columns + column..], columns, sizes.0, sizes.1, out);
    });
}

fn each_step(machine: Machine, packing: Packing, packed: &mut [u16], fill: impl Fn(usize, usize, &mut [u16]) + Sync) {
    /// Steps of a task.
    const TOGETHER: usize = 16;
    assert_eq!(packed.len(), packing.len(), "a packed operand");
    let (parts, groups) = (Parts::of(packed), packing.steps().div_ceil(TOGETHER));
    // Panels run fastest: they share the lines of the source's rows.
    machine.team.each(groups * packing.panels(), &|_, task| {
        let (group, panel) = (task / packing.panels(), task % packing.panels());
        for step in group * TOGETHER..((group + 1) * TOGETHER).min(packing.steps()) {
            // SAFETY: steps do not overlap and each belongs to one task.
            fill(panel, step, unsafe { parts.part(packing.at(panel, step), PAIR) });
        }
    });
}
