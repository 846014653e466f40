//! Rotary positions: channel `i` of a head turns with channel `i + head_dim / 2`.
//!
//! ```text
//!   head:  [ a_0 .. a_n | b_0 .. b_n ]     n pairs, n cosines, n sines, both unit stride
//!   a' = a cos - b sin                     b' = b cos + a sin
//! ```

use crate::simd::{Level, get, kernel, put};
use henge_tensor::Turn;

kernel! {
    /// Turns one head by `sign` times the angles.
    fn turn_head<S>(head: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
        let (first, second) = head.split_at_mut(cos.len());
        for i in (0..cos.len()).step_by(S::LANES) {
            let (a, b) = (get::<S>(first, i), get::<S>(second, i));
            let (cos, sin) = (get::<S>(cos, i), S::mul(S::splat(sign), get::<S>(sin, i)));
            put::<S>(first, i, S::sub(S::mul(a, cos), S::mul(b, sin)));
            put::<S>(second, i, S::fma(b, cos, S::mul(a, sin)));
        }
    }
}

/// Turns the heads of one token by its position's cosines and sines, `[pairs]` each.
pub fn turn_heads(level: Level, heads: &mut [f32], (cos, sin): (&[f32], &[f32]), turn: Turn) {
    let sign = if turn == Turn::Forward { 1.0 } else { -1.0 };
    for head in heads.chunks_exact_mut((2 * cos.len()).max(1)) {
        turn_head(level, head, cos, sin, sign);
    }
}
