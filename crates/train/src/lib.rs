//! The training engine: walks a program, steps the optimizer, writes the run's numbers.
//!
//! - A [`Job`] is a checked run with its data, its starting weights and what to report.
//! - [`launch`] starts a rank per thread, [`train_rank`] is one rank over any engine; every rank walks the same kind of program
//!   (crate `schedule`) over its stages (crate `model`), with no branch on its number.
//! - [`Source`] is where sequences come from: a corpus in its order, or given batches. Each rank
//!   reads its [`Share`] ahead, off the path of the step.
//! - [`Observer`] is told of every step and evaluation on rank 0.
//! - [`RunLog`] writes them to the run's folder: `metrics.jsonl`, and an [`EventFile`] for TensorBoard.
//!
//! ```
//! use henge_spec::Model;
//! use henge_train::{GivenBatches, Source};
//! let text = r#"{"batches": [{"tokens": [[1, 2, 3]], "labels": [[2, 3, -100]]}]}"#;
//! let given = GivenBatches::parse(text, "given.json", &Model::gpt(1, 8, 1, 8, 10)).unwrap();
//! assert_eq!(given.batch(0, 0), Some(1));
//! assert_eq!(given.sequence(0).unwrap().labels, [2, 3, -100]);
//! ```
//!
//! This crate must not know: the command line.

mod diagnostics;
mod error;
mod evaluation;
mod executor;
mod given;
mod launch;
mod memory;
mod metrics;
mod optimizer;
mod pairs;
mod predict;
mod prefetch;
mod rank;
mod receipt;
mod saver;
mod saving;
mod scaler;
mod source;
mod tensorboard;
mod totals;

pub use error::TrainError;
pub use given::GivenBatches;
pub use launch::{Job, Options, ReadWeights, launch, train_rank};
pub use memory::KindReport;
pub use metrics::{EvaluationReport, MetricsFile, Observer, Record, RunLog, StepReport};
pub use pairs::{Frame, PairSource, PairValidationSource};
pub use prefetch::Share;
pub use rank::Ended;
pub use receipt::{Again, Receipt};
pub use source::{CorpusSource, Pair, Sequence, Source, ValidationSource};
pub use tensorboard::EventFile;
