//! From raw text to the tokens of sample `i`.
//!
//! - [`tokenizer::Tokenizer`] turns text into ids and back.
//! - [`prepare::prepare`] turns text, JSON lines and the like into an indexed corpus on disk, in constant
//!   memory, over any number of threads.
//! - [`clean::clean`] repairs, filters, de-duplicates and decontaminates text before that.
//! - [`indexed`] reads and writes that form, which is Megatron's `.bin` and `.idx`.
//! - [`Corpus`] is an open corpus; [`order::Split`] cuts it into training, validation and test.
//! - [`order::SampleOrder`] says which tokens sample `i` of a run holds, as a function of `i`.
//!
//! ```
//! use henge_data::order::{Part, SampleOrder, Split};
//! use henge_data::prepare::{Format, PrepareOptions, RECORD_EVERY, find_inputs, prepare};
//! use henge_data::{Corpus, tokenizer::Tokenizer};
//! use std::sync::atomic::AtomicBool;
//!
//! # fn main() -> Result<(), henge_data::DataError> {
//! let folder = tempfile::tempdir().unwrap();
//! let text = folder.path().join("rhyme.txt");
//! std::fs::write(&text, "Round and round the garden, like a teddy bear.\n".repeat(50)).unwrap();
//!
//! let tokenizer = Tokenizer::load("gpt2")?;
//! let options = PrepareOptions {
//!     inputs: find_inputs(&[text.to_str().unwrap().to_string()], Format::FromName)?,
//!     keys: vec!["text".into()],
//!     output: folder.path().join("rhyme"),
//!     end_of_document: None,
//!     workers: 2,
//!     record_every: RECORD_EVERY,
//! };
//! prepare(&options, &tokenizer, &AtomicBool::new(false), &mut |_| {})?;
//!
//! let corpus = Corpus::open(&options.output)?;
//! let split = Split::new([9.0, 1.0, 0.0])?;
//! let order = SampleOrder::shuffled(vec![(corpus.part(&split, Part::Train)?, 1.0)], 16, 1234)?;
//! assert_eq!(order.sample(3)?.len(), 17);
//! # Ok(())
//! # }
//! ```
//!
//! This crate must not know the trainer, nor of ranks more than a number.

pub mod bert;
mod card;
pub mod clean;
mod corpus;
mod error;
pub mod indexed;
pub mod inspect;
pub mod order;
pub mod prepare;
pub mod raw;
pub mod rearrange;
mod spool;
pub mod throughput;
pub mod tokenizer;
pub mod train_tokenizer;
pub mod verify;

pub use card::{CorpusCard, TokenizerCard};
pub use corpus::{Corpus, CorpusPart};
pub use error::DataError;
