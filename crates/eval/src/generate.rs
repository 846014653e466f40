//! Generation: prompts in, continuations out, over any tensor and pipeline layout.
//!
//! Prompts are taken in batches. A step runs, for every sequence of the batch that is not
//! done, the tokens that its cache lacks: the prompt in pieces at first, then one token at
//! a time. The last stage gathers the logits over the tensor group, each of its ranks
//! chooses the same tokens, and the pipeline is told. From then on every rank knows what
//! every other does, so that no rank is asked whether to go on.

use crate::ranks::{Passed, Rank, on_ranks};
use crate::text::TextStream;
use crate::{EvalError, Loaded, Sampling};
use henge_comm::{Group, Reduce, threads};
use henge_data::tokenizer::Tokenizer;
use henge_model::{Cache, Context, Step};
use henge_spec::Layout;
use henge_tensor::{Backend, ViewMut};
use serde::Serialize;
use std::sync::Arc;

/// Most tokens of a prompt that enter the model in one step: enough for products at full
/// speed, and activations stay small beside the weights.
const PIECE: usize = 512;

/// What to continue, and how.
pub struct Generation {
    /// The model.
    pub loaded: Arc<Loaded>,
    /// Turns tokens into text; without, there are no stop strings and no text.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// How the model is cut; one replica.
    pub layout: Layout,
    /// Tokens of each prompt.
    pub prompts: Vec<Vec<u32>>,
    /// Prompts that run together.
    pub batch: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens of a continuation.
    pub max_tokens: usize,
    /// A token that ends a continuation and is no part of it.
    pub end: Option<u32>,
    /// Texts that end a continuation and are no part of it.
    pub stops: Vec<String>,
    /// Told of every token on rank 0.
    pub listener: Arc<dyn Listener>,
}

/// Told of continuations as they grow.
pub trait Listener: Send + Sync {
    /// A prompt's next token is chosen.
    fn chosen(&self, _prompt: usize, _token: u32) {}
    /// A prompt's text has grown by `text`, which stands.
    fn grown(&self, _prompt: usize, _text: &str) {}
    /// A prompt's continuation is complete.
    fn finished(&self, _completion: &Completion) {}
}

/// Hears nothing.
pub struct Silent;

impl Listener for Silent {}

/// Why a continuation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The end-of-document token.
    EndOfDocument,
    /// A stop string.
    Stop(String),
    /// As many tokens as asked for.
    MaxTokens,
    /// The model has no more positions.
    ModelLength,
}

/// A prompt's continuation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Completion {
    /// Index of the prompt.
    pub prompt: usize,
    /// Its tokens, without an end-of-document token; those of a stop string are among them.
    pub tokens: Vec<u32>,
    /// Its text, where there is a tokenizer.
    pub text: Option<String>,
    /// Why it ended.
    pub finish: Finish,
}

/// Continues every prompt; `backend` makes each rank's device.
///
/// # Errors
/// Prompts that are empty, too long or of another vocabulary, settings and layouts without
/// meaning, weights that cannot be read, a rank that fails.
pub fn generate<B>(
    job: Generation,
    options: threads::Options,
    backend: impl Fn(usize) -> B + Send + Sync + 'static,
) -> Result<Vec<Completion>, EvalError>
where
    B: Backend,
    B::Activation: 'static,
{
    job.check()?;
    let (loaded, layout, job) = (Arc::clone(&job.loaded), job.layout, Arc::new(job));
    on_ranks(&loaded, &layout, options, backend, move |rank: Rank<B>| job.run(&rank))
}

impl Generation {
    fn check(&self) -> Result<(), EvalError> {
        self.sampling.check()?;
        let Layout { tensor, pipeline, data, .. } = self.layout;
        if data != 1 {
            let problem =
                "prompts are not shared among replicas; leave d out, or start one command a replica".to_string();
            return Err(EvalError::Layout { tensor, pipeline, data, problem });
        }
        EvalError::refuse_zero("batch", self.batch)?;
        EvalError::refuse_zero("max-tokens", self.max_tokens)?;
        self.prompts.iter().enumerate().try_for_each(|(index, prompt)| self.check_prompt(index, prompt))
    }

