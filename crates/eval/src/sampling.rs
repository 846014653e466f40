//! Which token comes next.
//!
//! A draw is a function of the seed, the prompt's number and the position, and of nothing
//! else: whoever else is in the batch and however the model is cut, the same uniform number
//! falls on the same distribution. The token is found by summing probabilities in the order
//! of ids, so that rounding moves the edges a little and never the order.

use crate::EvalError;
use henge_random::{Philox, key};

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// The token of the largest logit; of equal ones the first.
    Greedy,
    /// A draw from the softmax of the logits.
    Random(Draw),
}

/// A distribution to draw from, and the seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Divides the logits; above 0.
    pub temperature: f64,
    /// Only this many of the most likely tokens, where given; of equal ones the first.
    pub top_k: Option<usize>,
    /// Only the most likely tokens up to this share of the probability, where given; at
    /// least one. Applied after `top_k`.
    pub top_p: Option<f64>,
    /// Seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// Refuses numbers without meaning.
    pub fn check(&self) -> Result<(), EvalError> {
        let Self::Random(draw) = self else { return Ok(()) };
        let wrong = |setting, value: String, expected| Err(EvalError::Setting { setting, value, expected });
        if !(draw.temperature.is_finite() && draw.temperature > 0.0) {
            return wrong("temperature", draw.temperature.to_string(), "it must be a number above 0, or 0 for greedy");
        }
        if draw.top_k == Some(0) {
            return wrong("top-k", "0".to_string(), "it must be 1 or more");
        }
        match draw.top_p {
            Some(p) if !(p > 0.0 && p <= 1.0) => wrong("top-p", p.to_string(), "it must be above 0 and at most 1"),
            _ => Ok(()),
        }
    }

    /// The token at `position` of prompt `prompt`, or `None` where the logits are no
    /// numbers.
    pub fn choose(&self, logits: &[f32], prompt: usize, position: usize) -> Option<u32> {
        let most = largest(logits);
        if logits.iter().any(|logit| logit.is_nan()) || !most.is_finite() {
            return None;
        }
        match self {
            Self::Greedy => logits.iter().position(|&logit| logit == most).map(|id| id as u32),
            Self::Random(draw) => Some(draw.choose(logits, prompt, position)),
        }
    }
}

impl Draw {
    fn choose(&self, logits: &[f32], prompt: usize, position: usize) -> u32 {
        let max = f64::from(largest(logits));
        let weight = |id: u32| ((f64::from(logits[id as usize]) - max) / self.temperature).exp();
        let kept = self.kept(logits, weight);
        let total: f64 = kept.iter().map(|&id| weight(id)).sum();
        let (target, mut sum) = (self.uniform(prompt, position) * total, 0.0);
        let hit = kept.iter().find(|&&id| {
            sum += weight(id);
            sum > target
        });
        // Only rounding can leave the target above the last sum.
        hit.or(kept.last()).copied().expect("at least one token is kept")
    }

    /// The tokens that may be drawn, in the order of ids.
    fn kept(&self, logits: &[f32], weight: impl Fn(u32) -> f64) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        let better = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        if let Some(k) = self.top_k.filter(|&k| k < ids.len()) {
            ids.select_nth_unstable_by(k - 1, better);
            ids.truncate(k);
        }
        if let Some(p) = self.top_p {
            ids.sort_unstable_by(better);
            let share = p * ids.iter().map(|&id| weight(id)).sum::<f64>();
            let mut sum = 0.0;
            let enough = ids.iter().position(|&id| {
                sum += weight(id);
                sum >= share
            });
            ids.truncate(enough.map_or(ids.len(), |last| last + 1));
        }
        ids.sort_unstable();
        ids
    }

    /// A number of 53 bits in `[0, 1)`: key (seed, "sample"), counter (prompt, position).
    fn uniform(&self, prompt: usize, position: usize) -> f64 {
        let prompt = prompt as u64;
        let counter = [prompt as u32, (prompt >> 32) as u32, position as u32, 0];
        let [low, high, ..] = Philox::new(key(self.seed, "sample")).block(counter);
        ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn largest(logits: &[f32]) -> f32 {
    logits.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAW: Draw = Draw { temperature: 1.0, top_k: None, top_p: None, seed: 7 };

    fn counts(draw: Draw, logits: &[f32], draws: usize) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        for prompt in 0..draws {
            counts[draw.choose(logits, prompt, 3) as usize] += 1;
        }
        counts
    }

    /// Frequencies of 40,000 draws within four standard deviations of the softmax.
    #[test]
    fn draws_follow_the_softmax() {
        let (logits, n) = ([0.5f32, -1.0, 2.0, 0.0], 40_000);
        for temperature in [0.7, 1.0, 2.5] {
            let exp: Vec<f64> = logits.iter().map(|&l| (f64::from(l) / temperature).exp()).collect();
            let total: f64 = exp.iter().sum();
            for (count, exp) in counts(Draw { temperature, ..DRAW }, &logits, n).iter().zip(&exp) {
                let p = exp / total;
                let spread = 4.0 * (n as f64 * p * (1.0 - p)).sqrt();
                assert!((*count as f64 - n as f64 * p).abs() < spread, "{count} of {n}, expected {p}");
            }
        }
    }

    #[test]
    fn top_k_keeps_the_most_likely_and_top_p_the_smallest_share_that_suffices() {
        // Probabilities 0.5, 0.25, 0.125, 0.125.
        let logits = [8f32, 4.0, 2.0, 2.0].map(f32::ln);
        let support = |draw| counts(draw, &logits, 2_000).iter().map(|&count| count > 0).collect::<Vec<_>>();
        assert_eq!(support(Draw { top_k: Some(2), ..DRAW }), [true, true, false, false]);
        assert_eq!(support(Draw { top_k: Some(3), ..DRAW }), [true, true, true, false]);
        assert_eq!(support(Draw { top_k: Some(99), ..DRAW }), [true; 4]);
        assert_eq!(support(Draw { top_p: Some(0.4), ..DRAW }), [true, false, false, false]);
        assert_eq!(support(Draw { top_p: Some(0.7), ..DRAW }), [true, true, false, false]);
        assert_eq!(support(Draw { top_p: Some(1.0), ..DRAW }), [true; 4]);
        // Of the three kept by top-k, half the probability is the first one's 4/7.
        assert_eq!(support(Draw { top_k: Some(3), top_p: Some(0.5), ..DRAW }), [true, false, false, false]);
    }

    #[test]
    fn greedy_takes_the_first_of_equals_and_nothing_from_no_numbers() {
        assert_eq!(Sampling::Greedy.choose(&[1.0, 3.0, 3.0], 0, 0), Some(1));
        assert_eq!(Sampling::Greedy.choose(&[1.0, f32::NAN, 3.0], 0, 0), None);
        assert_eq!(Sampling::Random(DRAW).choose(&[f32::INFINITY, 0.0], 0, 0), None);
    }

    #[test]
    fn meaningless_numbers_are_refused() {
        for draw in [
            Draw { temperature: 0.0, ..DRAW },
            Draw { temperature: f64::NAN, ..DRAW },
            Draw { top_k: Some(0), ..DRAW },
            Draw { top_p: Some(0.0), ..DRAW },
            Draw { top_p: Some(1.5), ..DRAW },
        ] {
            assert!(Sampling::Random(draw).check().is_err(), "{draw:?}");
        }
        assert!(Sampling::Random(DRAW).check().is_ok());
    }
}
