//! The loss over a shard of the vocabulary (see `plain::vocabulary` for the formulas).
//!
//! ```text
//!   logits of a token: | 2048 | 2048 | ... |   maximum first, then the exponentials of
//!                                              each piece in float32 lanes, the pieces
//!                                              in double precision
//! ```

use super::elementwise::each_row;
use crate::math;
use crate::plain::vocabulary::local;
use crate::simd::{Level, get, kernel, put};
use crate::team::{Parts, Team};
use henge_tensor::VocabularyShard;

/// Terms of a sum in lanes.
const PIECE: usize = 2048;

kernel! {
    fn largest<S>(x: &[f32]) -> f32 {
        let whole = x.len() / S::LANES * S::LANES;
        let mut most = S::splat(f32::NEG_INFINITY);
        for i in (0..whole).step_by(S::LANES) {
            most = S::max(most, get::<S>(x, i));
        }
        x[whole..].iter().fold(S::largest(most), |most, &x| if x > most || x.is_nan() { x } else { most })
    }
    fn sum_of_exponentials<S>(x: &[f32], max: f32) -> f64 {
        let mut total = 0.0;
        for piece in x.chunks(PIECE) {
            let whole = piece.len() / S::LANES * S::LANES;
            let mut sum = S::splat(0.0);
            for i in (0..whole).step_by(S::LANES) {
                sum = S::add(sum, math::exp::<S>(S::sub(get::<S>(piece, i), S::splat(max))));
            }
            let rest: f32 = piece[whole..].iter().map(|x| (x - max).exp()).sum();
            total += f64::from(S::sum(sum) + rest);
        }
        total
    }
    /// `x = factor exp(x - max)`.
    fn scaled_softmax<S>(x: &mut [f32], max: f32, factor: f32) {
        for i in (0..x.len()).step_by(S::LANES) {
            let e = math::exp::<S>(S::sub(get::<S>(x, i), S::splat(max)));
            put::<S>(x, i, S::mul(e, S::splat(factor)));
        }
    }
}

/// Maximum, sum of exponentials and target logit of each token.
pub fn statistics(
    (level, team): (Level, &Team),
    logits: &[f32],
    columns: usize,
    shard: &VocabularyShard,
    (max, sum, target): (&mut [f32], &mut [f32], &mut [f32]),
) {
    let (max, sum, target) = (Parts::of(max), Parts::of(sum), Parts::of(target));
    team.each(shard.targets.len(), &|_, row| {
        let logits = &logits[row * columns..][..columns];
        let most = largest(level, logits);
        let hit = local(shard.first_row, columns, shard.targets[row]);
        // SAFETY: each token has its own three numbers.
        unsafe {
            max.part(row, 1)[0] = most;
            sum.part(row, 1)[0] = sum_of_exponentials(level, logits, most) as f32;
            target.part(row, 1)[0] = hit.map_or(0.0, |at| logits[at]);
        }
    });
}

/// Logits to their gradients, in place; `finish` runs on each token's.
pub fn gradient(
    (level, team): (Level, &Team),
    logits: &mut [f32],
    columns: usize,
    shard: &VocabularyShard,
    (max, sum, scale): (&[f32], &[f32], f64),
    finish: impl Fn(&mut [f32]) + Sync,
) {
    each_row(team, logits, columns, |logits, row| {
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
    });
}