    fn check_prompt(&self, index: usize, prompt: &[u32]) -> Result<(), EvalError> {
        let (place, limit) = (format!("prompt {}", index + 1), self.loaded.model().seq_len);
        let vocab_size = self.loaded.model().vocab_size;
        if prompt.is_empty() {
            let problem = "there are no tokens to begin from, and no end-of-document token stands for them";
            return Err(EvalError::Empty { place, problem: problem.to_string() });
        }
        if prompt.len() > limit {
            let fix = "shorten it, or keep its end only";
            return Err(EvalError::TooLong { place, tokens: prompt.len(), limit, fix });
        }
        EvalError::refuse_foreign(prompt, vocab_size, place)
    }

    fn run<B: Backend>(&self, rank: &Rank<B>) -> Result<Vec<Completion>, EvalError> {
        let mut completions = Vec::with_capacity(self.prompts.len());
        let mut steps = 0;
        for (batch, prompts) in self.prompts.chunks(self.batch).enumerate() {
            let first = batch * self.batch;
            let sequences = prompts.iter().enumerate().map(|(slot, prompt)| Sequence::new(self, first + slot, prompt));
            let mut batch = Batch { job: self, rank, sequences: sequences.collect() };
            let mut cache = rank.stage.cache(&rank.context(), prompts.len(), self.capacity(prompts));
            while batch.step(&mut cache, steps)? {
                steps += 1;
            }
            completions.extend(batch.sequences.into_iter().map(Sequence::completion));
        }
        Ok(completions)
    }

    /// Ids below this may be chosen: those that have a text, where there is a tokenizer.
    fn choosable(&self) -> usize {
        let all = self.loaded.model().vocab_size;
        self.tokenizer.as_ref().map_or(all, |tokenizer| tokenizer.vocabulary_size().min(all))
    }

    /// Tokens of the longest sequence that these prompts can become. The last token of a
    /// sequence is never an input.
    fn capacity(&self, prompts: &[Vec<u32>]) -> usize {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        (longest + self.max_tokens - 1).min(self.loaded.model().seq_len)
    }
}

/// The sequences of a batch; slot i of the cache is that of sequence i.
struct Batch<'a, B: Backend> {
    job: &'a Generation,
    rank: &'a Rank<'a, B>,
    sequences: Vec<Sequence<'a>>,
}

impl<B: Backend> Batch<'_, B> {
    /// Runs one step; `false` once every sequence is done.
    fn step(&mut self, cache: &mut Cache<B>, index: usize) -> Result<bool, EvalError> {
        let (mut step, mut growing) = (Step::default(), Vec::new());
        for (slot, sequence) in self.sequences.iter_mut().enumerate().filter(|(_, s)| s.finish.is_none()) {
            let (past, piece) = sequence.next_piece();
            step.push(slot, past, piece);
            growing.push((slot, sequence.cached == sequence.tokens.len()));
        }
        if growing.is_empty() {
            return Ok(false);
        }
        let chosen = self.rank.pass(index, step.tokens.len(), |at, input| {
            let hidden = self.rank.stage.decode(at, &step, cache, input)?;
            if !at.place.is_last() {
                return Ok(Passed::On(hidden));
            }
            Ok(Passed::Ended(self.choose(at, hidden, &step, &growing)?))
        })?;
        let mut chosen = chosen.unwrap_or_else(|| vec![0.0; growing.len()]);
        self.rank.broadcast_from_last_stage(&mut chosen)?;
        let told = (self.rank.comm.rank() == 0).then_some(self.job.listener.as_ref());
        for (&(slot, _), token) in growing.iter().zip(chosen).filter(|((_, whole), _)| *whole) {
            self.sequences[slot].take(token as u32, told)?;
        }
        Ok(true)
    }

    /// The next token of each sequence whose tokens are all in; 0 for the others.
    fn choose(
        &self,
        at: &Context<B>,
        hidden: B::Activation,
        step: &Step,
        growing: &[(usize, bool)],
    ) -> Result<Vec<f64>, EvalError> {
        if !growing.iter().any(|(_, whole)| *whole) {
            return Ok(vec![0.0; growing.len()]);
        }
        let logits = self.whole_logits(at, hidden, step)?;
        let choices = growing.iter().zip(logits.chunks_exact(at.model.vocab_size)).map(|(&(slot, whole), logits)| {
            let Sequence { prompt, tokens, .. } = &self.sequences[slot];
            let (prompt, position) = (*prompt, tokens.len());
            let logits = &logits[..self.job.choosable()];
            let choice = if whole { self.job.sampling.choose(logits, prompt, position) } else { Some(0) };
            choice.map(f64::from).ok_or(EvalError::NonFinite { prompt, position })
        });
        choices.collect()
    }

    /// Logits `[runs, V]` on every tensor rank: zeros plus one shard's values are exact.
    fn whole_logits(&self, at: &Context<B>, hidden: B::Activation, step: &Step) -> Result<Vec<f32>, EvalError> {
        let (shard, first) = self.rank.stage.next_logits(at, hidden, step);
        if at.place.tensors == 1 {
            return Ok(shard);
        }
        let (runs, vocab_size) = (step.runs.len(), at.model.vocab_size);
        let (width, mut whole) = (shard.len() / runs, vec![0.0; runs * vocab_size]);
        if width > 0 {
            for (out, shard) in whole.chunks_exact_mut(vocab_size).zip(shard.chunks_exact(width)) {
                out[first..first + width].copy_from_slice(shard);
            }
        }
        self.rank.comm.all_reduce(Group::Tensor, ViewMut::of(&mut whole), Reduce::Sum)?;
        Ok(whole)
    }
}

