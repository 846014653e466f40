//! Elementary functions on vectors.
//!
//! Relative errors against double precision, by the tests below: `exp` 1.5e-7 on
//! -64..88, `erfc` 1e-6 where it is above 1e-4.

use crate::simd::Simd;

/// Below this `exp` is 0. Its value, under 2e-28, is far below the rounding of any sum it
/// enters, and times a small gradient it would be subnormal, which makes an operation on
/// the vector tens of times slower.
const LOWEST: f32 = -64.0;

/// 0 for subnormal numbers: those that a repeated factor below 1 would keep for ever.
#[inline(always)]
pub fn flush<S: Simd>(x: S::V) -> S::V {
    let size = S::max(S::sub(S::splat(0.0), x), x);
    S::if_less(size, S::splat(f32::MIN_POSITIVE), S::splat(0.0), x)
}

#[inline(always)]
fn polynomial<S: Simd, const N: usize>(x: S::V, coefficients: [f32; N]) -> S::V {
    let mut sum = S::splat(coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = S::fma(sum, x, S::splat(coefficient));
    }
    sum
}

/// `e^x`: `2^n e^r` with `n = round(x / ln 2)`, `r = x - n ln 2` in two parts, and the
/// polynomial of Cephes' `expf` for `e^r`. 0 below -64; infinite above 88.4.
#[inline(always)]
pub fn exp<S: Simd>(x: S::V) -> S::V {
    let clamped = S::max(S::splat(LOWEST), S::min(S::splat(89.0), x));
    let n = S::round(S::mul(clamped, S::splat(std::f32::consts::LOG2_E)));
    let r = S::fma(n, S::splat(-0.693_359_4), clamped);
    let r = S::fma(n, S::splat(2.121_944_4e-4), r);
    let tail =
        polynomial::<S, 6>(r, [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5]);
    let e = S::add(S::fma(tail, S::mul(r, r), r), S::splat(1.0));
    S::if_less(x, S::splat(LOWEST), S::splat(0.0), S::scale2(e, n))
}

/// `1 - erf(x)` for `x >= 0`: the Chebyshev fit of Numerical Recipes (`erfcc`).
#[inline(always)]
fn erfc_positive<S: Simd>(x: S::V) -> S::V {
    let t = S::div(S::splat(1.0), S::fma(S::splat(0.5), x, S::splat(1.0)));
    let fit = polynomial::<S, 10>(
        t,
        [
            0.170_872_77,
            -0.822_152_2,
            1.488_515_9,
            -1.135_204,
            0.278_868_08,
            -0.186_288_06,
            0.096_784_18,
            0.374_091_96,
            1.000_023_7,
            -1.265_512_2,
        ],
    );
    S::mul(t, exp::<S>(S::sub(fit, S::mul(x, x))))
}

/// `1 - erf(x)`.
#[inline(always)]
pub fn erfc<S: Simd>(x: S::V) -> S::V {
    let zero = S::splat(0.0);
    let half = erfc_positive::<S>(S::max(S::sub(zero, x), x));
    S::if_less(x, zero, S::sub(S::splat(2.0), half), half)
}

/// `1 / (1 + e^-x)`, 0 where `exp` is.
#[inline(always)]
pub fn sigmoid<S: Simd>(x: S::V) -> S::V {
    let (zero, one) = (S::splat(0.0), S::splat(1.0));
    let value = S::div(one, S::add(one, exp::<S>(S::sub(zero, x))));
    S::if_less(x, S::splat(LOWEST), zero, value)
}

/// `2 sigmoid(2 x) - 1`: within a rounding of 1, not of small values.
#[inline(always)]
pub fn tanh<S: Simd>(x: S::V) -> S::V {
    S::fma(S::splat(2.0), sigmoid::<S>(S::add(x, x)), S::splat(-1.0))
}

/// GeLU in its tanh form: `x sigmoid(2 u)`, `u = sqrt(2/pi) (x + 0.044715 x^3)`, since
/// `1 + tanh(u) = 2 sigmoid(2 u)`; no digits cancel for negative `x`.
#[inline(always)]
pub fn gelu_tanh<S: Simd>(x: S::V) -> S::V {
    S::mul(x, sigmoid::<S>(tanh_argument::<S>(x)))
}

