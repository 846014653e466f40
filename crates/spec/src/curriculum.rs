//! In which order a run reads its corpora, and when it changes the blend.

use crate::Batching;
use crate::model::named;

/// Which tokens sample `i` of a run holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// A keyed permutation, computed where it is needed.
    Formula,
    /// That of Megatron's GPTDataset, so that a run begun there goes on over the same samples.
    Megatron,
}

named!(Order, "an order", "formula" => Formula, "megatron" => Megatron);

/// From a sample of the run on, another blend.
#[derive(Clone, Debug, PartialEq)]
pub struct BlendStage {
    /// The first sample that it gives.
    pub from: u64,
    /// Corpus prefixes with their weights.
    pub train: Vec<(String, f64)>,
}

impl Batching {
    /// Samples that the first `steps` steps take together.
    pub fn consumed(&self, steps: u64) -> u64 {
        let (step, consumed) = self.walk(|step, _| step < steps);
        consumed.saturating_add((steps - step).saturating_mul(self.global as u64))
    }

    /// The step, from 0, that reads sample `sample`.
    pub fn step_of(&self, sample: u64) -> u64 {
        let (step, consumed) = self.walk(|_, end| end <= sample);
        step + (sample - consumed) / self.global as u64
    }

    /// Goes over the steps of the ramp while `more` wants the next, by its number and the samples
    /// at its end; behind the ramp all steps are alike. Returns steps and samples passed over.
    fn walk(&self, more: impl Fn(u64, u64) -> bool) -> (u64, u64) {
        let ramp = self.ramp_up.map_or(0, |ramp| ramp.samples);
        let (mut step, mut consumed) = (0, 0);
        while consumed < ramp && more(step, consumed + self.at(consumed) as u64) {
            consumed += self.at(consumed) as u64;
            step += 1;
        }
        (step, consumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RampUp;

    /// Against the loop that training goes through.
    #[test]
    fn steps_and_samples_are_those_of_training() {
        let ramp = |start, increment, samples| Some(RampUp { start, increment, samples });
        for ramp_up in [None, ramp(4, 4, 100), ramp(2, 7, 1), ramp(16, 1, 50), ramp(8, 2, 0)] {
            let batching = Batching { global: 16, micro: 1, ramp_up };
            let mut consumed = 0;
            for step in 0..60 {
                assert_eq!(batching.consumed(step), consumed, "{ramp_up:?}, step {step}");
                let end = consumed + batching.at(consumed) as u64;
                for sample in consumed..end {
                    assert_eq!(batching.step_of(sample), step, "{ramp_up:?}, sample {sample}");
                }
                consumed = end;
            }
        }
    }
}
