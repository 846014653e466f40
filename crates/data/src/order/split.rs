//! Cutting a corpus into training, validation and test by ratio.

use crate::error::DataError;
use std::ops::Range;

/// What a share of a corpus is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    Train,
    Valid,
    Test,
}

impl Part {
    /// Its place in a split.
    pub fn index(self) -> usize {
        match self {
            Part::Train => 0,
            Part::Valid => 1,
            Part::Test => 2,
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Part::Train => "training",
            Part::Valid => "validation",
            Part::Test => "test",
        }
    }
}

/// Shares of training, validation and test, in any unit: 969, 30, 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    shares: [f64; 3],
}

impl Split {
    /// # Errors
    /// A share below zero or not finite, or all shares zero.
    pub fn new(shares: [f64; 3]) -> Result<Self, DataError> {
        let sum: f64 = shares.iter().sum();
        if shares.iter().any(|s| !s.is_finite() || *s < 0.0) || sum <= 0.0 {
            return Err(DataError::BadSplit { given: format!("{shares:?}") });
        }
        Ok(Split { shares })
    }

    /// The shares as given.
    pub fn shares(&self) -> [f64; 3] {
        self.shares
    }

    /// `0..total` in three contiguous ranges.
    ///
    /// The borders are the running sums of the normalised shares times `total`, rounded half to even as
    /// Python rounds, so that Megatron's own borders come out.
    pub fn cut(&self, total: u64) -> [Range<u64>; 3] {
        let sum: f64 = self.shares.iter().sum();
        let mut edges = [0, 0, 0, total];
        let mut running = 0.0;
        for i in 0..3 {
            running += self.shares[i] / sum;
            edges[i + 1] = ((running * total as f64).round_ties_even() as u64).clamp(edges[i], total);
        }
        if self.shares[2] > 0.0 {
            edges[3] = total;
        }
        [edges[0]..edges[1], edges[1]..edges[2], edges[2]..edges[3]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Megatron's borders for 1,000 documents at 949,50,1 (the golden index has 949, 50 and 1 documents).
    #[test]
    fn thousand_documents() {
        let split = Split::new([949.0, 50.0, 1.0]).unwrap();
        assert_eq!(split.cut(1000), [0..949, 949..999, 999..1000]);
    }

    #[test]
    fn all_of_the_whole_is_given_away() {
        for shares in [[969.0, 30.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.3, 0.3, 0.4]] {
            for total in [0, 1, 2, 7, 1000, 12345] {
                let [train, valid, test] = Split::new(shares).unwrap().cut(total);
                assert_eq!((train.start, train.end, valid.end), (0, valid.start, test.start));
                assert!(test.end <= total);
                if shares[2] > 0.0 {
                    assert_eq!(test.end, total);
                }
            }
        }
    }

    #[test]
    fn shares_that_mean_nothing_are_refused() {
        for shares in [[0.0; 3], [-1.0, 2.0, 0.0], [f64::NAN, 1.0, 0.0], [f64::INFINITY, 1.0, 0.0]] {
            assert!(Split::new(shares).is_err());
        }
    }
}
