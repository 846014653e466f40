//! Vectors without intrinsics: arrays that the compiler turns into what the target has.

use super::Simd;

/// Eight lanes in an array.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[inline(always)]
fn zip(a: [f32; 8], b: [f32; 8], f: impl Fn(f32, f32) -> f32) -> [f32; 8] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

// SAFETY: plain Rust runs on every processor.
unsafe impl Simd for Portable {
    type V = [f32; 8];
    const LANES: usize = 8;
    const ROWS: usize = 6;

    #[inline(always)]
    fn splat(x: f32) -> Self::V {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::V {
        // SAFETY: the caller's.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self::V {
        // SAFETY: the caller's, for the first `n`.
        std::array::from_fn(|lane| if lane < n { unsafe { *from.add(lane) } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: Self::V) {
        // SAFETY: the caller's.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn store_part(to: *mut f32, n: usize, v: Self::V) {
        for (lane, value) in v.into_iter().enumerate().take(n) {
            // SAFETY: the caller's, for the first `n`.
            unsafe { *to.add(lane) = value }
        }
    }
    #[inline(always)]
    fn add(a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Where the target has no such instruction `mul_add` would call a library.
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
            std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
        } else {
            std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
        }
    }
    #[inline(always)]
    fn max(a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn sqrt(a: Self::V) -> Self::V {
        a.map(f32::sqrt)
    }
    #[inline(always)]
    fn round(a: Self::V) -> Self::V {
        // Adding 1.5 * 2^23 leaves no bits for the fraction; callers stay below 2^22.
        const SHIFT: f32 = 12_582_912.0;
        a.map(|a| (a + SHIFT) - SHIFT)
    }
    #[inline(always)]
    fn scale2(a: Self::V, n: Self::V) -> Self::V {
        zip(a, n, |a, n| a * f32::from_bits(((n as i32 + 127) << 23) as u32))
    }
    #[inline(always)]
    fn if_less(a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V {
        std::array::from_fn(|lane| if a[lane] < b[lane] { x[lane] } else { y[lane] })
    }
    #[inline(always)]
    fn sum(a: Self::V) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn largest(a: Self::V) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, |most, x| if x > most || x.is_nan() { x } else { most })
    }
    #[inline(always)]
    fn prefetch(_at: *const f32) {}
    #[inline(always)]
    fn prefetch_far(_at: *const f32) {}
}
