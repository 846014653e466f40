//! Compute precision by rounding: numbers stay in the element type, and those that a
//! product of lower precision would read are rounded to what it could read.
//!
//! Rounded: prepared weights and the outputs of norms, products,
//! non-linearities and attention, forward and backward. Not rounded: the residual
//! stream and its gradient, biases and gains, statistics, logits, losses, gradients of parameters, master
//! weights and moments. PyTorch's autocast draws the line in the same places, but for
//! logits, which it rounds.

use crate::simd::{Level, kernel};
use henge_tensor::{Precision, Real};

/// To what the operands of products are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// Not at all.
    #[default]
    Exact,
    /// To bfloat16: 8 bits of significand.
    Bf16,
    /// To IEEE half precision: 11 bits, infinite above 65,504.
    F16,
}

impl Rounding {
    /// The precision's name.
    pub const fn name(self) -> &'static str {
        match self {
            Rounding::Exact => "exact",
            Rounding::Bf16 => "bf16",
            Rounding::F16 => "f16",
        }
    }

    /// Rounds to nearest, ties to even.
    pub fn apply<R: Real>(self, values: &mut [R]) {
        let nearest = match self {
            Rounding::Exact => return,
            Rounding::Bf16 => bf16_nearest,
            Rounding::F16 => f16_nearest,
        };
        values.iter_mut().for_each(|value| *value = R::of(f64::from(nearest(value.wide() as f32))));
    }

    /// As [`Rounding::apply`], by vectors.
    pub(crate) fn apply_fast(self, level: Level, values: &mut [f32]) {
        match self {
            Rounding::Exact => {}
            Rounding::Bf16 => round_bf16(level, values),
            Rounding::F16 => round_f16(level, values),
        }
    }
}

impl From<Precision> for Rounding {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Rounding::Exact,
            Precision::BF16 => Rounding::Bf16,
            Precision::F16 => Rounding::F16,
        }
    }
}

kernel! {
    fn round_bf16<S>(values: &mut [f32]) {
        for value in values {
            *value = bf16_nearest(*value);
        }
    }
    fn round_f16<S>(values: &mut [f32]) {
        for value in values {
            *value = f16_nearest(*value);
        }
    }
}

/// Branch-free, so that loops over it become vector code; equal to `half`'s `bf16::from_f32`.
#[inline(always)]
pub(crate) fn bf16_nearest(value: f32) -> f32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
    // Adding could carry a NaN into infinity.
    let quiet = bits & 0xffff_0000 | 0x0040_0000;
    f32::from_bits(if value.is_nan() { quiet } else { rounded })
}

/// Branch-free as well; equal to `half`'s conversion there and back.
#[inline(always)]
fn f16_nearest(value: f32) -> f32 {
    let (bits, size) = (value.to_bits(), value.abs());
    let normal = f32::from_bits(bits.wrapping_add(0xfff + (bits >> 13 & 1)) & 0xffff_e000);
    // Below 2^-14 the precision's numbers are the multiples of 2^-24, the spacing of f32
    // from one half on.
    let subnormal = ((size + 0.5) - 0.5).copysign(value);
    let finite = if size < 6.103_515_6e-5 { subnormal } else { normal };
    let bounded = if finite.abs() >= 65_536.0 { f32::INFINITY.copysign(value) } else { finite };
    if value.is_nan() { value } else { bounded }
}

/// The rounding is that of the `half` crate.
#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn bf16_agrees_with_the_half_crate() {
        for bits in (0..=u32::MAX).step_by(9973) {
            let value = f32::from_bits(bits);
            assert_eq!(bf16_nearest(value).to_bits(), bf16::from_f32(value).to_f32().to_bits(), "{bits:#x}");
        }
    }

    #[test]
    fn f16_agrees_with_the_half_crate() {
        for bits in (0..=u32::MAX).step_by(9973).chain(0x3300_0000..0x3300_4000).chain(0x477f_e000..0x4780_2000) {
            let (value, expected) = (f32::from_bits(bits), f16::from_f32(f32::from_bits(bits)).to_f32());
            let got = f16_nearest(value);
            assert!(got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(), "{bits:#x}: {got}");
        }
    }

    #[test]
    fn overflow_of_f16_is_infinite_and_exact_changes_nothing() {
        let mut values = [65_504.0f32, 65_520.0, 1.0 + 1.0 / 4096.0, 1e-9];
        let before = values;
        Rounding::Exact.apply(&mut values);
        assert_eq!(values, before);
        Rounding::F16.apply(&mut values);
        assert_eq!(values, [65_504.0, f32::INFINITY, 1.0, 0.0]);
    }
}
