//! Vectors of f32 lanes, one type per instruction set, and the macro that compiles a
//! kernel for each of them.
//!
//! ```text
//!   Level       lanes   tile of a product (rows x columns)   registers: sums + panel + broadcast
//!   Avx512        16          14 x 32                               28   +   2   +   1..2  of 32
//!   Avx2           8           6 x 16                               12   +   2   +   1..2  of 16
//!   Portable       8           6 x 16                          left to the compiler
//! ```
//!
//! A kernel is written once over [`Simd`] and must be inlined whole into a function that
//! enables the instruction set, so everything here is `inline(always)`.
//!
//! Rejected: `std::simd` (not stable); a crate for this (the project needs some twenty
//! operations, and the tile of a product must know its registers).

mod bf16;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// The instruction set that kernels are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of the target has.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// The best this processor has.
    pub fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Level::Portable)
    }

    /// Every level this processor has, the best last.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)] // other architectures have one level
        let mut levels = vec![Level::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                levels.push(Level::Avx2);
                let wide = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl");
                if wide {
                    levels.push(Level::Avx512);
                }
            }
        }
        levels
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "AVX2",
            Level::Avx512 => "AVX-512",
        }
    }
}

/// A vector type and its operations.
///
/// # Safety
/// An implementation's methods run its instructions unconditionally: they may be called
/// only on a processor that has them, which the [`kernel!`] macro sees to by [`Level`].
/// `max(a, b)` and `min(a, b)` return `b` when either is not a number.
pub(crate) unsafe trait Simd: Copy {
    /// `LANES` numbers.
    type V: Copy;
    /// Numbers of a vector.
    const LANES: usize;
    /// Rows of a product's register block; its columns are `2 * LANES`.
    const ROWS: usize;

