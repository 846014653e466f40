//! What an encoder makes of sequences, over any layout: vectors of texts, a task's logits.
//!
//! Sequences run in batches of like length, padded at their ends; replicas take batches in
//! turn. An encoder does not look at padding, so that no result depends on its batch.

use crate::downstream::{Padded, Sequence, mean_pool};
use crate::ranks::{Passed, Rank, longest_first, on_ranks};
use crate::{EvalError, Loaded, Progress};
use henge_comm::threads;
use henge_model::{Context, Microbatch};
use henge_spec::Layout;
use henge_tensor::Backend;
use std::sync::Arc;

/// What to read, and with what.
pub struct Encoding {
    /// The model, from [`Loaded::open_encoder`] or [`Loaded::open_tuned`].
    pub loaded: Arc<Loaded>,
    /// How it is cut.
    pub layout: Layout,
    /// The texts, framed by a [`crate::downstream::Packer`].
    pub sequences: Vec<Sequence>,
    /// Sequences that run together.
    pub batch: usize,
    /// Told of progress in sequences.
    pub progress: Arc<dyn Progress>,
}

/// One vector `[h]` of each sequence: the mean of its last hidden states, marks included
/// [Reimers and Gurevych 2019]. `backend` makes each rank's device.
///
/// # Errors
/// Sequences that are empty, too long or of another vocabulary, layouts without meaning,
/// weights that cannot be read, a rank that fails.
pub fn embed<B>(
    job: Encoding,
    options: threads::Options,
    backend: impl Fn(usize) -> B + Send + Sync + 'static,
) -> Result<Vec<Vec<f32>>, EvalError>
where
    B: Backend,
    B::Activation: 'static,
{
    job.check()?;
    let (loaded, layout, job) = (Arc::clone(&job.loaded), job.layout, Arc::new(job));
    let width = loaded.model().hidden;
    on_ranks(&loaded, &layout, options, backend, move |rank: Rank<B>| {
        job.run(&rank, width, |at, hidden, _, padded| {
            let hidden = at.backend.download(&rank.stage.normed(at, hidden));
            pooled(&hidden, padded).collect()
        })
    })
}

/// A fine-tuned head's logits of each sequence: `[classes]`, of an option `[1]`, of spans
/// `[s, 2]` with zeros behind its end. `backend` makes each rank's device.
///
/// # Errors
/// As [`embed`].
///
/// # Panics
/// When the model has no task's head.
pub fn task_logits<B>(
    job: Encoding,
    options: threads::Options,
    backend: impl Fn(usize) -> B + Send + Sync + 'static,
) -> Result<Vec<Vec<f32>>, EvalError>
where
    B: Backend,
    B::Activation: 'static,
{
    job.check()?;
    let (loaded, layout, job) = (Arc::clone(&job.loaded), job.layout, Arc::new(job));
    let task = loaded.model().task.expect("logits are asked of a fine-tuned model");
    let longest = job.sequences.iter().map(|sequence| sequence.tokens.len()).max().unwrap_or(0);
    let width = task.outputs() * if task.is_pooled() { 1 } else { longest };
    on_ranks(&loaded, &layout, options, backend, move |rank: Rank<B>| {
        job.run(&rank, width, |at, hidden, micro, _| {
            let logits = rank.stage.task_logits(at, hidden, micro);
            logits.chunks(logits.len() / micro.batch()).map(<[f32]>::to_vec).collect()
        })
    })
}

impl Encoding {
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

    /// What `end` makes of each sequence behind the last layer: at most `width` numbers.
    fn run<B: Backend>(
        &self,
        rank: &Rank<B>,
        width: usize,
        end: impl Fn(&Context<B>, B::Activation, &Microbatch, &Padded) -> Vec<Vec<f32>>,
    ) -> Result<Vec<Vec<f32>>, EvalError> {
        let mut table = vec![0.0; self.sequences.len() * width];
        let order = longest_first(self.sequences.len(), |at| self.sequences[at].tokens.len());
        for (index, batch) in rank.own_batches(&order, self.batch) {
            let padded = Padded::new(batch.iter().map(|&at| &self.sequences[at]), None, 0);
            let micro = self.microbatch(batch, &padded);
            let ended = rank.pass(index, micro.tokens.len(), |at, input| {
                let hidden = rank.stage.hidden(at, &micro, input)?;
                if !at.place.is_last() {
                    return Ok(Passed::On(hidden));
                }
                Ok(Passed::Ended(end(at, hidden, &micro, &padded)))
            })?;
            for (numbers, &at) in ended.into_iter().flatten().zip(batch) {
                let place = &mut table[at * width..(at + 1) * width];
                place.iter_mut().zip(numbers).for_each(|(out, value)| *out = f64::from(value));
            }
            if rank.speaks() {
                self.progress.advance(batch.len());
            }
        }
        rank.gather(&mut table)?;
        Ok(table.chunks(width).map(|numbers| numbers.iter().map(|&value| value as f32).collect()).collect())
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
