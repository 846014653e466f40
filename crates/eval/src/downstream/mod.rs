//! The tasks that an encoder is fine-tuned on, apart from the model: what the files say, the sequences they
//! become, and the official scores of what comes out.
//!
//! - [`PairTask`] (MNLI, QQP and tables like them), [`read_race`] and [`Squad::read`] give [`Examples`].
//! - [`Packer`] makes [`Encoded`] sequences of pairs and choices, and [`Window`]s of passages; [`Padded`] is a
//!   batch of them.
//! - [`TaskForm::read`] joins these: a [`TaskData`] encodes its items by number and scores a model's outputs.
//! - [`EpochOrder`] says which example comes when; [`Task::protocol`] is what the paper trained with.
//! - [`predicted_class`], [`ClassScores`] and [`RaceScores`] score classes; [`SpanSearch`] finds an answer's text,
//!   [`Squad::report`] scores it.
//! - [`median_run`], [`ensemble_logits`] and [`ensemble_probabilities`] join several runs.
//! - [`mean_pool`] and [`cosine`] compare whole texts.
//! - [`consecutive_pairs`] cuts a small task from WikiText.
//!
//! ```
//! use henge_eval::downstream::{Answer, Malformed, PairTask, Squad};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let path = folder.path().join("dev_matched.tsv");
//! let table = "index\tsentence1\tsentence2\tgold_label\n0\tIt rains.\tIt is dry.\tcontradiction\n";
//! std::fs::write(&path, table).unwrap();
//! let mnli = PairTask::mnli().read(&path, Malformed::Refuse).unwrap();
//! assert_eq!((mnli.examples[0].first.as_str(), mnli.examples[0].label), ("It rains.", 0));
//!
//! let score = Squad::V1.score("the  Eiffel Tower!", &[Answer { text: "Eiffel Tower".into(), start: 0 }]);
//! assert_eq!((score.exact_match, score.f1), (1.0, 1.0));
//! ```

mod classify;
mod consecutive;
mod dataset;
mod embedding;
mod examples;
mod order;
mod pack;
mod pairs;
mod protocol;
mod race;
mod runs;
mod spans;
mod squad;
mod squad_score;
mod table;
mod windows;

pub use classify::{ClassScores, RaceScores, predicted_class};
pub use consecutive::{PairCut, consecutive_pairs};
pub use dataset::{Head, TaskData, TaskForm, TaskReport};
pub use embedding::{cosine, mean_pool};
pub use examples::{Answer, Examples, Level, Malformed, MultipleChoice, Pair, Skipped, SpanQuestion};
pub use order::EpochOrder;
pub use pack::{Encoded, Packer, Padded, Sequence, Target, Truncation};
pub use pairs::PairTask;
pub use protocol::{ModelSize, Protocol, Task};
pub use race::read_race;
pub use runs::{Median, ensemble_logits, ensemble_probabilities, median_run};
pub use spans::{Candidate, Prediction, SpanSearch, WindowScores};
pub use squad::Squad;
pub use squad_score::{BestThresholds, SpanMeans, SpanScore, SquadReport, best_thresholds, normalise_answer};
pub use table::Quoting;
pub use windows::{Sliding, Window};
