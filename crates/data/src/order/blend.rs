//! Several corpora by weight: which corpus sample `i` comes from, and as its how many-th.
//!
//! Tijdeman's rule for the chairman assignment problem (Discrete Mathematics 32, 1980): among the corpora
//! whose quota has got ahead of their count by at least `1 / (2K - 2)`, take the one that would first fall
//! behind. Every count then stays within `1 - 1 / (2K - 2)` of weight times `i`, at every `i`. Megatron's
//! rule (always the largest lag) has no such bound.
//!
//! The rule is a recurrence, so counts are kept at every [`STRIDE`]-th sample as far as has been asked; a
//! jump to sample `i` for the first time costs about `i * K` nanoseconds, and no file.

use crate::error::DataError;
use std::sync::{Mutex, PoisonError};

/// Samples between kept counts.
const STRIDE: u64 = 1 << 16;
/// Forgives the rounding of `weight * i` in float64.
const SLACK: f64 = 1e-7;

/// The order in which corpora of given weights take turns.
#[derive(Debug)]
pub struct Blend {
    /// Normalised to a sum of one.
    weights: Vec<f64>,
    rule: Rule,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Tijdeman,
    Megatron,
}

#[derive(Debug)]
struct State {
    /// Counts of each corpus before sample `b * STRIDE`.
    counts: Vec<Vec<u64>>,
    /// Block whose turns are written out, and for each of its samples (corpus, number within it).
    block: u64,
    turns: Vec<(u32, u64)>,
}

impl Blend {
    /// # Errors
    /// A weight that is not a positive number.
    ///
    /// # Panics
    /// When there is no weight.
    pub fn new(weights: &[f64]) -> Result<Self, DataError> {
        Self::with_rule(weights, Rule::Tijdeman)
    }

    /// The turns of Megatron's BlendedDataset, which have no bound on the error.
    ///
    /// # Errors and panics
    /// As [`Blend::new`].
    pub fn megatron(weights: &[f64]) -> Result<Self, DataError> {
        Self::with_rule(weights, Rule::Megatron)
    }

    fn with_rule(weights: &[f64], rule: Rule) -> Result<Self, DataError> {
        assert!(!weights.is_empty(), "a blend of no corpora");
        if let Some(&weight) = weights.iter().find(|w| !(w.is_finite() && **w > 0.0)) {
            return Err(DataError::BadWeight { weight });
        }
        let sum: f64 = weights.iter().sum();
        let weights: Vec<f64> = weights.iter().map(|w| w / sum).collect();
        let counts = vec![vec![0; weights.len()]];
        Ok(Blend { weights, rule, state: Mutex::new(State { counts, block: u64::MAX, turns: Vec::new() }) })
    }

    /// The shares, with a sum of one.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The corpus of sample `i`, and how many samples it gave before.
    pub fn turn(&self, i: u64) -> (usize, u64) {
        if self.weights.len() == 1 {
            return (0, i);
        }
        // A panic of another thread leaves the tables as they were: they only ever grow by whole blocks.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_out(&mut state, i / STRIDE);
        let (corpus, number) = state.turns[(i % STRIDE) as usize];
        (corpus as usize, number)
    }

    /// How many of the first `i` samples come from `corpus`.
    pub fn count(&self, corpus: usize, i: u64) -> u64 {
        if self.weights.len() == 1 {
            return i;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_out(&mut state, i / STRIDE);
        let before = &state.turns[..(i % STRIDE) as usize];
        let last = before.iter().rev().find(|turn| turn.0 as usize == corpus);
        last.map_or(state.counts[(i / STRIDE) as usize][corpus], |turn| turn.1 + 1)
    }

    /// The sample of the run that is number `number` of `corpus`: the inverse of [`Blend::turn`].
    pub fn position(&self, corpus: usize, number: u64) -> u64 {
        // The count is within one of weight * i, so the answer lies within one sample's quota of this.
        let quota = number as f64 / self.weights[corpus];
        let margin = 2.0 / self.weights[corpus] + 2.0 + quota * 1e-9;
        let (mut low, mut high) = ((quota - margin).max(0.0) as u64, (quota + margin) as u64);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.count(corpus, middle + 1) > number { high = middle } else { low = middle + 1 }
        }
        low
    }

