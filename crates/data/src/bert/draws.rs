//! The random numbers of one sample, one after another.

use henge_random::{Philox, uniform};

/// A stream of draws under a key of its own.
pub(super) struct Draws {
    philox: Philox,
    next: u32,
}

impl Draws {
    pub(super) fn new(key: u64) -> Self {
        Draws { philox: Philox::new(key), next: 0 }
    }

    fn words(&mut self) -> [u32; 2] {
        let [a, b, _, _] = self.philox.block([self.next, 0, 0, 0]);
        self.next += 1;
        [a, b]
    }

    /// Uniform in `[0, 1)`.
    pub(super) fn unit(&mut self) -> f64 {
        uniform::unit_f64(self.words()[0])
    }

    /// Uniform in `0..bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        uniform::below(self.words(), bound)
    }
}
