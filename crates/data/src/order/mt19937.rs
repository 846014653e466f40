//! The Mersenne Twister as numpy's `RandomState` uses it: seeding by one integer and `shuffle`.
//!
//! M. Matsumoto and T. Nishimura, ACM TOMACS 8, 1998; the shuffle is numpy's legacy one, frozen there.

const N: usize = 624;
const M: usize = 397;

/// A generator equal to `numpy.random.RandomState(seed)`.
pub(super) struct RandomState {
    words: [u32; N],
    next: usize,
}

impl RandomState {
    pub(super) fn new(seed: u32) -> Self {
        let mut words = [seed; N];
        for i in 1..N {
            let before = words[i - 1];
            words[i] = 1_812_433_253u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(i as u32);
        }
        RandomState { words, next: N }
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.twist();
        }
        let mut y = self.words[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn twist(&mut self) {
        for i in 0..N {
            let y = (self.words[i] & 0x8000_0000) | (self.words[(i + 1) % N] & 0x7fff_ffff);
            let matrix = if y & 1 == 0 { 0 } else { 0x9908_b0df };
            self.words[i] = self.words[(i + M) % N] ^ (y >> 1) ^ matrix;
        }
        self.next = 0;
    }

    /// A uniform integer in `0..=largest` by masking and rejection.
    fn interval(&mut self, largest: u64) -> u64 {
        let mask = u64::MAX >> largest.leading_zeros();
        loop {
            let word = match u32::try_from(largest) {
                Ok(_) => u64::from(self.next_u32()),
                Err(_) => u64::from(self.next_u32()) << 32 | u64::from(self.next_u32()),
            };
            if word & mask <= largest {
                return word & mask;
            }
        }
    }

    /// numpy's `shuffle` of a one-dimensional array.
    pub(super) fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            let j = self.interval(i as u64) as usize;
            values.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C++ standard's own check of `mt19937`: the 10,000th output for the default seed 5489.
    #[test]
    fn meets_the_published_value() {
        let mut state = RandomState::new(5489);
        assert_eq!(state.next_u32(), 3_499_211_612);
        let last = (1..10_000).map(|_| state.next_u32()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    /// `numpy.random.RandomState(1234)`, `x = numpy.arange(10)`, `shuffle(x)`.
    #[test]
    fn shuffles_as_numpy_does() {
        let mut values: Vec<u32> = (0..10).collect();
        RandomState::new(1234).shuffle(&mut values);
        assert_eq!(values, [7, 2, 9, 1, 0, 8, 4, 5, 6, 3]);
    }
}
