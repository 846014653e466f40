//! RACE: reading examinations with four options a question.

use super::examples::{Examples, Level, Malformed, MultipleChoice, clean, read_text, wrong};
use crate::EvalError;
use henge_files::{Operation, WithPath};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of RACE: one passage with its questions.
#[derive(Deserialize)]
struct Paper {
    article: String,
    questions: Vec<String>,
    options: Vec<Vec<String>>,
    answers: Vec<String>,
    id: Option<String>,
}

/// Reads a split of RACE (`RACE/dev`, with `middle` and `high` in it), one of its two halves, or one file.
/// Files are those that end in `.txt` or `.json`, in the order of their names.
///
/// # Errors
/// A folder without such files, a file that is no such JSON; under [`Malformed::Refuse`] a question without
/// four options or without one of them as its answer, with its file and line.
pub fn read_race(path: &Path, malformed: Malformed) -> Result<Examples<MultipleChoice>, EvalError> {
    let mut files = Vec::new();
    collect(path, &mut files)?;
    let mut examples = Examples::new();
    for file in &files {
        match read_paper(file) {
            Ok(questions) => {
                for question in questions {
                    examples.take(question, malformed)?;
                }
            }
            Err(error) => examples.take(Err(error), malformed)?,
        }
    }
    examples.not_empty(path)
}

/// Appends the files at or below `path`.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), EvalError> {
    if !path.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).with_path(path, Operation::List)?;
    let entries: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut entries = entries.with_path(path, Operation::List)?;
    entries.sort();
    for entry in entries {
        let is_paper = entry.extension().is_some_and(|ending| ending == "txt" || ending == "json");
        if is_paper || entry.is_dir() {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

fn read_paper(file: &Path) -> Result<Vec<Result<MultipleChoice, EvalError>>, EvalError> {
    let text = read_text(file)?;
    let paper: Paper = serde_json::from_str(&text).map_err(|error| {
        let problem = format!("{error}; a RACE file is one object with article, questions, options, answers and id");
        wrong(file, error.line().max(1), problem)
    })?;
    let counts = [paper.questions.len(), paper.options.len(), paper.answers.len()];
    if counts.iter().any(|&count| count != counts[0]) {
        let [questions, options, answers] = counts;
        let problem = format!(
            "{questions} questions, {options} lists of options and {answers} answers; each question needs one of both"
        );
        return Err(wrong(file, 1, problem));
    }
    let passage: Arc<str> = clean(&paper.article).into();
    if passage.is_empty() {
        return Err(wrong(file, 1, "`article` is empty; remove the file"));
    }
    let question = |number| Question { file, text: &text, paper: &paper, number }.read(&passage);
    Ok((0..paper.questions.len()).map(question).collect())
}

/// One question of a file.
struct Question<'a> {
    file: &'a Path,
    /// The file's text.
    text: &'a str,
    paper: &'a Paper,
    number: usize,
}

impl Question<'_> {
    fn read(&self, passage: &Arc<str>) -> Result<MultipleChoice, EvalError> {
        let Paper { questions, options, answers, id, .. } = self.paper;
        let name = self.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let options: Vec<String> = options[self.number].iter().map(|option| clean(option)).collect();
        let count = options.len();
        let options: [String; 4] =
            options.try_into().map_err(|_| self.wrong(format!("{count} options; expected 4")))?;
        let (answer, question) = (answers[self.number].trim(), clean(&questions[self.number]));
        let label = ["A", "B", "C", "D"].iter().position(|letter| *letter == answer);
        if question.is_empty() || options.iter().any(String::is_empty) {
            return Err(self.wrong("the question or an option is empty".to_string()));
        }
        Ok(MultipleChoice {
            id: format!("{}:{}", id.as_ref().unwrap_or(&name), self.number),
            passage: Arc::clone(passage),
            question,
            options,
            label: label.ok_or_else(|| self.wrong(format!("its answer is {answer:?}; expected A, B, C or D")))?,
            level: self.level(),
        })
    }

    fn level(&self) -> Option<Level> {
        let mut folders = self.file.ancestors().skip(1).filter_map(Path::file_name);
        folders.find_map(|folder| match folder.to_str() {
            Some("middle") => Some(Level::Middle),
            Some("high") => Some(Level::High),
            _ => None,
        })
    }

    fn wrong(&self, problem: String) -> EvalError {
        let written = serde_json::Value::from(self.paper.questions[self.number].as_str()).to_string();
        let line = super::squad::line_of(self.text, self.text.find(&written).unwrap_or(0));
        let problem = format!("question {}: {problem}; repair it or remove the question", self.number + 1);
        wrong(self.file, line, problem)
    }
}