/// Derivative of [`gelu_tanh`]: `s + x s (1 - s) 2 u'`.
#[inline(always)]
pub fn gelu_tanh_slope<S: Simd>(x: S::V) -> S::V {
    let s = sigmoid::<S>(tanh_argument::<S>(x));
    let slope = S::mul(S::splat(TWICE_ROOT), S::fma(S::splat(3.0 * 0.044715), S::mul(x, x), S::splat(1.0)));
    let rest = S::mul(S::mul(x, slope), S::sub(s, S::mul(s, s)));
    // Far out `s` is 0 or 1 and the polynomial may be huge.
    S::add(s, rest)
}

/// `2 sqrt(2 / pi)`.
const TWICE_ROOT: f32 = 1.595_769;

/// `2 u`.
#[inline(always)]
fn tanh_argument<S: Simd>(x: S::V) -> S::V {
    let x2 = S::mul(x, x);
    S::mul(S::mul(S::splat(TWICE_ROOT), x), S::fma(S::splat(0.044715), x2, S::splat(1.0)))
}

/// GeLU by the error function: `x erfc(-x / sqrt 2) / 2`.
#[inline(always)]
pub fn gelu<S: Simd>(x: S::V) -> S::V {
    S::mul(S::mul(S::splat(0.5), x), erfc::<S>(S::mul(x, S::splat(-std::f32::consts::FRAC_1_SQRT_2))))
}

/// Derivative of [`gelu`]: `erfc(-x / sqrt 2) / 2 + x e^(-x^2 / 2) / sqrt(2 pi)`.
#[inline(always)]
pub fn gelu_slope<S: Simd>(x: S::V) -> S::V {
    let phi = S::mul(S::splat(0.5), erfc::<S>(S::mul(x, S::splat(-std::f32::consts::FRAC_1_SQRT_2))));
    let density = exp::<S>(S::mul(S::splat(-0.5), S::mul(x, x)));
    S::fma(S::mul(x, S::splat(0.398_942_3)), density, phi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Level, get, kernel, put};

    kernel! {
        fn exp_all<S>(x: &[f32], y: &mut [f32]) {
            for i in (0..x.len()).step_by(S::LANES) {
                put::<S>(y, i, exp::<S>(get::<S>(x, i)));
            }
        }
        fn erfc_all<S>(x: &[f32], y: &mut [f32]) {
            for i in (0..x.len()).step_by(S::LANES) {
                put::<S>(y, i, erfc::<S>(get::<S>(x, i)));
            }
        }
    }

    fn worst(xs: &[f32], ys: &[f32], truth: impl Fn(f64) -> f64) -> f64 {
        let error = |(&x, &y): (&f32, &f32)| (f64::from(y) / truth(f64::from(x)) - 1.0).abs();
        xs.iter().zip(ys).map(error).fold(0.0, f64::max)
    }

    #[test]
    fn exp_is_accurate_to_an_ulp_and_flushes() {
        let xs: Vec<f32> = (0..200_003).map(|i| -64.0 + 152.2 * i as f32 / 200_003.0).collect();
        for level in Level::available() {
            let mut ys = vec![0.0; xs.len()];
            exp_all(level, &xs, &mut ys);
            let worst = worst(&xs, &ys, f64::exp);
            assert!(worst < 1.5e-7, "{level:?}: {worst}");
            let mut ends = [0.0f32; 5];
            exp_all(level, &[f32::NEG_INFINITY, -64.1, 0.0, f32::INFINITY, f32::NAN], &mut ends);
            assert_eq!(ends[..4], [0.0, 0.0, 1.0, f32::INFINITY], "{level:?}");
            assert!(ends[4].is_nan(), "{level:?}");
        }
    }

    #[test]
    fn erfc_is_accurate() {
        let xs: Vec<f32> = (0..100_003).map(|i| -4.0 + 6.75 * i as f32 / 100_003.0).collect();
        for level in Level::available() {
            let mut ys = vec![0.0; xs.len()];
            erfc_all(level, &xs, &mut ys);
            let worst = worst(&xs, &ys, libm::erfc);
            assert!(worst < 1e-6, "{level:?}: {worst}");
        }
    }
}
