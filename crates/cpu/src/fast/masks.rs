//! Dropout factors by vectors.
//!
//! One block of the generator decides eight consecutive columns of one row. Sixteen blocks
//! are drawn side by side:
//!
//! ```text
//!   row      lanes are 16 column blocks of one row          -> 128 factors in a line
//!   block    lanes are 16 rows (queries) of a column block  -> 8 keys x 16 queries, the
//!                                                              order of attention's tiles
//! ```
//!
//! The loops over lanes call the generator's own definition and become vector code.

use crate::simd::kernel;
use henge_random::Dropout;
use henge_tensor::DropoutAt;

/// Columns decided by one block of the generator.
const COLUMNS: usize = 8;
/// Blocks drawn side by side.
const LANES: usize = 16;

/// One sequence's and head's mask.
#[derive(Clone, Copy)]
pub struct Place {
    dropout: Dropout,
    sample: u64,
    layer: u32,
    head: u32,
}

impl Place {
    /// The mask of a sequence of the microbatch and a local head (0 outside attention).
    pub fn new(at: &DropoutAt, sample: usize, head: usize) -> Self {
        let (layer, head) = (at.layer as u32, (at.first_head + head) as u32);
        // Checked here, the generator's own check leaves the loops.
        assert!(layer < 65536 && head < 65536, "layer {layer} and head {head} must lie below 65536");
        Self { dropout: at.dropout, sample: at.samples[sample], layer, head }
    }
}

kernel! {
    /// Factors of columns `0..` of one row.
    pub fn row<S>(place: &Place, row: u32, factors: &mut [f32]) {
        let Place { dropout, sample, layer, head } = *place;
        let scale = dropout.scale();
        for (i, factors) in factors.chunks_mut(LANES * COLUMNS).enumerate() {
            let mut kept = [0u8; LANES];
            for (lane, kept) in kept.iter_mut().enumerate() {
                *kept = dropout.keep_block(sample, layer & 0xffff, head & 0xffff, row, (i * LANES + lane) as u32);
            }
            let mut all = [0.0f32; LANES * COLUMNS];
            for (column, factor) in all.iter_mut().enumerate() {
                *factor = if kept[column / COLUMNS] >> (column % COLUMNS) & 1 == 1 { scale } else { 0.0 };
            }
            factors.copy_from_slice(&all[..factors.len()]);
        }
    }
    /// Factors `[keys, panel]` of a panel of queries and a block of keys, the first of which
    /// is a multiple of 8.
    pub fn block<S>(place: &Place, first_query: u32, first_key: u32, factors: &mut [f32]) {
        debug_assert!(first_key.is_multiple_of(COLUMNS as u32));
        let Place { dropout, sample, layer, head } = *place;
        let (panel, scale) = (2 * S::LANES, dropout.scale());
        for (i, factors) in factors.chunks_mut(COLUMNS * panel).enumerate() {
            let column_block = first_key / COLUMNS as u32 + i as u32;
            for first in (0..panel).step_by(LANES) {
                let mut kept = [0u8; LANES];
                for (lane, kept) in kept.iter_mut().enumerate() {
                    let query = first_query + (first + lane) as u32;
                    *kept = dropout.keep_block(sample, layer & 0xffff, head & 0xffff, query, column_block);
                }
                for (j, keys) in factors.chunks_exact_mut(panel).enumerate() {
                    for (factor, kept) in keys[first..first + LANES].iter_mut().zip(kept) {
                        *factor = if kept >> j & 1 == 1 { scale } else { 0.0 };
                    }
                }
            }
        }
    }
}
