//! Random words to uniform numbers.

/// A word to one of 2^32 evenly spaced numbers in `[0, 1)`.
#[inline(always)]
pub fn unit_f64(word: u32) -> f64 {
    word as f64 * (1.0 / 4_294_967_296.0)
}

/// A word to the middle of its cell of width 2^-32, so that the result is in the open interval `(0, 1)`
/// and safe under a logarithm.
#[inline(always)]
pub fn open_unit_f64(word: u32) -> f64 {
    (word as f64 + 0.5) * (1.0 / 4_294_967_296.0)
}

/// A word to one of 2^24 evenly spaced numbers in `[0, 1)`; never rounds up to 1.
#[inline(always)]
pub fn unit_f32(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Two words to an integer in `0..bound` by a multiply and a shift.
///
/// The bias is at most `bound / 2^64`, far below what any count of draws could show; a rejection loop
/// was left out because it would make the number of blocks consumed depend on the draw.
///
/// # Panics
/// When `bound` is 0.
#[inline(always)]
pub fn below(words: [u32; 2], bound: u64) -> u64 {
    assert!(bound > 0, "no integer lies below 0");
    let wide = words[0] as u64 | (words[1] as u64) << 32;
    ((wide as u128 * bound as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_the_intervals() {
        assert_eq!(unit_f64(0), 0.0);
        assert!(unit_f64(u32::MAX) < 1.0);
        assert!(unit_f32(u32::MAX) < 1.0);
        assert!(open_unit_f64(0) > 0.0 && open_unit_f64(u32::MAX) < 1.0);
        assert_eq!(below([u32::MAX; 2], 7), 6);
        assert_eq!(below([0; 2], 7), 0);
        assert_eq!(below([u32::MAX; 2], u64::MAX), u64::MAX - 1);
    }
}
