//! What a trained model is asked: to go on with a text, and how likely given texts are.
//!
//! - [`Loaded`] is a checkpoint or a Hugging Face folder with its tokenizer.
//! - [`generate`] continues the prompts of a [`Generation`] with cached keys and values;
//!   [`Sampling`] says how tokens are chosen.
//! - [`score`] gives the loss of each target of the [`Passage`]s of a [`Scoring`], and
//!   whether it was the model's first choice.
//! - [`embed`] gives the vector of each text of an [`Encoding`], from an encoder;
//!   [`task_logits`] a fine-tuned head's answer to each of its sequences.
//! - [`WikiText`], [`Lambada`], [`PlainText`] and [`Choices`] are the protocols: each turns
//!   a file into [`Tokens`] to score and the scores into a report that states how it was
//!   measured.
//!
//! All of that runs over any layout; [`generate`] over one replica. [`downstream`] is of the tasks that encoders
//! are fine-tuned on: their files, sequences, scores and the paper's protocol, without a model.
//!
//! ```
//! use henge_eval::{Draw, Sampling, windows};
//!
//! // Windows of 8 targets, 2 apart: each of 19 targets is scored once.
//! let windows = windows(20, 8, 2).unwrap();
//! assert_eq!(windows.iter().map(|window| window.scored).sum::<usize>(), 19);
//!
//! // A draw depends on seed, prompt and position, not on what was drawn before.
//! let sampling = Sampling::Random(Draw { temperature: 0.8, top_k: Some(2), top_p: None, seed: 1 });
//! let logits = [0.1, 2.0, 1.9, -3.0];
//! assert_eq!(sampling.choose(&logits, 0, 5), sampling.choose(&logits, 0, 5));
//! assert!(matches!(sampling.choose(&logits, 0, 5), Some(1 | 2)));
//! ```
//!
//! This crate must not know: the command line, how a run is trained.

mod choices;
pub mod downstream;
mod encoder;
mod error;
mod generate;
mod lambada;
mod loaded;
mod perplexity;
mod ranks;
mod sampling;
mod scoring;
mod task;
mod text;
mod wikitext;
mod windows;

pub use choices::{Choices, ChoicesReport};
pub use encoder::{Encoding, embed, task_logits};
pub use error::EvalError;
pub use generate::{Completion, Finish, Generation, Listener, Silent, generate};
pub use lambada::{Lambada, LambadaReport};
pub use loaded::Loaded;
pub use perplexity::{PlainText, PlainTextReport};
pub use sampling::{Draw, Sampling};
pub use scoring::{Passage, Progress, Scoring, Unseen, score};
pub use wikitext::{WikiText, WikiTextReport, detokenize};
pub use windows::windows;

/// Tokens and the stretches of them to score.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The tokens.
    pub ids: Vec<u32>,
    /// What is scored.
    pub passages: Vec<Passage>,
}