    fn write_out(&self, state: &mut State, block: u64) {
        while state.block != block {
            let known = state.counts.len() as u64 - 1;
            let from = block.min(known);
            let mut counts = state.counts[from as usize].clone();
            state.turns.clear();
            for i in from * STRIDE..(from + 1) * STRIDE {
                let corpus = self.next(i, &counts);
                state.turns.push((corpus as u32, counts[corpus]));
                counts[corpus] += 1;
            }
            state.block = from;
            if from == known {
                state.counts.push(counts);
            }
        }
    }

    fn next(&self, i: u64, counts: &[u64]) -> usize {
        match self.rule {
            Rule::Tijdeman => self.first_to_fall_behind(i, counts),
            Rule::Megatron => self.most_behind(i.max(1) as f64, counts),
        }
    }

    /// The corpus of the largest lag when `taken` samples are counted, the first of equals.
    fn most_behind(&self, taken: f64, counts: &[u64]) -> usize {
        let mut most = (f64::NEG_INFINITY, 0);
        for (corpus, (&weight, &count)) in self.weights.iter().zip(counts).enumerate() {
            let lag = weight * taken - count as f64;
            if lag > most.0 {
                most = (lag, corpus);
            }
        }
        most.1
    }

    fn first_to_fall_behind(&self, i: u64, counts: &[u64]) -> usize {
        let corpora = self.weights.len() as f64;
        let margin = 1.0 / (2.0 * corpora - 2.0);
        let mut best = (f64::INFINITY, 0);
        for (corpus, (&weight, &count)) in self.weights.iter().zip(counts).enumerate() {
            let lag = weight * (i + 1) as f64 - count as f64;
            let deadline = (1.0 - margin - lag) / weight;
            if lag >= margin - SLACK && deadline < best.0 {
                best = (deadline, corpus);
            }
        }
        if best.0.is_finite() { best.1 } else { self.most_behind((i + 1) as f64, counts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_random::{Philox, uniform};

    /// The largest distance of any count from weight times `i` over the first `samples` samples.
    fn largest_error(blend: &Blend, samples: u64) -> f64 {
        let mut counts = vec![0u64; blend.weights().len()];
        let mut largest = 0.0f64;
        for i in 0..samples {
            let (corpus, number) = blend.turn(i);
            assert_eq!(number, counts[corpus]);
            counts[corpus] += 1;
            for (weight, &count) in blend.weights().iter().zip(&counts) {
                largest = largest.max((weight * (i + 1) as f64 - count as f64).abs());
            }
        }
        largest
    }

    #[test]
    fn error_stays_below_one_sample() {
        for weights in [vec![0.3, 0.7], vec![1.0; 10], vec![0.9, 0.05, 0.03, 0.02], vec![1e-6, 1.0, 3.0]] {
            let error = largest_error(&Blend::new(&weights).unwrap(), 100_000);
            assert!(error < 1.0, "{weights:?}: {error}");
        }
        for case in 0..200u32 {
            let words = |j: u32| Philox::new(5).block([case, j, 0, 0]);
            let corpora = 2 + words(0)[0] % 12;
            let weights: Vec<f64> =
                (1..=corpora).map(|j| uniform::open_unit_f64(words(j)[1]).powi(1 + case as i32 % 5)).collect();
            let error = largest_error(&Blend::new(&weights).unwrap(), 3000);
            assert!(error < 1.0, "{weights:?}: {error}");
        }
    }

    #[test]
    fn jumps_agree_with_walking_and_positions_with_turns() {
        let weights = [5.0, 2.0, 0.5, 0.01];
        let (walked, jumped) = (Blend::new(&weights).unwrap(), Blend::new(&weights).unwrap());
        for i in [3 * STRIDE + 7, 5, STRIDE - 1, STRIDE, 2 * STRIDE + 1, 0] {
            let (corpus, number) = jumped.turn(i);
            assert_eq!((corpus, number), walked.turn(i));
            assert_eq!(walked.count(corpus, i), number);
            assert_eq!(walked.count(corpus, i + 1), number + 1);
            assert_eq!(walked.position(corpus, number), i);
        }
    }

    #[test]
    fn weights_that_mean_nothing_are_refused() {
        for weights in [[0.0, 1.0], [-1.0, 2.0], [f64::NAN, 1.0]] {
            assert!(Blend::new(&weights).is_err());
        }
    }
}
