//! Standard normals as a function of the element's place in a logical tensor.
//!
//! Element `i` comes from Philox block `i / 4` (counter words: low and high half of `i / 4`, then zeros)
//! by the Box-Muller transform in float64: words 0 and 1 give elements 0 and 1 of the block, words 2 and
//! 3 give elements 2 and 3. Float64 keeps the tails (up to 6.7 sigma with 32-bit words) exact to the
//! float32 that is stored. `ln`, `sin` and `cos` are the platform's, so the last bit of the float64 may
//! differ between C libraries; within one build it does not.

use crate::philox::Philox;
use crate::uniform::{open_unit_f64, unit_f64};
use std::f64::consts::TAU;

/// The four standard normals of block `block` of the stream `key`.
#[inline]
pub fn normals_of_block(key: u64, block: u64) -> [f64; 4] {
    let words = Philox::new(key).block([block as u32, (block >> 32) as u32, 0, 0]);
    let [a, b] = box_muller(words[0], words[1]);
    let [c, d] = box_muller(words[2], words[3]);
    [a, b, c, d]
}

#[inline]
fn box_muller(radius_word: u32, angle_word: u32) -> [f64; 2] {
    let radius = (-2.0 * open_unit_f64(radius_word).ln()).sqrt();
    let (sine, cosine) = (TAU * unit_f64(angle_word)).sin_cos();
    [radius * cosine, radius * sine]
}

/// Standard normal number `element` of the stream `key`.
#[inline]
pub fn normal(key: u64, element: u64) -> f64 {
    normals_of_block(key, element / 4)[(element % 4) as usize]
}

/// Fills `out` with elements `first_element..` of the stream `key`, each N(0, `std`^2).
///
/// The product with `std` is taken in float64 and rounded once.
pub fn fill_normal(key: u64, first_element: u64, std: f64, out: &mut [f32]) {
    let lead = ((4 - first_element % 4) % 4).min(out.len() as u64) as usize;
    let (head, body) = out.split_at_mut(lead);
    for (i, value) in head.iter_mut().enumerate() {
        *value = (std * normal(key, first_element + i as u64)) as f32;
    }
    let first_block = (first_element + lead as u64) / 4;
    for (i, chunk) in body.chunks_mut(4).enumerate() {
        let block = normals_of_block(key, first_block + i as u64);
        for (value, z) in chunk.iter_mut().zip(block) {
            *value = (std * z) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_fill_equals_single_elements_from_any_start() {
        for first in (0..9).chain([u32::MAX as u64 * 4 + 1]) {
            for len in 0..11 {
                let mut out = vec![0f32; len];
                fill_normal(99, first, 0.5, &mut out);
                for (i, &value) in out.iter().enumerate() {
                    assert_eq!(value, (0.5 * normal(99, first + i as u64)) as f32);
                }
            }
        }
    }

    /// Mean, variance, skewness, kurtosis and the share beyond 2 and 3 sigma of 2^20 draws, each within
    /// five standard errors of the law's value.
    #[test]
    fn draws_follow_the_normal_law() {
        let blocks = 1u64 << 18;
        let mut moments = [0f64; 4];
        let mut beyond = [0f64; 2];
        for block in 0..blocks {
            for z in normals_of_block(7, block) {
                for (power, moment) in moments.iter_mut().enumerate() {
                    *moment += z.powi(power as i32 + 1);
                }
                beyond[0] += f64::from(u8::from(z.abs() > 2.0));
                beyond[1] += f64::from(u8::from(z.abs() > 3.0));
            }
        }
        let n = f64::from(1u32 << 20);
        // (measured, expected, variance of one draw of that quantity)
        let checks = [
            (moments[0] / n, 0.0, 1.0),
            (moments[1] / n, 1.0, 2.0),
            (moments[2] / n, 0.0, 15.0),
            (moments[3] / n, 3.0, 96.0),
            (beyond[0] / n, 0.045_500_263_9, 0.043_43),
            (beyond[1] / n, 0.002_699_796, 0.002_692_5),
        ];
        for (measured, expected, variance) in checks {
            let error = 5.0 * (variance / n).sqrt();
            assert!((measured - expected).abs() < error, "{measured} against {expected} +- {error}");
        }
    }

    #[test]
    fn neighbours_and_streams_are_uncorrelated() {
        let n = 1u64 << 18;
        let (mut lagged, mut streams) = (0.0, 0.0);
        for i in 0..n {
            lagged += normal(1, i) * normal(1, i + 1);
            streams += normal(1, i) * normal(2, i);
        }
        let limit = 5.0 / (n as f64).sqrt();
        assert!((lagged / n as f64).abs() < limit);
        assert!((streams / n as f64).abs() < limit);
    }
}