/// One prompt and what follows it.
struct Sequence<'a> {
    job: &'a Generation,
    prompt: usize,
    prompt_len: usize,
    tokens: Vec<u32>,
    /// Tokens that are in the cache, or will be after the step under way.
    cached: usize,
    text: Option<TextStream<'a>>,
    finish: Option<Finish>,
}

impl<'a> Sequence<'a> {
    fn new(job: &'a Generation, prompt: usize, tokens: &[u32]) -> Self {
        let text = job.tokenizer.as_ref().map(|tokenizer| TextStream::new(tokenizer, tokens, &job.stops));
        Self { job, prompt, prompt_len: tokens.len(), tokens: tokens.to_vec(), cached: 0, text, finish: None }
    }

    /// The next tokens to enter the model, behind how many.
    fn next_piece(&mut self) -> (usize, &[u32]) {
        let past = self.cached;
        self.cached = self.tokens.len().min(past + PIECE);
        (past, &self.tokens[past..self.cached])
    }

    /// Takes the chosen token and finds out whether the sequence is done.
    fn take(&mut self, token: u32, listener: Option<&dyn Listener>) -> Result<(), EvalError> {
        if let Some(listener) = listener {
            listener.chosen(self.prompt, token);
        }
        if self.job.end == Some(token) {
            self.finish = Some(Finish::EndOfDocument);
        } else {
            self.tokens.push(token);
            let stop = self.text.as_mut().map(|text| text.push(token)).transpose()?.flatten();
            self.finish = stop.map(Finish::Stop).or(self.at_a_limit());
        }
        if self.finish.is_some() && !matches!(self.finish, Some(Finish::Stop(_))) {
            let late = self.text.as_mut().map(TextStream::finish).transpose()?.flatten();
            self.finish = late.map(Finish::Stop).or(self.finish.take());
        }
        self.tell(listener);
        Ok(())
    }

    fn at_a_limit(&self) -> Option<Finish> {
        if self.tokens.len() - self.prompt_len >= self.job.max_tokens {
            return Some(Finish::MaxTokens);
        }
        (self.tokens.len() > self.job.loaded.model().seq_len).then_some(Finish::ModelLength)
    }

    fn tell(&mut self, listener: Option<&dyn Listener>) {
        let Some(listener) = listener else { return };
        let done = self.finish.is_some();
        if let Some(text) = &mut self.text {
            let new = if done { text.rest() } else { text.settled() };
            if !new.is_empty() {
                listener.grown(self.prompt, new);
            }
        }
        if done {
            listener.finished(&self.as_completion());
        }
    }

    fn as_completion(&self) -> Completion {
        Completion {
            prompt: self.prompt,
            tokens: self.tokens[self.prompt_len..].to_vec(),
            text: self.text.as_ref().map(|text| text.text().to_string()),
            finish: self.finish.clone().expect("a completion is asked of a sequence that is done"),
        }
    }

    fn completion(self) -> Completion {
        self.as_completion()
    }
}
