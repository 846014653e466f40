//! What the readers give: examples with their labels, and what was left out.

use crate::EvalError;
use henge_files::{Operation, WithPath};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Two texts and a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The file's own name of it, or its line.
    pub id: String,
    /// The first text.
    pub first: String,
    /// The second text.
    pub second: String,
    /// Index among the task's classes.
    pub label: usize,
}

/// A question about a passage, with options of which one is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipleChoice {
    /// The passage's id and the question's number, from 0.
    pub id: String,
    /// What the question is about; shared by its questions.
    pub passage: Arc<str>,
    /// The question, perhaps with a blank written `_`.
    pub question: String,
    /// The options.
    pub options: [String; 4],
    /// Index of the right one.
    pub label: usize,
    /// Which school's examination it is from, where the folder says so.
    pub level: Option<Level>,
}

/// The two parts of RACE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Middle school.
    Middle,
    /// High school.
    High,
}

/// A question whose answer is a stretch of a passage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanQuestion {
    /// The file's name of it.
    pub id: String,
    /// What is read; shared by its questions.
    pub passage: Arc<str>,
    /// The question.
    pub question: String,
    /// The accepted answers; none where the passage does not answer it.
    pub answers: Vec<Answer>,
}

/// A stretch of a passage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// Its first byte in the passage.
    pub start: usize,
}

/// What to do with an example that is not as the task's form asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// End with its file and line.
    Refuse,
    /// Leave it out and list it.
    Skip,
}

/// What a file or folder held, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examples<T> {
    /// The examples.
    pub examples: Vec<T>,
    /// What was left out, for a person to see.
    pub skipped: Vec<Skipped>,
}

/// An example that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where it stands.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Why.
    pub problem: String,
}

impl<T> Examples<T> {
    pub(super) fn new() -> Self {
        Self { examples: Vec::new(), skipped: Vec::new() }
    }

    /// Takes an example, or what is wrong with it.
    pub(super) fn take(&mut self, example: Result<T, EvalError>, malformed: Malformed) -> Result<(), EvalError> {
        match example {
            Ok(example) => self.examples.push(example),
            Err(EvalError::Task { file, line, problem }) if malformed == Malformed::Skip => {
                self.skipped.push(Skipped { file, line, problem });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Refuses a file or folder without a single example.
    pub(super) fn not_empty(self, path: &Path) -> Result<Self, EvalError> {
        if !self.examples.is_empty() {
            return Ok(self);
        }
        let first = self.skipped.first();
        let problem = first.map_or_else(
            || "there is no example in it; give the task's file as it is published".to_string(),
            |first| format!("all {} examples are unusable, the first for: {}", self.skipped.len(), first.problem),
        );
        Err(EvalError::Empty { place: path.display().to_string(), problem })
    }
}

/// A file's text, without a byte order mark.
pub(super) fn read_text(path: &Path) -> Result<String, EvalError> {
    let bytes = std::fs::read(path).with_path(path, Operation::Read)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        wrong(path, line, "not UTF-8; convert the file to UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
}

pub(super) fn wrong(path: &Path, line: usize, problem: impl Into<String>) -> EvalError {
    EvalError::Task { file: path.to_path_buf(), line, problem: problem.into() }
}

/// The text as 1909.08053's code feeds it: no line breaks, single blanks, none before a full stop.
pub(super) fn clean(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace(" . ", ". ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lose_line_breaks_and_runs_of_blanks() {
        assert_eq!(clean(" one\n two \t three . Four ."), "one two three. Four .");
    }

    #[test]
    fn a_file_that_is_not_utf8_is_refused_at_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tsv");
        std::fs::write(&path, b"id\tx\n1\tcaf\xe9\n").unwrap();
        let error = read_text(&path).unwrap_err().to_string();
        assert!(error.ends_with("a.tsv:2: not UTF-8; convert the file to UTF-8"), "{error}");
        std::fs::write(&path, "\u{feff}id\n").unwrap();
        assert_eq!(read_text(&path).unwrap(), "id\n");
    }
}
