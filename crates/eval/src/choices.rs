//! Multiple choice by likelihood: which of several endings follows a context best.

use crate::task::{Line, read_lines, string};
use crate::{EvalError, Tokens};
use henge_data::tokenizer::Tokenizer;
use henge_model::Score;
use serde::Serialize;
use std::path::Path;

const PROTOCOL: &str = "log likelihood of each ending, encoded behind one blank, given the context; the largest wins: \
                        of the sum, of the mean over the ending's tokens, and of the sum over its bytes";

/// The prepared questions.
pub struct Choices {
    questions: Vec<Question>,
}

struct Question {
    label: usize,
    /// Passage and bytes of each ending.
    endings: Vec<(usize, usize)>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct ChoicesReport {
    /// How it was measured.
    pub protocol: &'static str,
    /// Number of questions.
    pub questions: usize,
    /// Share right by the summed log likelihood.
    pub accuracy: f64,
    /// Share right by the mean log likelihood of a token.
    pub accuracy_per_token: f64,
    /// Share right by the log likelihood per byte.
    pub accuracy_per_byte: f64,
}

impl Choices {
    /// Reads JSON lines in HellaSwag's form: `ctx` (or `context`), `endings`, `label` (the
    /// index of the right ending), at most `limit` of them, for a model of `length`
    /// positions.
    pub fn prepare(
        path: &Path,
        tokenizer: &Tokenizer,
        length: usize,
        limit: Option<usize>,
    ) -> Result<(Self, Tokens), EvalError> {
        let (mut tokens, mut questions) = (Tokens::default(), Vec::new());
        let mut encoder = tokenizer.encoder();
        for line in read_lines(path, limit)? {
            let context = string(&line, &["ctx", "context"])?;
            let (mut before, mut endings) = (Vec::new(), Vec::new());
            encoder.encode(context.trim_end(), &mut before)?;
            if before.is_empty() {
                return Err(line.wrong("the context is empty"));
            }
            for ending in texts(&line)? {
                let (mut ids, text) = (before.clone(), format!(" {}", ending.trim_start()));
                encoder.encode(&text, &mut ids)?;
                line.check_length(ids.len(), length)?;
                endings.push((tokens.push(&ids, ids.len() - before.len()), text.len()));
            }
            questions.push(Question { label: label(&line, endings.len())?, endings });
        }
        Ok((Self { questions }, tokens))
    }

    /// The result from the scores of each passage.
    pub fn report(&self, scores: &[Vec<Score>]) -> ChoicesReport {
        let share = |cost: &dyn Fn(f64, usize, usize) -> f64| {
            let right = self.questions.iter().filter(|question| question.cheapest(scores, cost) == question.label);
            right.count() as f64 / self.questions.len() as f64
        };
        ChoicesReport {
            protocol: PROTOCOL,
            questions: self.questions.len(),
            accuracy: share(&|loss, _, _| loss),
            accuracy_per_token: share(&|loss, tokens, _| loss / tokens as f64),
            accuracy_per_byte: share(&|loss, _, bytes| loss / bytes as f64),
        }
    }
}

impl Question {
    /// The ending of least cost, a function of its loss, tokens and bytes; of equal ones
    /// the first.
    fn cheapest(&self, scores: &[Vec<Score>], cost: &dyn Fn(f64, usize, usize) -> f64) -> usize {
        let cost = |&(passage, bytes): &(usize, usize)| {
            let scores = &scores[passage];
            cost(scores.iter().map(|score| score.loss).sum(), scores.len(), bytes)
        };
        let costs = self.endings.iter().map(cost).enumerate();
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(index, _)| index)
    }
}

fn texts(line: &Line) -> Result<Vec<String>, EvalError> {
    let list = line.value.get("endings").and_then(|endings| endings.as_array());
    let texts: Option<Vec<String>> =
        list.and_then(|list| list.iter().map(|e| e.as_str().map(str::to_string)).collect());
    let texts = texts.filter(|texts| texts.len() > 1 && texts.iter().all(|text| !text.trim().is_empty()));
    texts.ok_or_else(|| line.wrong("`endings` must be a list of two or more texts, none of them empty"))
}

/// The label as a number, or as HellaSwag writes it, a string of digits.
fn label(line: &Line, endings: usize) -> Result<usize, EvalError> {
    let value = line.value.get("label");
    let number = value.and_then(|v| v.as_u64().or_else(|| v.as_str()?.trim().parse().ok()));
    let label = number.and_then(|n| usize::try_from(n).ok()).filter(|&label| label < endings);
    label.ok_or_else(|| line.wrong(format!("`label` must be a whole number from 0 to {}", endings - 1)))
}
