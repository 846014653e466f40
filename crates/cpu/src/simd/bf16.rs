//! bf16 numbers without vectors: what the vector forms are tested against.

/// Exactly.
pub fn widen(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// To nearest, ties to even.
pub fn narrow(x: f32) -> u16 {
    (crate::rounding::bf16_nearest(x).to_bits() >> 16) as u16
}

/// See [`Simd::pair_rows`](super::Simd::pair_rows).
pub unsafe fn pair_rows(a: *const u16, b: *const u16, to: *mut u16, second: usize) {
    for column in 0..32 {
        // SAFETY: the caller's.
        unsafe {
            let to = to.add(column / 16 * second + column % 16 * 2);
            *to = *a.add(column);
            *to.add(1) = *b.add(column);
        }
    }
}

/// See [`Simd::turn_words`](super::Simd::turn_words).
pub unsafe fn turn_words(from: *const u32, stride: usize, to: *mut u32) {
    for (row, column) in (0..256).map(|i| (i / 16, i % 16)) {
        // SAFETY: the caller's.
        unsafe { *to.add(column * 16 + row) = from.add(row * stride + column).read_unaligned() };
    }
}

/// See [`Simd::turn_block`](super::Simd::turn_block).
pub unsafe fn turn_block(from: *const u16, stride: usize, to: *mut u16) {
    for (row, column) in (0..1024).map(|i| (i / 32, i % 32)) {
        // SAFETY: the caller's.
        unsafe { *to.add(column * 32 + row) = *from.add(row * stride + column) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Level, kernel};

    kernel! {
        fn narrow_all<S>(x: &[f32], to: &mut [u16]) {
            S::narrow(x, to);
        }
        fn widen_all<S>(x: &[u16], to: &mut [f32]) {
            S::widen(x, to);
        }
        fn rounded<S>(x: &mut [f32]) {
            let n = x.len().min(S::LANES);
            let v = S::widened(super::super::get::<S>(x, 0));
            super::super::put::<S>(&mut x[..n], 0, v);
        }
        fn shuffles<S>(x: &[u16]) -> [Vec<u16>; 3] {
            let mut out = [vec![0u16; 1024], vec![0; 512], vec![0; 1024]];
            // SAFETY: `x` holds 32 rows of 40 numbers.
            unsafe {
                S::pair_rows(x.as_ptr(), x[40..].as_ptr(), out[0].as_mut_ptr(), 512);
                S::turn_words(x.as_ptr().cast(), 20, out[1].as_mut_ptr().cast());
                S::turn_block(x.as_ptr(), 40, out[2].as_mut_ptr());
            }
            out
        }
    }

    #[test]
    fn every_level_converts_and_shuffles_alike() {
        let ends = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, f32::MAX, -0.0];
        let values: Vec<f32> = (0..=u32::MAX).step_by(9_999_991).map(f32::from_bits).chain(ends).collect();
        let expected: Vec<u16> = values.iter().map(|&x| narrow(x)).collect();
        let numbers: Vec<u16> = (0..32 * 40).collect();
        for level in Level::available() {
            let (mut found, mut back) = (vec![0; values.len()], vec![0.0; values.len()]);
            narrow_all(level, &values, &mut found);
            assert_eq!(found, expected, "{level:?}");
            widen_all(level, &found, &mut back);
            assert!(back.iter().zip(&found).all(|(x, &y)| x.to_bits() == widen(y).to_bits()), "{level:?}");
            let mut some = values[40..56].to_vec();
            rounded(level, &mut some);
            for (i, (x, &y)) in some.iter().zip(&expected[40..56]).enumerate().take(8) {
                assert_eq!(x.to_bits(), widen(y).to_bits(), "{level:?} {i}");
            }
            assert_eq!(shuffles(level, &numbers), shuffles(Level::Portable, &numbers), "{level:?}");
        }
        let [pairs, words, block] = shuffles(Level::Portable, &numbers);
        assert_eq!((pairs[2], pairs[3], pairs[512], pairs[513]), (1, 41, 16, 56));
        assert_eq!((words[2], words[3], words[32]), (40, 41, 2));
        assert_eq!((block[1], block[32]), (40, 1));
    }
}
