//! The errors of a run file.

use thiserror::Error;

/// What is wrong with a run file: where, which key, why, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// The file is not TOML.
    #[error("{file}:{line}: not valid TOML: {problem}")]
    Syntax {
        /// The run file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The parser's words.
        problem: String,
    },
    /// A key that no run file has.
    #[error("{place}: unknown key `{key}`{}", .nearest.as_ref().map_or_else(
        || format!("; the keys are {}", crate::keys::names()),
        |near| format!("; did you mean `{near}`?")))]
    UnknownKey {
        /// File and line, or `--set`.
        place: String,
        /// The key.
        key: String,
        /// The known key that looks most like it.
        nearest: Option<String>,
    },
    /// A value of the wrong type.
    #[error("{place}: `{key}` must be {expected}, not `{found}`")]
    WrongType {
        /// File and line, or `--set`.
        place: String,
        /// The key.
        key: String,
        /// What it must be.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A key that must be given and is not.
    #[error("{file}: `{key}` is missing; {fix}")]
    Missing {
        /// The run file.
        file: String,
        /// The key.
        key: String,
        /// What to do.
        fix: String,
    },
    /// A value, or a combination of values, that cannot be run.
    #[error("{place}: `{key} = {value}`: {problem}; {fix}")]
    Impossible {
        /// File and line, `--set`, or `default`.
        place: Box<str>,
        /// The key.
        key: Box<str>,
        /// Its value.
        value: Box<str>,
        /// Which rule it breaks.
        problem: Box<str>,
        /// What to do.
        fix: Box<str>,
    },
    /// A value that contradicts the weights a run starts from.
    #[error("{place}: `{key} = {value}` contradicts {other} of {origin}; remove the key or set it to {other}")]
    Contradiction {
        /// File and line, or `--set`.
        place: Box<str>,
        /// The key.
        key: Box<str>,
        /// Its value.
        value: Box<str>,
        /// The value it contradicts.
        other: Box<str>,
        /// Where that value stands.
        origin: Box<str>,
    },
    /// An override that is not `key=value`.
    #[error("--set {text}: expected key=value, as in --set train.steps=20")]
    BadOverride {
        /// What was given.
        text: String,
    },
}
