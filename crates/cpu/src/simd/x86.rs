//! Vectors of AVX-512 and AVX2.

use super::Simd;
use std::arch::x86_64::*;

/// Sixteen lanes.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// Eight lanes.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// Methods that are one intrinsic each.
macro_rules! one_each {
    ($($name:ident($($arg:ident),*) = $intrinsic:expr;)*) => {$(
        #[inline(always)]
        fn $name($($arg: Self::V),*) -> Self::V {
            // SAFETY: the trait's: the processor has the instruction.
            unsafe { $intrinsic }
        }
    )*};
}

// SAFETY: chosen by detection only.
unsafe impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const ROWS: usize = 14;

    one_each! {
        add(a, b) = _mm512_add_ps(a, b);
        sub(a, b) = _mm512_sub_ps(a, b);
        mul(a, b) = _mm512_mul_ps(a, b);
        div(a, b) = _mm512_div_ps(a, b);
        fma(a, b, c) = _mm512_fmadd_ps(a, b, c);
        max(a, b) = _mm512_max_ps(a, b);
        min(a, b) = _mm512_min_ps(a, b);
        sqrt(a) = _mm512_sqrt_ps(a);
        round(a) = _mm512_roundscale_ps::<8>(a);
        scale2(a, n) = _mm512_scalef_ps(a, n);
        if_less(a, b, x, y) = _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x);
    }
    #[inline(always)]
    fn splat(x: f32) -> __m512 {
        // SAFETY: the trait's.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: the caller's.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> __m512 {
        // SAFETY: the caller's, for the first `n`; masked lanes are not read.
        unsafe { _mm512_maskz_loadu_ps(first(n), from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m512) {
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn store_part(to: *mut f32, n: usize, v: __m512) {
        // SAFETY: the caller's, for the first `n`; masked lanes are not written.
        unsafe { _mm512_mask_storeu_ps(to, first(n), v) }
    }
    #[inline(always)]
    fn sum(a: __m512) -> f32 {
        // SAFETY: the trait's.
        unsafe { Avx2::sum(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a))) }
    }
    #[inline(always)]
    fn largest(a: __m512) -> f32 {
        // SAFETY: the trait's.
        unsafe { Avx2::largest(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a))) }
    }
    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
    #[inline(always)]
    fn prefetch_far(at: *const f32) {
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
}

/// The mask of the first `n` lanes.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

// SAFETY: chosen by detection only.
unsafe impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const ROWS: usize = 6;

    one_each! {
        add(a, b) = _mm256_add_ps(a, b);
        sub(a, b) = _mm256_sub_ps(a, b);
        mul(a, b) = _mm256_mul_ps(a, b);
        div(a, b) = _mm256_div_ps(a, b);
        fma(a, b, c) = _mm256_fmadd_ps(a, b, c);
        max(a, b) = _mm256_max_ps(a, b);
        min(a, b) = _mm256_min_ps(a, b);
        sqrt(a) = _mm256_sqrt_ps(a);
        round(a) = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        scale2(a, n) = {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent)))
        };
        if_less(a, b, x, y) = _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b));
    }
    #[inline(always)]
    fn splat(x: f32) -> __m256 {
        // SAFETY: the trait's.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        // SAFETY: the caller's.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> __m256 {
        // SAFETY: the caller's, for the first `n`; masked lanes are not read.
        unsafe { _mm256_maskload_ps(from, lanes_below(n)) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m256) {
        // SAFETY: the caller's.
        unsafe { _mm256_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn store_part(to: *mut f32, n: usize, v: __m256) {
        // SAFETY: the caller's, for the first `n`; masked lanes are not written.
        unsafe { _mm256_maskstore_ps(to, lanes_below(n), v) }
    }
    #[inline(always)]
    fn sum(a: __m256) -> f32 {
        // SAFETY: the trait's.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn largest(a: __m256) -> f32 {
        // SAFETY: the trait's.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn prefetch(at: *const f32) {
        Avx512::prefetch(at);
    }
    #[inline(always)]
    fn prefetch_far(at: *const f32) {
        Avx512::prefetch_far(at);
    }
}

/// The mask of the lanes below `n`, all bits set in each.
#[inline(always)]
fn lanes_below(n: usize) -> __m256i {
    // SAFETY: the trait's.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}
