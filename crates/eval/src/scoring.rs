//! How well a model predicts given targets, over any layout.
//!
//! A passage is a stretch of tokens whose last targets are scored. Passages run in batches
//! of like length; replicas take batches in turn, and the stages of a pipeline work on
//! several batches at once. What a passage scores does not depend on its batch: padding
//! stands behind its tokens, where a causal model does not look.

use crate::ranks::{Passed, Rank, longest_first, on_ranks};
use crate::{EvalError, Loaded};
use henge_comm::threads;
use henge_model::{Microbatch, Score, Scored};
use henge_spec::Layout;
use henge_tensor::Backend;
use std::ops::Range;
use std::sync::Arc;

/// A stretch of tokens of which the last ones are targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Which tokens; all but the last are inputs.
    pub tokens: Range<usize>,
    /// How many of them, from the end, are scored: each given all before it. Fewer than
    /// there are.
    pub scored: usize,
}

/// What to score, and with what.
pub struct Scoring {
    /// The model.
    pub loaded: Arc<Loaded>,
    /// How it is cut.
    pub layout: Layout,
    /// The tokens that passages are stretches of.
    pub tokens: Vec<u32>,
    /// The passages.
    pub passages: Vec<Passage>,
    /// Passages that run together.
    pub batch: usize,
    /// Told of progress.
    pub progress: Arc<dyn Progress>,
}

/// Told how many passages are done.
pub trait Progress: Send + Sync {
    /// Some more passages are done.
    fn advance(&self, _passages: usize) {}
}

/// Looks away.
pub struct Unseen;

impl Progress for Unseen {}

/// The scores of each passage's targets; `backend` makes each rank's device.
///
/// # Errors
/// Passages that are too long or of another vocabulary, layouts without meaning, weights
/// that cannot be read, a rank that fails.
pub fn score<B>(
    job: Scoring,
    options: threads::Options,
    backend: impl Fn(usize) -> B + Send + Sync + 'static,
) -> Result<Vec<Vec<Score>>, EvalError>
where
    B: Backend,
    B::Activation: 'static,
{
    job.check()?;
    let (loaded, layout, job) = (Arc::clone(&job.loaded), job.layout, Arc::new(job));
    on_ranks(&loaded, &layout, options, backend, move |rank: Rank<B>| job.run(&rank))
}

impl Scoring {
    fn check(&self) -> Result<(), EvalError> {
        EvalError::refuse_zero("batch", self.batch)?;
        let model = self.loaded.model();
        EvalError::refuse_foreign(&self.tokens, model.vocab_size, "the text".to_string())?;
        for (index, passage) in self.passages.iter().enumerate() {
            let inputs = passage.tokens.len().saturating_sub(1);
            assert!(passage.scored <= inputs, "{passage:?} scores more than it predicts");
            if inputs > model.seq_len {
                let (place, limit) = (format!("passage {}", index + 1), model.seq_len);
                return Err(EvalError::TooLong { place, tokens: inputs, limit, fix: "shorten it" });
            }
        }
        Ok(())
    }

    fn run<B: Backend>(&self, rank: &Rank<B>) -> Result<Vec<Vec<Score>>, EvalError> {
        let firsts = self.firsts();
        let mut table = vec![0.0; 2 * firsts.last().copied().unwrap_or(0)];
        let order = longest_first(self.passages.len(), |passage| self.passages[passage].tokens.len());
        for (index, batch) in rank.own_batches(&order, self.batch) {
            let micro = self.microbatch(batch);
            let scores = rank.pass(index, micro.tokens.len(), |at, input| {
                Ok(match rank.stage.score(at, &micro, input)? {
                    Scored::Hidden(hidden) => Passed::On(hidden),
                    Scored::Scores(scores) => Passed::Ended(scores),
                })
            })?;
            let mut scores = scores.into_iter().flatten();
            for &passage in batch {
                for (at, score) in (firsts[passage]..firsts[passage + 1]).zip(scores.by_ref()) {
                    (table[2 * at], table[2 * at + 1]) = (score.loss, f64::from(u8::from(score.is_best)));
                }
            }
            if rank.speaks() {
                self.progress.advance(batch.len());
            }
        }
        rank.gather(&mut table)?;
        let score = |pair: &[f64]| Score { loss: pair[0], is_best: pair[1] != 0.0 };
        let of_passage = |ends: &[usize]| table[2 * ends[0]..2 * ends[1]].chunks_exact(2).map(score).collect();
        Ok(firsts.windows(2).map(of_passage).collect())
    }

    /// Place of each passage's first score, and the number of all.
    fn firsts(&self) -> Vec<usize> {
        let mut end = 0;
        let ends = self.passages.iter().map(|passage| {
            end += passage.scored;
            end
        });
        std::iter::once(0).chain(ends.collect::<Vec<_>>()).collect()
    }

    fn microbatch(&self, batch: &[usize]) -> Microbatch {
        let longest = batch.iter().map(|&passage| self.passages[passage].tokens.len()).max().unwrap_or(1);
        let seq = longest.saturating_sub(1).max(1);
        let mut micro = Microbatch { samples: vec![0; batch.len()], ..Microbatch::default() };
        for &passage in batch {
            let Passage { tokens, scored } = &self.passages[passage];
            let tokens = &self.tokens[tokens.clone()];
            let inputs = tokens.len().saturating_sub(1);
            micro.tokens.extend_from_slice(&tokens[..inputs]);
            micro.labels.extend(std::iter::repeat_n(-1, inputs - scored));
            micro.labels.extend(tokens[tokens.len() - scored..].iter().map(|&token| i64::from(token)));
            micro.tokens.extend(std::iter::repeat_n(0, seq - inputs));
            micro.labels.extend(std::iter::repeat_n(-1, seq - inputs));
        }
        micro
    }
}
