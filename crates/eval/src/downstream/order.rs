//! Which example comes when.

use henge_random::{Permutation, key, mix};

/// The order of a fine-tuning run: epochs one behind the other, each shuffled on its own.
///
/// A function of seed, epoch and position, so that it is the same whatever the layout, and after a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochOrder {
    key: u64,
    examples: u64,
}

impl EpochOrder {
    /// The order of `examples` under a run's seed.
    ///
    /// # Panics
    /// Without an example.
    pub fn new(seed: u64, examples: u64) -> Self {
        assert!(examples > 0, "no example to order");
        Self { key: key(seed, "data.fine-tuning"), examples }
    }

    /// The example that is the run's `consumed`-th, from 0: step `i` of a run with batch `B` reads
    /// `B i .. B (i + 1)`.
    pub fn example(&self, consumed: u64) -> u64 {
        let epoch = consumed / self.examples;
        Permutation::new(mix(self.key, epoch), self.examples).apply(consumed % self.examples)
    }

    /// The examples of `consumed..`, `count` of them.
    pub fn batch(&self, consumed: u64, count: u64) -> impl Iterator<Item = u64> + '_ {
        (consumed..consumed + count).map(|at| self.example(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_epoch_holds_each_example_once_in_an_order_of_its_own() {
        let order = EpochOrder::new(1234, 100);
        let epochs: Vec<Vec<u64>> = (0..3).map(|epoch| order.batch(100 * epoch, 100).collect()).collect();
        for epoch in &epochs {
            assert_eq!(epoch.iter().copied().collect::<BTreeSet<_>>(), (0..100).collect());
        }
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2] && epochs[0] != (0..100).collect::<Vec<_>>());
        let other: Vec<u64> = EpochOrder::new(1235, 100).batch(0, 100).collect();
        assert_ne!(other, epochs[0]);
    }

    #[test]
    fn replicas_share_a_batch_without_overlap_and_across_an_epoch() {
        let order = EpochOrder::new(7, 10);
        // Batch of 8 over two replicas: their halves are the batch, the second one crossing into the next epoch.
        let whole: Vec<u64> = order.batch(8, 8).collect();
        let halves: Vec<u64> = order.batch(8, 4).chain(order.batch(12, 4)).collect();
        assert_eq!(halves, whole);
        let first_epoch: BTreeSet<u64> = order.batch(0, 8).chain(whole[..2].iter().copied()).collect();
        assert_eq!(first_epoch.len(), 10);
    }
}
