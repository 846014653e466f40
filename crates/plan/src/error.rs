//! What can be wrong with a request to plan.

use henge_schedule::ScheduleError;
use thiserror::Error;

/// Why there is no plan.
#[derive(Debug, Error, PartialEq)]
pub enum PlanError {
    /// A cluster file that is not TOML, or lacks a key, or has one too many.
    #[error("{file}:{line}: {problem}")]
    ClusterFile {
        /// The cluster file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The parser's words.
        problem: String,
    },
    /// A value that no machine has.
    #[error("{file}:{line}: `{key} = {value}` is absurd: {why}; expected {low} to {high}")]
    AbsurdValue {
        /// The cluster file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The key with its section.
        key: String,
        /// Its value.
        value: f64,
        /// What the key means.
        why: &'static str,
        /// Smallest value that is believed.
        low: f64,
        /// Largest value that is believed.
        high: f64,
    },
    /// A cluster that is neither in the catalogue nor a file.
    #[error("no cluster `{name}`{}: the catalogue has {}; or name a cluster file",
        .nearest.as_ref().map_or_else(String::new, |near| format!(" (did you mean `{near}`?)")), .known.join(", "))]
    UnknownCluster {
        /// What was asked for.
        name: String,
        /// The entry that looks most like it.
        nearest: Option<String>,
        /// All entries.
        known: Vec<String>,
    },
    /// A layout that breaks a rule.
    #[error("impossible layout {layout}: {rule}; {fix}")]
    Layout {
        /// The layout in words.
        layout: String,
        /// The rule that it breaks.
        rule: String,
        /// The way out.
        fix: String,
    },
    /// A layout text that cannot be read.
    #[error("layout `{text}`: {problem}; write it as t=8,p=12,d=1,v=4,b=1")]
    LayoutText {
        /// What was given.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A model's shape that cannot be read.
    #[error(
        "model `{text}`: {problem}; name a preset, a run file, or a shape such as \
        layers=32,hidden=3840,heads=32,seq_len=2048,vocab_size=51200"
    )]
    ModelText {
        /// What was given.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A switch value that does not exist.
    #[error("{switch}: `{given}` is not one of {allowed}")]
    Switch {
        /// The switch.
        switch: &'static str,
        /// What was given.
        given: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// A model that no rank layout of the cluster can hold.
    #[error("does not fit: {0}")]
    DoesNotFit(String),
    /// A number of GPUs or a batch for which no layout exists.
    #[error(
        "no legal layout of {layers} layers and {heads} heads on {gpus} GPUs with a batch of {batch} sequences; {fix}"
    )]
    NoLayout {
        /// GPUs asked for.
        gpus: usize,
        /// Global batch in sequences.
        batch: usize,
        /// Layers of the model.
        layers: usize,
        /// Heads of the model.
        heads: usize,
        /// The way out.
        fix: String,
    },
    /// A schedule that does not exist.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A figure or table that is not there.
    #[error("no published {what} {number}; there are {known}")]
    UnknownFigure {
        /// Figure or table.
        what: &'static str,
        /// What was asked for.
        number: String,
        /// What there is.
        known: String,
    },
}