    fn splat(x: f32) -> Self::V;
    /// Loads `LANES` numbers.
    unsafe fn load(from: *const f32) -> Self::V;
    /// Loads `n <= LANES` numbers, the other lanes 0.
    unsafe fn load_part(from: *const f32, n: usize) -> Self::V;
    unsafe fn store(to: *mut f32, v: Self::V);
    /// Stores the first `n <= LANES` numbers.
    unsafe fn store_part(to: *mut f32, n: usize, v: Self::V);
    fn add(a: Self::V, b: Self::V) -> Self::V;
    fn sub(a: Self::V, b: Self::V) -> Self::V;
    fn mul(a: Self::V, b: Self::V) -> Self::V;
    fn div(a: Self::V, b: Self::V) -> Self::V;
    /// `a b + c`, rounded once where the processor can.
    fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn max(a: Self::V, b: Self::V) -> Self::V;
    fn min(a: Self::V, b: Self::V) -> Self::V;
    fn sqrt(a: Self::V) -> Self::V;
    /// To the nearest whole number.
    fn round(a: Self::V) -> Self::V;
    /// `a 2^n` for whole `n` in `-126..=128`.
    fn scale2(a: Self::V, n: Self::V) -> Self::V;
    /// By lane, `a < b ? x : y`.
    fn if_less(a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// Sum of the lanes, in a fixed order.
    fn sum(a: Self::V) -> f32;
    /// Largest lane.
    fn largest(a: Self::V) -> f32;
    /// Loads `n <= LANES` bf16 numbers, the other lanes 0.
    unsafe fn load_wide(from: *const u16, n: usize) -> Self::V {
        let mut lanes = [0.0f32; 16];
        for (lane, wide) in lanes.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's, for the first `n`.
            *wide = bf16::widen(unsafe { *from.add(lane) });
        }
        // SAFETY: 16 numbers hold a vector.
        unsafe { Self::load(lanes.as_ptr()) }
    }
    /// Rounds to bf16 and stores the first `n <= LANES` numbers.
    unsafe fn store_narrow(to: *mut u16, n: usize, v: Self::V) {
        let mut lanes = [0.0f32; 16];
        // SAFETY: 16 numbers hold a vector; the rest is the caller's, for the first `n`.
        unsafe {
            Self::store(lanes.as_mut_ptr(), v);
            lanes.iter().enumerate().take(n).for_each(|(lane, &x)| *to.add(lane) = bf16::narrow(x));
        }
    }
    /// Rounds to bf16 and keeps the lanes.
    fn widened(v: Self::V) -> Self::V {
        let mut lanes = [0u16; 16];
        // SAFETY: 16 numbers hold a vector.
        unsafe {
            Self::store_narrow(lanes.as_mut_ptr(), Self::LANES, v);
            Self::load_wide(lanes.as_ptr(), Self::LANES)
        }
    }
    /// Rows `a` and `b` of 32 numbers as words of pairs: the first 16 words to `to`, the
    /// others to `to + second`.
    unsafe fn pair_rows(a: *const u16, b: *const u16, to: *mut u16, second: usize) {
        // SAFETY: the caller's.
        unsafe { bf16::pair_rows(a, b, to, second) }
    }
    /// Transposes 16 x 16 words, rows of `stride` words, to dense rows.
    unsafe fn turn_words(from: *const u32, stride: usize, to: *mut u32) {
        // SAFETY: the caller's.
        unsafe { bf16::turn_words(from, stride, to) }
    }
    /// Transposes 32 x 32 numbers, rows of `stride` numbers, to dense rows.
    unsafe fn turn_block(from: *const u16, stride: usize, to: *mut u16) {
        // SAFETY: the caller's.
        unsafe { bf16::turn_block(from, stride, to) }
    }
    /// Rounds `x` to the first numbers of `to`.
    #[inline(always)]
    fn narrow(x: &[f32], to: &mut [u16]) {
        let to = &mut to[..x.len()];
        for i in (0..x.len()).step_by(Self::LANES) {
            let n = (x.len() - i).min(Self::LANES);
            // SAFETY: at most what is left of either.
            unsafe { Self::store_narrow(to.as_mut_ptr().add(i), n, get::<Self>(x, i)) };
        }
    }
    /// The first numbers of `x`, exactly.
    #[inline(always)]
    fn widen(x: &[u16], to: &mut [f32]) {
        let x = &x[..to.len()];
        for i in (0..x.len()).step_by(Self::LANES) {
            let n = (x.len() - i).min(Self::LANES);
            // SAFETY: at most what is left of `x`.
            put::<Self>(to, i, unsafe { Self::load_wide(x.as_ptr().add(i), n) });
        }
    }
    /// Asks for a line to be brought to the first cache.
    fn prefetch(at: *const f32);
    /// Asks for a line to be brought to the second cache.
    fn prefetch_far(at: *const f32);
}

/// Lanes `i..` of a slice, those past its end 0.
#[inline(always)]
pub(crate) fn get<S: Simd>(x: &[f32], i: usize) -> S::V {
    debug_assert!(i < x.len());
    // SAFETY: reads at most `x.len() - i` numbers from `i`, which lies inside.
    unsafe {
        let left = x.len() - i;
        if left >= S::LANES { S::load(x.as_ptr().add(i)) } else { S::load_part(x.as_ptr().add(i), left) }
    }
}

/// Writes lanes to `i..` of a slice, none past its end.
#[inline(always)]
pub(crate) fn put<S: Simd>(x: &mut [f32], i: usize, v: S::V) {
    debug_assert!(i < x.len());
    // SAFETY: writes at most `x.len() - i` numbers from `i`, which lies inside.
    unsafe {
        let left = x.len() - i;
        if left >= S::LANES {
            S::store(x.as_mut_ptr().add(i), v)
        } else {
            S::store_part(x.as_mut_ptr().add(i), left, v)
        }
    }
}

/// Defines functions that take a [`Level`] first and run their body, written over a
/// [`Simd`] type, compiled for that level.
macro_rules! kernel {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident<$S:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        $vis fn $name(level: $crate::simd::Level, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)] // one kernel's operands
            fn body<$S: $crate::simd::Simd>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            #[allow(clippy::too_many_arguments)] // one kernel's operands
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                body::<$crate::simd::Avx512>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)] // one kernel's operands
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                body::<$crate::simd::Avx2>($($arg),*)
            }
            match level {
                // SAFETY: a level other than the portable one is only made by detection.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                _ => body::<$crate::simd::Portable>($($arg),*),
            }
        }
    )*};
}
pub(crate) use kernel;
