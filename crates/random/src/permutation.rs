//! A keyed shuffle of `0..n` that needs no table.
//!
//! A Feistel network permutes the numbers of `b` bits, where `2^b` is the least power of two that holds
//! `n`; a result of `n` or more is fed back until one below `n` comes (cycle walking), which takes fewer
//! than two passes on average. The halves have `b / 2` and `b - b / 2` bits and change places each
//! round; the round function is a Philox block, so a round mixes as well as its half allows. Memory and
//! set-up are constant for any `n` that fits 64 bits.
//!
//! Rejected: a shuffled index file (8 bytes a sample, built by one rank while the others wait) and
//! affine maps `a * i + b mod n` (neighbours stay at a fixed distance).

use crate::philox::Philox;

/// Enough that even halves of one or two bits give pairs without visible structure.
const ROUNDS: u32 = 12;

/// A bijection of `0..n` onto itself, chosen by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    philox: Philox,
    n: u64,
    low_bits: u32,
    high_bits: u32,
}

impl Permutation {
    /// The permutation of `0..n` that `key` names.
    pub fn new(key: u64, n: u64) -> Self {
        // At least two bits, so that both halves have one to mix.
        let bits = (64 - n.saturating_sub(1).leading_zeros()).max(2);
        Permutation { philox: Philox::new(key), n, low_bits: bits / 2, high_bits: bits - bits / 2 }
    }

    /// How many numbers are permuted.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether there is nothing to permute.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Where `i` goes.
    ///
    /// # Panics
    /// When `i` is not below `n`.
    pub fn apply(&self, i: u64) -> u64 {
        assert!(i < self.n, "{i} is not below {}", self.n);
        let mut x = self.forward(i);
        while x >= self.n {
            x = self.forward(x);
        }
        x
    }

    /// Which number goes to `j`: the inverse of [`Permutation::apply`].
    ///
    /// # Panics
    /// When `j` is not below `n`.
    pub fn invert(&self, j: u64) -> u64 {
        assert!(j < self.n, "{j} is not below {}", self.n);
        let mut x = self.backward(j);
        while x >= self.n {
            x = self.backward(x);
        }
        x
    }

    // Even rounds change the low half by the high one, odd rounds the high half by the low one.

    fn forward(&self, x: u64) -> u64 {
        let (mut low, mut high) = self.halves(x);
        for round in 0..ROUNDS {
            self.round(round, &mut low, &mut high);
        }
        self.join(low, high)
    }

    fn backward(&self, x: u64) -> u64 {
        let (mut low, mut high) = self.halves(x);
        for round in (0..ROUNDS).rev() {
            self.round(round, &mut low, &mut high);
        }
        self.join(low, high)
    }

    /// One round; it is its own inverse.
    fn round(&self, round: u32, low: &mut u32, high: &mut u32) {
        let word = |half: u32| self.philox.block([half, round, self.low_bits, self.high_bits])[0];
        if round.is_multiple_of(2) {
            *low ^= word(*high) & mask(self.low_bits);
        } else {
            *high ^= word(*low) & mask(self.high_bits);
        }
    }

    fn halves(&self, x: u64) -> (u32, u32) {
        (x as u32 & mask(self.low_bits), (x >> self.low_bits) as u32)
    }

    fn join(&self, low: u32, high: u32) -> u64 {
        u64::from(high) << self.low_bits | u64::from(low)
    }
}

/// The lowest `bits` bits, 1 to 32 of them.
fn mask(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::mix;
    use proptest::prelude::*;

    #[test]
    fn is_a_bijection_for_every_small_n() {
        for n in (0..300).chain([1023, 1024, 1025, 65_535, 65_536, 65_537, 100_003]) {
            let permutation = Permutation::new(n ^ 77, n);
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                let j = permutation.apply(i);
                assert!(!std::mem::replace(&mut seen[j as usize], true), "{j} comes twice for n = {n}");
                assert_eq!(permutation.invert(j), i);
            }
        }
    }

    proptest! {
        #[test]
        fn inverse_undoes_it_for_any_n(key: u64, n in 1u64.., i: u64) {
            let permutation = Permutation::new(key, n);
            let j = permutation.apply(i % n);
            prop_assert!(j < n);
            prop_assert_eq!(permutation.invert(j), i % n);
        }
    }

    /// Chi-square over `cells` equally likely cells as a number of standard deviations from its mean.
    fn deviation(counts: &[u32]) -> f64 {
        let total: f64 = counts.iter().map(|&c| f64::from(c)).sum();
        let expected = total / counts.len() as f64;
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        let freedom = counts.len() as f64 - 1.0;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    /// Over random keys, the images of two elements are uniform over all ordered pairs.
    #[test]
    fn pairs_of_images_are_uniform_over_keys() {
        for n in [3u64, 5, 7, 16, 30] {
            let pairs = (n * (n - 1)) as u32;
            let mut counts = vec![0u32; (n * n) as usize];
            for key in 0..u64::from(pairs) * 200 {
                let permutation = Permutation::new(mix(key, n), n);
                counts[(permutation.apply(0) * n + permutation.apply(n / 2)) as usize] += 1;
            }
            let possible: Vec<u32> =
                (0..counts.len()).filter(|c| c / n as usize != c % n as usize).map(|c| counts[c]).collect();
            let deviation = deviation(&possible);
            assert!(deviation.abs() < 5.0, "n = {n}: {deviation} standard deviations");
        }
    }

    /// In one permutation, where an element lands says nothing of where its neighbour does.
    #[test]
    fn neighbours_land_independently() {
        let (n, cells) = (1u64 << 18 | 12345, 32u64);
        let permutation = Permutation::new(4711, n);
        let mut counts = vec![0u32; (cells * cells) as usize];
        let cell = |i: u64| permutation.apply(i) * cells / n;
        for i in 0..n - 1 {
            counts[(cell(i) * cells + cell(i + 1)) as usize] += 1;
        }
        let deviation = deviation(&counts);
        assert!(deviation.abs() < 5.0, "{deviation} standard deviations");
    }
}
