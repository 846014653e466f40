//! Blends that take over from each other at given samples.
//!
//! A corpus goes on in a later stage where it stood: which of its samples is read next depends only on
//! how many it has given, so nothing is read twice before everything has been read once.

use super::blend::Blend;
use crate::error::DataError;

/// From a sample of the run on, corpora by weight.
#[derive(Clone, Debug, PartialEq)]
pub struct BlendStage {
    /// The stage's first sample.
    pub from: u64,
    /// Corpora, by their place in the order's list, each at most once, with their weights.
    pub weights: Vec<(usize, f64)>,
}

/// The stages of a run.
#[derive(Debug)]
pub(super) struct Curriculum {
    stages: Vec<Stage>,
}

#[derive(Debug)]
struct Stage {
    from: u64,
    /// The order's corpus of each place in the blend.
    corpora: Vec<usize>,
    blend: Blend,
    /// Samples that each corpus of the order gave in earlier stages.
    before: Vec<u64>,
}

impl Curriculum {
    /// One blend of all corpora for the whole run.
    pub(super) fn of_one(blend: Blend) -> Self {
        let corpora = blend.weights().len();
        Curriculum { stages: vec![Stage { from: 0, corpora: (0..corpora).collect(), blend, before: vec![0; corpora] }] }
    }

    /// # Errors
    /// A weight that is not a positive number.
    ///
    /// # Panics
    /// When the first stage does not begin at 0, a later one not after the one before it, or a stage
    /// names no corpus or one that is not there.
    pub(super) fn new(stages: &[BlendStage], corpora: usize) -> Result<Self, DataError> {
        assert!(stages.first().is_some_and(|stage| stage.from == 0), "the first stage begins at sample 0");
        let mut curriculum = Curriculum { stages: Vec::new() };
        for stage in stages {
            let before = match curriculum.stages.last() {
                None => vec![0; corpora],
                Some(last) => {
                    assert!(last.from < stage.from, "stages begin one after another");
                    (0..corpora).map(|corpus| last.count(corpus, stage.from)).collect()
                }
            };
            let (members, weights): (Vec<usize>, Vec<f64>) = stage.weights.iter().copied().unzip();
            assert!(members.iter().all(|&corpus| corpus < corpora), "{members:?} of {corpora} corpora");
            curriculum.stages.push(Stage { from: stage.from, corpora: members, blend: Blend::new(&weights)?, before });
        }
        Ok(curriculum)
    }

    /// The corpus of sample `i`, and how many samples it gave before.
    pub(super) fn turn(&self, i: u64) -> (usize, u64) {
        let stage = self.stage_of(i);
        let (place, number) = stage.blend.turn(i - stage.from);
        let corpus = stage.corpora[place];
        (corpus, stage.before[corpus] + number)
    }

    /// How many of the first `i` samples come from `corpus`.
    pub(super) fn count(&self, corpus: usize, i: u64) -> u64 {
        self.stage_of(i).count(corpus, i)
    }

    /// The sample of the run that is number `number` of `corpus`: the inverse of [`Curriculum::turn`].
    ///
    /// # Panics
    /// When no stage gives so many.
    pub(super) fn position(&self, corpus: usize, number: u64) -> u64 {
        // The last stage that had given no more is the one that gives it, unless it leaves the corpus out.
        let mut stages = self.stages.iter().rev();
        let found = stages.find_map(|stage| {
            let place = stage.corpora.iter().position(|&member| member == corpus)?;
            let own = number.checked_sub(stage.before[corpus])?;
            Some(stage.from + stage.blend.position(place, own))
        });
        found.unwrap_or_else(|| panic!("corpus {corpus} never gives sample {number}"))
    }

    fn stage_of(&self, i: u64) -> &Stage {
        &self.stages[self.stages.partition_point(|stage| stage.from <= i) - 1]
    }
}

impl Stage {
    /// How many of the run's first `i` samples, from this stage's first on, come from `corpus`.
    fn count(&self, corpus: usize, i: u64) -> u64 {
        let place = self.corpora.iter().position(|&member| member == corpus);
        self.before[corpus] + place.map_or(0, |place| self.blend.count(place, i - self.from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages() -> Vec<BlendStage> {
        vec![
            BlendStage { from: 0, weights: vec![(0, 3.0), (1, 1.0)] },
            BlendStage { from: 1001, weights: vec![(2, 1.0)] },
            BlendStage { from: 1500, weights: vec![(1, 0.2), (0, 0.7), (2, 0.1)] },
        ]
    }

    /// Every corpus gives its samples 0, 1, 2 and so on, whatever the stage, near its weight in each.
    #[test]
    fn corpora_go_on_where_the_stage_before_left_them() {
        let curriculum = Curriculum::new(&stages(), 3).unwrap();
        let mut given = [0u64; 3];
        let mut at_start = given;
        for i in 0..4000 {
            if i == 1001 || i == 1500 {
                at_start = given;
            }
            let (corpus, number) = curriculum.turn(i);
            assert_eq!(number, given[corpus], "sample {i}");
            assert_eq!((curriculum.count(corpus, i), curriculum.position(corpus, number)), (number, i));
            given[corpus] += 1;
            let stage = stages().into_iter().rfind(|stage| stage.from <= i).unwrap();
            let sum: f64 = stage.weights.iter().map(|(_, weight)| weight).sum();
            for (corpus, weight) in stage.weights {
                let wanted = weight / sum * (i + 1 - stage.from) as f64;
                let own = (given[corpus] - at_start[corpus]) as f64;
                assert!((own - wanted).abs() < 1.0, "corpus {corpus} gave {own} of {wanted} by sample {i}");
            }
        }
        assert_eq!(given[2], 499 + 250);
    }

    #[test]
    fn one_stage_is_the_blend_itself() {
        let (blend, same) = (Blend::new(&[1.0, 2.0]).unwrap(), Curriculum::of_one(Blend::new(&[1.0, 2.0]).unwrap()));
        assert!((0..1000).all(|i| blend.turn(i) == same.turn(i)));
    }
}
