//! Operands in the order in which the tiles read them.
//!
//! ```text
//!   depth blocks of 512          one depth block              one panel
//!   +------------+               +-------+-------+--          k=0: | panel numbers |
//!   | block 0    |   each is:    | panel | panel |            k=1: | panel numbers |
//!   | block 1    |               |   0   |   1   |              ...
//!   | ...        |               +-------+-------+--          up to the block's depth
//! ```
//!
//! Columns past the matrix are zero, so tiles always load whole panels.

use crate::simd::Level;
use crate::team::{Parts, Team};

/// Terms that are summed in registers before they reach memory.
pub const DEPTH: usize = 512;

/// The sizes of a packed operand `[depth, columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    pub depth: usize,
    pub columns: usize,
    panel: usize,
}

impl Packing {
    pub fn new(level: Level, depth: usize, columns: usize) -> Self {
        Self { depth, columns, panel: level.panel() }
    }

    /// Numbers of the whole packed operand.
    pub fn len(&self) -> usize {
        self.depth * self.panels() * self.panel
    }

    pub fn panels(&self) -> usize {
        self.columns.div_ceil(self.panel)
    }

    pub fn blocks(&self) -> usize {
        self.depth.div_ceil(DEPTH)
    }

    /// Depth of a block.
    pub fn depth_of(&self, block: usize) -> usize {
        (self.depth - block * DEPTH).min(DEPTH)
    }

    /// Where a panel of a block starts.
    pub fn at(&self, block: usize, panel: usize) -> usize {
        (block * DEPTH * self.panels() + panel * self.depth_of(block)) * self.panel
    }
}

/// Packs `x [depth, columns]`, row-major.
pub fn pack_rows(team: &Team, packing: Packing, x: &[f32], packed: &mut [f32]) {
    each_panel(team, packing, packed, |block, panel, out| {
        let (from, width) = columns_of(packing, panel);
        for (k, out) in out.chunks_exact_mut(packing.panel).enumerate() {
            out[..width].copy_from_slice(&x[(block * DEPTH + k) * packing.columns + from..][..width]);
            out[width..].fill(0.0);
        }
    });
}

/// Packs the transpose of `w [columns, depth]`, row-major.
pub fn pack_transposed(team: &Team, packing: Packing, w: &[f32], packed: &mut [f32]) {
    /// Steps that are written together, so that their lines stay in the first cache.
    const STEPS: usize = 16;
    each_panel(team, packing, packed, |block, panel, out| {
        let (from, width) = columns_of(packing, panel);
        for (i, out) in out.chunks_mut(STEPS * packing.panel).enumerate() {
            for j in 0..packing.panel {
                if j < width {
                    let row = &w[(from + j) * packing.depth + block * DEPTH + i * STEPS..];
                    out[j..].iter_mut().step_by(packing.panel).zip(row).for_each(|(out, &w)| *out = w);
                } else {
                    out[j..].iter_mut().step_by(packing.panel).for_each(|out| *out = 0.0);
                }
            }
        }
    });
}

/// First column of a panel and how many of its columns exist.
fn columns_of(packing: Packing, panel: usize) -> (usize, usize) {
    let from = panel * packing.panel;
    (from, (packing.columns - from).min(packing.panel))
}

fn each_panel(team: &Team, packing: Packing, packed: &mut [f32], fill: impl Fn(usize, usize, &mut [f32]) + Sync) {
    assert_eq!(packed.len(), packing.len(), "a packed operand");
    let parts = Parts::of(packed);
    team.each(packing.blocks() * packing.panels(), &|_, task| {
        let (block, panel) = (task / packing.panels(), task % packing.panels());
        // SAFETY: panels do not overlap and each is one task.
        let out = unsafe { parts.part(packing.at(block, panel), packing.depth_of(block) * packing.panel) };
        fill(block, panel, out);
    });
}
