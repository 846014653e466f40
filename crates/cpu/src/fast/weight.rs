//! A weight in the two orders that its products read.
//!
//! ```text
//!   transposed   W^T [in, out] in panels of out   forward:         x W^T
//!   straight     W [out, in]   in panels of in    input gradient:  dy W;  also row look-up
//! ```
//!
//! As bf16 tiles where the products are the tile unit's, else as float32 panels. Both orders
//! are packed once per optimizer step and serve every microbatch. Rejected: one copy
//! for both (one of the products would gather 4 bytes a line).

use crate::bf16::{self, Machine, Packed};
use crate::product::{DEPTH, Packing, Panels, pack_rows, pack_transposed};
use crate::simd::Level;
use crate::team::Team;
use henge_tensor::{Kind, Pool, Pooled};

/// A prepared weight `[rows, columns]`.
pub enum FastWeight {
    /// Float32 panels.
    Panels(PanelWeight),
    /// bf16 tiles.
    Tiles(TileWeight),
}

impl FastWeight {
    /// Outputs of the linear.
    pub fn rows(&self) -> usize {
        match self {
            Self::Panels(weight) => weight.rows(),
            Self::Tiles(weight) => weight.transposed.0.columns,
        }
    }

    /// Inputs of the linear.
    pub fn columns(&self) -> usize {
        match self {
            Self::Panels(weight) => weight.columns(),
            Self::Tiles(weight) => weight.transposed.0.depth,
        }
    }

    /// Copies one row.
    pub(super) fn read_row(&self, row: usize, out: &mut [f32]) {
        match self {
            Self::Panels(weight) => weight.read_row(row, out),
            Self::Tiles(weight) => weight.read_row(row, out),
        }
    }
}

/// A weight as bf16 tiles.
pub struct TileWeight {
    transposed: (bf16::Packing, Pooled),
    straight: (bf16::Packing, Pooled),
}

impl TileWeight {
    pub(super) fn new(pool: &Pool, rows: usize, columns: usize) -> Self {
        let room = |packing: bf16::Packing| (packing, pool.take(packing.len() * size_of::<u16>(), Kind::Weight));
        Self {
            transposed: room(bf16::Packing { depth: columns, columns: rows }),
            straight: room(bf16::Packing { depth: rows, columns }),
        }
    }

    /// Packs `w [rows, columns]`, the first of what it is given.
    pub(super) fn pack(&mut self, machine: Machine, w: &[f32]) {
        let bf16::Packing { depth, columns } = self.straight.0;
        let w = &w[..depth * columns];
        bf16::pack_transposed(machine, self.transposed.0, w, self.transposed.1.as_mut_slice());
        bf16::pack_straight(machine, self.straight.0, w, self.straight.1.as_mut_slice());
    }

    pub(super) fn transposed(&self) -> Packed<'_> {
        Packed { packing: self.transposed.0, values: self.transposed.1.as_slice() }
    }

    pub(super) fn straight(&self) -> Packed<'_> {
        Packed { packing: self.straight.0, values: self.straight.1.as_slice() }
    }

    /// Copies one row out of the straight tiles: every other number of theirs.
    fn read_row(&self, row: usize, out: &mut [f32]) {
        let Packed { packing, values } = self.straight();
        for (tile, out) in out.chunks_mut(16).enumerate() {
            let at = packing.at(tile / 2, row / 32) + tile % 2 * 512 + row % 32 / 2 * 32;
            for (out, pair) in out.iter_mut().zip(values[at..][..32].as_chunks().0) {
                let &[even, odd] = pair;
                *out = f32::from_bits(u32::from(if row.is_multiple_of(2) { even } else { odd }) << 16);
            }
        }
    }
}

/// A weight as float32 panels.
pub struct PanelWeight {
    transposed: (Packing, Pooled),
    straight: (Packing, Pooled),
}

impl PanelWeight {
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
