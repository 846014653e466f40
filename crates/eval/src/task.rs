//! Task files: a JSON object a line.

use crate::EvalError;
use henge_files::{Operation, WithPath};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// An example as it stands in a file.
pub(crate) struct Line {
    pub value: Value,
    file: PathBuf,
    line: usize,
}

impl Line {
    pub fn wrong(&self, problem: impl Into<String>) -> EvalError {
        EvalError::Task { file: self.file.clone(), line: self.line, problem: problem.into() }
    }

    /// Refuses an example whose tokens but the last are more than the model's positions.
    pub fn check_length(&self, tokens: usize, limit: usize) -> Result<(), EvalError> {
        if tokens <= limit + 1 {
            return Ok(());
        }
        let place = format!("{}:{}", self.file.display(), self.line);
        Err(EvalError::TooLong { place, tokens, limit: limit + 1, fix: "remove the line or shorten its context" })
    }
}

/// The first `limit` lines that are not blank.
pub(crate) fn read_lines(path: &Path, limit: Option<usize>) -> Result<Vec<Line>, EvalError> {
    let text = std::fs::read_to_string(path).with_path(path, Operation::Read)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(index, text): (usize, &str)| {
        let wrong = |problem: String| EvalError::Task { file: path.to_path_buf(), line: index + 1, problem };
        let value: Value = serde_json::from_str(text).map_err(|error| wrong(format!("not JSON: {error}")))?;
        Ok(Line { value, file: path.to_path_buf(), line: index + 1 })
    };
    let lines: Vec<Line> = lines.take(limit.unwrap_or(usize::MAX)).map(parse).collect::<Result<_, EvalError>>()?;
    if lines.is_empty() {
        let problem = "there is no example in it; give a file with one JSON object a line".to_string();
        return Err(EvalError::Empty { place: path.display().to_string(), problem });
    }
    Ok(lines)
}

/// The first of `keys` that holds a string.
pub(crate) fn string(line: &Line, keys: &[&str]) -> Result<String, EvalError> {
    let found = keys.iter().find_map(|key| line.value.get(*key)?.as_str());
    let wanted = || line.wrong(format!("there is no text under `{}`", keys.join("` or `")));
    found.map(str::to_string).ok_or_else(wanted)
}
