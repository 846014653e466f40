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
    unsafe fn load_wide(from: *const u16, n: usize) -> __m512 {
        // SAFETY: the caller's, for the first `n`; masked lanes are not read.
        unsafe {
            let narrow = match n {
                16.. => _mm256_loadu_si256(from.cast()),
                _ => _mm256_maskz_loadu_epi16(first(n), from.cast()),
            };
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(narrow)))
        }
    }
    #[inline(always)]
    unsafe fn store_narrow(to: *mut u16, n: usize, v: __m512) {
        // SAFETY: the caller's, for the first `n`; masked lanes are not written.
        unsafe {
            let narrow = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded(v)));
            match n {
                16.. => _mm256_storeu_si256(to.cast(), narrow),
                _ => _mm256_mask_storeu_epi16(to.cast(), first(n), narrow),
            }
        }
    }
    #[inline(always)]
    fn widened(v: __m512) -> __m512 {
        // SAFETY: the trait's.
        unsafe { _mm512_castsi512_ps(_mm512_and_si512(rounded(v), _mm512_set1_epi32(0xffff_0000u32 as i32))) }
    }
    #[inline(always)]
    unsafe fn pair_rows(a: *const u16, b: *const u16, to: *mut u16, second: usize) {
        // SAFETY: the caller's.
        unsafe {
            let (a, b) = (_mm512_loadu_si512(a.cast()), _mm512_loadu_si512(b.cast()));
            // In each 128 bits: pairs of columns 8 i + 0..4, and 8 i + 4..8.
            let (low, high) = (_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
            let order = |from| _mm512_permutex2var_epi64(low, from, high);
            let first = order(_mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11));
            let last = order(_mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15));
            _mm512_storeu_si512(to.cast(), first);
            _mm512_storeu_si512(to.add(second).cast(), last);
        }
    }
    #[inline(always)]
    unsafe fn turn_words(from: *const u32, stride: usize, to: *mut u32) {
        // SAFETY: the caller's.
        unsafe {
            // Lane `j` of vector (r, c): words 4 c.. of row 4 j + r; then four by four in place.
            for c in 0..4 {
                let row = |r: usize| lanes_of(|j| from.add((4 * j + r) * stride + 4 * c).cast());
                let [a, b, d, e] = [row(0), row(1), row(2), row(3)];
                let (ab, de) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(d, e));
                let (ba, ed) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(d, e));
                let to = to.add(4 * c * 16);
                _mm512_storeu_si512(to.cast(), _mm512_unpacklo_epi64(ab, de));
                _mm512_storeu_si512(to.add(16).cast(), _mm512_unpackhi_epi64(ab, de));
                _mm512_storeu_si512(to.add(32).cast(), _mm512_unpacklo_epi64(ba, ed));
                _mm512_storeu_si512(to.add(48).cast(), _mm512_unpackhi_epi64(ba, ed));
            }
        }
    }
    #[inline(always)]
    unsafe fn turn_block(from: *const u16, stride: usize, to: *mut u16) {
        // SAFETY: the caller's.
        unsafe {
            // Lane `j` of vector (r, c): numbers 8 c.. of row 8 j + r; then eight by eight in place.
            for c in 0..4 {
                let x: [__m512i; 8] =
                    std::array::from_fn(|r| lanes_of(|j| from.add((8 * j + r) * stride + 8 * c).cast()));
                let pair = |i: usize| {
                    (_mm512_unpacklo_epi16(x[2 * i], x[2 * i + 1]), _mm512_unpackhi_epi16(x[2 * i], x[2 * i + 1]))
                };
                let [p, q, r, s] = [pair(0), pair(1), pair(2), pair(3)];
                let four = |a, b, c, d| {
                    let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
                    let (ba, dc) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
                    [
                        _mm512_unpacklo_epi64(ab, cd),
                        _mm512_unpackhi_epi64(ab, cd),
                        _mm512_unpacklo_epi64(ba, dc),
                        _mm512_unpackhi_epi64(ba, dc),
                    ]
                };
                let (low, high) = (four(p.0, q.0, r.0, s.0), four(p.1, q.1, r.1, s.1));
                for (i, row) in low.into_iter().chain(high).enumerate() {
                    _mm512_storeu_si512(to.add((8 * c + i) * 32).cast(), row);
                }
            }
        }
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

/// Bits rounded to bf16 in their upper halves; equal to `rounding::bf16_nearest`.
#[inline(always)]
fn rounded(v: __m512) -> __m512i {
    // SAFETY: the trait's.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
        _mm512_mask_blend_epi32(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v), nearest, quiet)
    }
}

/// Four pieces of 16 bytes side by side.
#[inline(always)]
unsafe fn lanes_of(piece: impl Fn(usize) -> *const u8) -> __m512i {
    // SAFETY: the caller's pieces.
    unsafe {
        let load = |j: usize| _mm_loadu_si128(piece(j).cast());
        // Masked broadcasts from memory keep off the port of the shuffles.
        let two = _mm512_mask_broadcast_i32x4(_mm512_castsi128_si512(load(0)), 0x00f0, load(1));
        let three = _mm512_mask_broadcast_i32x4(two, 0x0f00, load(2));
        _mm512_mask_broadcast_i32x4(three, 0xf000, load(3))
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
