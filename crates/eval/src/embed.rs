//! Vectors of texts from an encoder, over any layout.
//!
//! Sequences run in batches of like length, padded at their ends; replicas take batches in
//! turn. An encoder does not look at padding, so that a vector does not depend on its batch.

use crate::downstream::{Padded, Sequence, mean_pool};
use crate::ranks::{Passed, Rank, on_ranks};
use crate::{EvalError, Loaded};
use henge_comm::{Group, Reduce, threads};
use henge_model::Microbatch;
use henge_spec::Layout;
use henge_tensor::{Backend, ViewMut};
use std::sync::Arc;

/// What to make vectors of, and with what.
pub struct Embedding {
    /// The model, from [`Loaded::open_encoder`].
    pub loaded: Arc<Loaded>,
    /// How it is cut.
    pub layout: Layout,
    /// The texts, framed by a [`crate::downstream::Packer`].
    pub sequences: Vec<Sequence>,
    /// Sequences that run together.
    pub batch: usize,
}

/// One vector `[h]` of each sequence: the mean of its last hidden states, marks included
/// [Reimers and Gurevych 2019]. `backend` makes each rank's device.
///
/// # Errors
/// Sequences that are empty, too long or of another vocabulary, layouts without meaning,
/// weights that cannot be read, a rank that fails.
pub fn embed<B>(
    job: Embedding,
    options: threads::Options,
    backend: impl Fn(usize) -> B + Send + Sync + 'static,
) -> Result<Vec<Vec<f32>>, EvalError>
where
    B: Backend,
    B::Activation: 'static,
{
    job.check()?;
    let (loaded, layout, job) = (Arc::clone(&job.loaded), job.layout, Arc::new(job));
    on_ranks(&loaded, &layout, options, backend, move |rank: Rank<B>| job.run(&rank))
}

impl Embedding {
    fn check(&self) -> Result<(), EvalError> {
        if self.batch == 0 {
            return Err(EvalError::Setting { setting: "batch", value: "0".into(), expected: "it must be 1 or more" });
        }
        self.sequences.iter().enumerate().try_for_each(|(index, sequence)| self.check_sequence(index, sequence))
    }

    fn check_sequence(&self, index: usize, Sequence { tokens, .. }: &Sequence) -> Result<(), EvalError> {
        let (place, model) = (format!("text {}", index + 1), self.loaded.model());
        if tokens.is_empty() {
            return Err(EvalError::Empty { place, problem: "there are no tokens".to_string() });
        }
        if tokens.len() > model.seq_len {
            let (tokens, limit) = (tokens.len(), model.seq_len);
            return Err(EvalError::TooLong { place, tokens, limit, fix: "shorten it" });
        }
        match tokens.iter().find(|&&token| token as usize >= model.vocab_size) {
            Some(&token) => Err(EvalError::TokenBeyondVocabulary { place, token, vocab_size: model.vocab_size }),
            None => Ok(()),
        }
    }

    fn run<B: Backend>(&self, rank: &Rank<B>) -> Result<Vec<Vec<f32>>, EvalError> {
        let grid = rank.comm.grid();
        let (replica, replicas) = (grid.place(rank.comm.rank()).data, grid.axes().data);
        let hidden_size = self.loaded.model().hidden;
        let mut table = vec![0.0; self.sequences.len() * hidden_size];
        let order = self.by_length();
        for (index, batch) in order.chunks(self.batch).enumerate().filter(|(index, _)| index % replicas == replica) {
            let padded = Padded::new(batch.iter().map(|&at| &self.sequences[at]), None, 0);
            let micro = self.microbatch(batch, &padded);
            let hidden = rank.pass(index, micro.tokens.len(), |at, input| {
                let hidden = rank.stage.hidden(at, &micro, input)?;
                if !at.place.is_last() {
                    return Ok(Passed::On(hidden));
                }
                Ok(Passed::Ended(at.backend.download(&rank.stage.normed(at, hidden))))
            })?;
            for (vector, &at) in hidden.iter().flat_map(|hidden| pooled(hidden, &padded)).zip(batch) {
                let place = &mut table[at * hidden_size..(at + 1) * hidden_size];
                place.iter_mut().zip(vector).for_each(|(out, value)| *out = f64::from(value));
            }
        }
        // Each vector stands in one replica's table and is zero in the others'.
        rank.comm.all_reduce(Group::Data, ViewMut::of(&mut table), Reduce::Sum)?;
        rank.broadcast_from_last_stage(&mut table)?;
        Ok(table.chunks(hidden_size).map(|vector| vector.iter().map(|&value| value as f32).collect()).collect())
    }

    /// Sequences by length, so that little is padded.
    fn by_length(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.sequences.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(self.sequences[at].tokens.len()));
        order
    }

    fn microbatch(&self, batch: &[usize], padded: &Padded) -> Microbatch {
        let has_types = self.loaded.model().token_types > 0;
        Microbatch {
            samples: vec![0; batch.len()],
            tokens: padded.tokens.clone(),
            lengths: batch.iter().map(|&at| self.sequences[at].tokens.len()).collect(),
            types: if has_types { padded.types.iter().map(|&kind| u32::from(kind)).collect() } else { Vec::new() },
            ..Microbatch::default()
        }
    }
}

/// The vector of each sequence of `hidden [b s, h]`.
fn pooled<'a>(hidden: &'a [f32], padded: &'a Padded) -> impl Iterator<Item = Vec<f32>> + 'a {
    let sequences = padded.mask.chunks(padded.length);
    hidden.chunks(hidden.len() / sequences.len()).zip(sequences).map(|(hidden, mask)| mean_pool(hidden, mask))
}
