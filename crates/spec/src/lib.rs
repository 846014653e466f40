//! What a run is: the model, the layout over ranks, the training recipe, the data.
//!
//! Everything here is a plain value without files, clocks or tensors:
//!
//! - [`Model`] is the shape of a transformer; [`parameters`] lists its logical
//!   tensors, each with its global shape, the axis that tensor parallelism splits
//!   and its name in a Hugging Face folder.
//! - [`Layout`] says how a run is split over tensor, pipeline and data parallel
//!   ranks; [`Run`] is a whole run file, checked, each value with its source.
//! - [`formulas`] counts parameters, FLOP and bytes; [`MemoryForecast`] carries such
//!   a count from a planner to a trainer.
//!
//! ```
//! let text = r#"
//!     [model]
//!     layers = 2
//!     hidden = 64
//!     heads = 4
//!     seq_len = 32
//!     vocab_size = 500
//!     [data]
//!     train = ["corpus"]
//! "#;
//! let settings = henge_spec::Settings::parse(text, "run.toml").unwrap();
//! let run = henge_spec::Run::resolve(settings).unwrap();
//! assert_eq!(run.model.ffn_hidden, 4 * 64);
//! assert_eq!(run.layout.ranks(), 1);
//! ```
//!
//! This crate must not know: files, clocks, tensors, threads.

mod check;
mod curriculum;
mod dtype;
mod error;
mod forecast;
pub mod formulas;
mod keys;
mod layout;
mod model;
mod parameters;
mod presets;
mod read;
mod rope;
mod run;
mod settings;
mod task;

pub use curriculum::{BlendStage, Order};
pub use dtype::DType;
pub use error::SpecError;
pub use forecast::MemoryForecast;
pub use layout::{Layout, Recompute, ScheduleKind};
pub use model::{Activation, Arch, DropoutRates, Model, NormPlacement};
pub use parameters::{HfSource, Home, Init, Parameter, Split, parameters};
pub use presets::{preset, preset_names};
pub use rope::{Rope, RopeScaling};
pub use run::{Batching, Data, Decay, LossScale, Optimizer, Precision, RampUp, Run, Training};
pub use settings::{Settings, Source};
pub use task::{FineTuning, TaskHead, TaskName};
