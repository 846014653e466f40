//! Decoding: new tokens over the cached keys and values of the earlier ones.
//!
//! Sequences of one step need not be equally long: a step is a list of runs of new tokens,
//! `[tokens, h]` with the runs one after the other, so that prompts are not padded and a
//! long prompt stands beside one new token of another sequence.

use crate::attention::Attention;
use crate::{Context, Stage};
use henge_comm::CommError;
use henge_tensor::{Backend, CachedRun, Kind};

/// The new tokens of some sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Whose tokens they are, in order.
    pub runs: Vec<CachedRun>,
    /// The tokens, those of a run together.
    pub tokens: Vec<u32>,
}

impl Step {
    /// Adds a sequence's new tokens, `past` of which are in slot `slot` of the cache.
    pub fn push(&mut self, slot: usize, past: usize, tokens: &[u32]) {
        self.runs.push(CachedRun { slot, past, new: tokens.len() });
        self.tokens.extend_from_slice(tokens);
    }

    /// Position of each token in its sequence.
    pub(crate) fn positions(&self) -> Vec<u32> {
        self.runs.iter().flat_map(|run| run.past..run.past + run.new).map(|position| position as u32).collect()
    }

    /// Row of each run's last token.
    fn last_rows(&self) -> Vec<usize> {
        let ends = self.runs.iter().scan(0, |end, run| {
            *end += run.new;
            Some(*end - 1)
        });
        ends.collect()
    }
}

/// Keys and values of a stage's layers on one tensor rank: its own heads.
pub struct Cache<B: Backend> {
    layers: Vec<B::Buffer>,
    capacity: usize,
}

impl<B: Backend> Stage<B> {
    /// An empty cache for `slots` sequences of up to `capacity` tokens.
    pub fn cache(&self, at: &Context<B>, slots: usize, capacity: usize) -> Cache<B> {
        let len = slots * Attention::cached_call(at, &[], capacity).slot_len();
        Cache { layers: self.layers.iter().map(|_| at.backend.zeros(len, Kind::Activation)).collect(), capacity }
    }

    /// Hidden state of a step's tokens, `[tokens, h]`, and their keys and values in the
    /// cache. `input` is the previous stage's hidden state, or `None` on the first.
    pub fn decode(
        &self,
        at: &Context<B>,
        step: &Step,
        cache: &mut Cache<B>,
        input: Option<B::Activation>,
    ) -> Result<B::Activation, CommError> {
        let mut x = match (&self.embedding, input) {
            (Some(embedding), None) => embedding.forward_at(at, &step.tokens, &step.positions())?,
            (None, Some(x)) => x,
            _ => unreachable!("the first stage, and only it, begins with tokens"),
        };
        for (layer, buffer) in self.layers.iter().zip(&mut cache.layers) {
            x = layer.forward_cached(at, step, cache.capacity, buffer, x)?;
        }
        Ok(x)
    }

    /// Logits behind the last token of each run over this rank's vocabulary shard,
    /// `[runs, shard]`, and the shard's first index, from the last stage's hidden state.
    ///
    /// # Panics
    /// On a stage without a head.
    pub fn next_logits(&self, at: &Context<B>, hidden: B::Activation, step: &Step) -> (Vec<f32>, usize) {
        let rows = step.last_rows();
        let hidden = at.backend.take_rows(&hidden, &rows);
        self.logits(at, hidden, 0..rows.len())
    }
}
