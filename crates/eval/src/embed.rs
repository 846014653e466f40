//! Vectors of texts from an encoder, over any layout.
//!
//! Sequences run in batches of like length, padded at their ends; replicas take batches in
//! turn. An encoder does not look at padding, so that a vector does not depend on its batch.

use crate::downstream::{Padded, Sequence, mean_pool};
use crate::ranks::{Passed, Rank, longest_first, on_ranks};
use crate::{EvalError, Loaded};
use henge_comm::threads;
use henge_model::Microbatch;
use henge_spec::Layout;
use henge_tensor::Backend;
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
        EvalError::refuse_zero("batch", self.batch)?;
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
        EvalError::refuse_foreign(tokens, model.vocab_size, place)
    }

    fn run<B: Backend>(&self, rank: &Rank<B>) -> Result<Vec<Vec<f32>>, EvalError> {
        let hidden_size = self.loaded.model().hidden;
        let mut table = vec![0.0; self.sequences.len() * hidden_size];
        let order = longest_first(self.sequences.len(), |at| self.sequences[at].tokens.len());
        for (index, batch) in rank.own_batches(&order, self.batch) {
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
        rank.gather(&mut table)?;
        Ok(table.chunks(hidden_size).map(|vector| vector.iter().map(|&value| value as f32).collect()).collect())
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
