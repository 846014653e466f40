//! A weight in the two orders that its products read.
//!
//! ```text
//!   transposed   W^T [in, out] in panels of out   forward:         x W^T
//!   straight     W [out, in]   in panels of in    input gradient:  dy W;  also row look-up
//! ```
//!
//! Both are packed once per optimizer step and serve every microbatch. Rejected: one copy
//! for both (one of the products would gather 4 bytes a line).

use crate::product::{DEPTH, Packing, Panels, pack_rows, pack_transposed};
use crate::simd::Level;
use crate::team::Team;
use henge_tensor::{Kind, Pool, Pooled};

/// A prepared weight `[rows, columns]`.
pub struct FastWeight {
    transposed: (Packing, Pooled),
    straight: (Packing, Pooled),
}

impl FastWeight {
    pub(super) fn new(pool: &Pool, level: Level, rows: usize, columns: usize) -> Self {
        let room = |packing: Packing| (packing, pool.take(packing.len() * size_of::<f32>(), Kind::Weight));
        Self {
            transposed: room(Packing::new(level, columns, rows)),
            straight: room(Packing::new(level, rows, columns)),
        }
    }

    /// Outputs of the linear.
    pub fn rows(&self) -> usize {
        self.straight.0.depth
    }

    /// Inputs of the linear.
    pub fn columns(&self) -> usize {
        self.straight.0.columns
    }

    /// Packs `w [rows, columns]`, the first of what it is given.
    pub(super) fn pack(&mut self, team: &Team, w: &[f32]) {
        let w = &w[..self.rows() * self.columns()];
        pack_transposed(team, self.transposed.0, w, self.transposed.1.as_mut_slice());
        pack_rows(team, self.straight.0, w, self.straight.1.as_mut_slice());
    }

    pub(super) fn packed_mut(&mut self) -> [&mut [f32]; 2] {
        [self.transposed.1.as_mut_slice(), self.straight.1.as_mut_slice()]
    }

    pub(super) fn transposed(&self) -> Panels<'_> {
        Panels { packing: self.transposed.0, values: self.transposed.1.as_slice() }
    }

    pub(super) fn straight(&self) -> Panels<'_> {
        Panels { packing: self.straight.0, values: self.straight.1.as_slice() }
    }

    /// Copies one row out of the straight panels.
    pub(super) fn read_row(&self, row: usize, out: &mut [f32]) {
        let Panels { packing, values } = self.straight();
        let (block, width) = (row / DEPTH, packing.len() / packing.depth / packing.panels());
        for (panel, out) in out.chunks_mut(width).enumerate() {
            out.copy_from_slice(&values[packing.at(block, panel) + row % DEPTH * width..][..out.len()]);
        }
    }
}
