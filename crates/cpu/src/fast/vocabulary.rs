//! The loss over a shard of the vocabulary (see `plain::vocabulary` for the formulas).
//!
//! ```text
//!   logits of a token: | 512 | 512 | ... |   each piece, as soon as the product leaves it:
//!                        maximum, and the exponentials below it in float32 lanes;
//!                        pieces are joined in their order, in double precision
//! ```

use super::rows::{self, RowsMut};
use crate::math;
use crate::plain::vocabulary::local;
use crate::product::COLUMNS;
use crate::simd::{Level, get, kernel, put};
use crate::team::{Parts, Team};
use henge_tensor::VocabularyShard;

kernel! {
    fn largest<S>(x: &[f32]) -> f32 {
        let whole = x.len() / S::LANES * S::LANES;
        let mut most = S::splat(f32::NEG_INFINITY);
        for i in (0..whole).step_by(S::LANES) {
            most = S::max(most, get::<S>(x, i));
        }
        x[whole..].iter().fold(S::largest(most), |most, &x| if x > most || x.is_nan() { x } else { most })
    }
    fn sum_of_exponentials<S>(x: &[f32], max: f32) -> f32 {
        let whole = x.len() / S::LANES * S::LANES;
        let mut sum = S::splat(0.0);
        for i in (0..whole).step_by(S::LANES) {
            sum = S::add(sum, math::exp::<S>(S::sub(get::<S>(x, i), S::splat(max))));
        }
        S::sum(sum) + x[whole..].iter().map(|x| (x - max).exp()).sum::<f32>()
    }
    /// `x = factor exp(x - max)`.
    fn scaled_softmax<S>(x: &mut [f32], max: f32, factor: f32) {
        for i in (0..x.len()).step_by(S::LANES) {
            let e = math::exp::<S>(S::sub(get::<S>(x, i), S::splat(max)));
            put::<S>(x, i, S::mul(e, S::splat(factor)));
        }
    }
}

/// Statistics of pieces of rows, taken while a piece is in the first cache.
pub struct PieceStats<'a> {
    level: Level,
    pieces: usize,
    /// Maximum and sum of exponentials below it, `[tokens, pieces, 2]`.
    numbers: Parts<'a, f32>,
}

impl<'a> PieceStats<'a> {
    /// Numbers that [`PieceStats::new`] needs room for.
    pub fn room(tokens: usize, columns: usize) -> usize {
        2 * tokens * columns.div_ceil(COLUMNS)
    }

    pub fn new(level: Level, columns: usize, room: &'a mut [f32]) -> Self {
        Self { level, pieces: columns.div_ceil(COLUMNS), numbers: Parts::of(room) }
    }

    /// Takes in a finished piece, which starts at a multiple of the products' column block.
    pub fn finish(&self, row: usize, first_column: usize, logits: &[f32]) {
        let max = largest(self.level, logits);
        let at = 2 * (row * self.pieces + first_column / COLUMNS);
        // SAFETY: each piece of a row is finished once.
        let numbers = unsafe { self.numbers.part(at, 2) };
        numbers.copy_from_slice(&[max, sum_of_exponentials(self.level, logits, max)]);
    }
}

/// Maximum, sum of exponentials and target logit of each token, from its pieces in order.
pub fn statistics(
    pieces: &[f32],
    logits: &[f32],
    columns: usize,
    shard: &VocabularyShard,
    (max, sum, target): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let of_token = 2 * columns.div_ceil(COLUMNS);
    for (row, &at) in shard.targets.iter().enumerate() {
        let pieces = &pieces[row * of_token..][..of_token];
        let most = pieces.iter().step_by(2).copied().fold(f32::NEG_INFINITY, f32::max);
        let shifted = |piece: &[f32]| f64::from(piece[1]) * f64::from(piece[0] - most).exp();
        max[row] = most;
        sum[row] = pieces.chunks_exact(2).map(shifted).sum::<f64>() as f32;
        target[row] = local(shard.first_row, columns, at).map_or(0.0, |at| logits[row * columns + at]);
    }
}

/// Logits to their gradients, which take their place where none are given apart; `finish`
/// runs on each token's.
pub fn gradient(
    (level, team): (Level, &Team),
    logits: Option<&[f32]>,
    gradient: &RowsMut,
    shard: &VocabularyShard,
    (max, sum, scale): (&[f32], &[f32], f64),
    finish: impl Fn(&mut [f32]) + Sync,
) {
    let columns = gradient.columns();
    rows::each(team, shard.targets.len(), |row, [buffer]| {
        let in_place = |logits: &mut [f32]| {
            if shard.targets[row] < 0 {
                return logits.fill(0.0);
            }
            let hit = local(shard.first_row, columns, shard.targets[row]);
            let at_target = hit.map(|at| f64::from(logits[at] - max[row]).exp());
            scaled_softmax(level, logits, max[row], (scale / f64::from(sum[row])) as f32);
            if let (Some(at), Some(e)) = (hit, at_target) {
                logits[at] = (scale * (e / f64::from(sum[row]) - 1.0)) as f32;
            }
            finish(logits);
        };
        let apart = |from: &[f32], to: &mut [f32]| {
            to.copy_from_slice(&from[row * columns..][..columns]);
            in_place(to);
        };
        // SAFETY: each row is one task's.
        unsafe {
            match logits {
                Some(logits) => gradient.write(level, row, buffer, |to| apart(logits, to)),
                None => gradient.change(level, row, buffer, in_place),
            }
        }
    });
}
