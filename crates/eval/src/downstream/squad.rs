//! SQuAD 1.1 and 2.0: questions answered by a stretch of a passage.

use super::examples::{Answer, Examples, Malformed, SpanQuestion, read_text, wrong};
use crate::EvalError;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

/// Which of the two forms, and so which official score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Squad {
    /// 1.1: each question has an answer.
    #[serde(rename = "1.1")]
    V1,
    /// 2.0: a passage may not answer a question.
    #[serde(rename = "2.0")]
    V2,
}

#[derive(Deserialize)]
struct File {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: String,
    qas: Vec<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    id: String,
    question: String,
    answers: Vec<Found>,
    #[serde(default)]
    is_impossible: bool,
}

#[derive(Deserialize)]
struct Found {
    text: String,
    /// In characters (Unicode scalar values).
    answer_start: u64,
}

impl Squad {
    /// Reads a file in the official form.
    ///
    /// # Errors
    /// A file that is no such JSON or has no question; under [`Malformed::Refuse`] an answer that does not
    /// stand in its passage where the file says, and a question without answers that 1.1 does not know or
    /// 2.0 does not mark as impossible, each with its line.
    pub fn read(self, path: &Path, malformed: Malformed) -> Result<Examples<SpanQuestion>, EvalError> {
        let text = read_text(path)?;
        let file: File = serde_json::from_str(&text).map_err(|error| {
            let problem = format!("{error}; give a file in SQuAD's form (data, paragraphs, context, qas, answers)");
            wrong(path, error.line().max(1), problem)
        })?;
        let mut source = Source { path, text: &text, at: 0, line: 1 };
        let mut examples = Examples::new();
        for paragraph in file.data.into_iter().flat_map(|article| article.paragraphs) {
            let passage: Arc<str> = paragraph.context.into();
            for asked in paragraph.qas {
                source.advance_to(&asked.id);
                let problem = |problem: String| source.wrong(&asked.id, &problem);
                examples.take(self.question(&passage, &asked).map_err(problem), malformed)?;
            }
        }
        examples.not_empty(path)
    }

    fn question(self, passage: &Arc<str>, asked: &Asked) -> Result<SpanQuestion, String> {
        // Version 2.0 gives impossible questions no answers; a file that does is not believed.
        match (self, asked.answers.is_empty(), asked.is_impossible) {
            (_, false, true) => return Err("marked impossible, but it has answers; remove one of the two".into()),
            (Squad::V1, true, _) => return Err("no answer; add one, or read the file as SQuAD 2.0".into()),
            (Squad::V2, true, false) => {
                return Err("no answer and not marked impossible; add answers or `is_impossible`".into());
            }
            _ => {}
        }
        if asked.question.trim().is_empty() {
            return Err("the question is empty; remove it".into());
        }
        let answers = asked.answers.iter().map(|found| found.locate(passage)).collect::<Result<_, _>>()?;
        let (id, question) = (asked.id.clone(), asked.question.clone());
        Ok(SpanQuestion { id, passage: Arc::clone(passage), question, answers })
    }
}

impl Found {
    fn locate(&self, passage: &str) -> Result<Answer, String> {
        let Found { text, answer_start } = self;
        if text.trim().is_empty() {
            return Err("an answer is empty; remove it".into());
        }
        let at = usize::try_from(*answer_start).ok().and_then(|nth| passage.char_indices().nth(nth));
        let start = at.map(|(byte, _)| byte).filter(|&byte| passage[byte..].starts_with(text.as_str()));
        start.map(|start| Answer { text: text.clone(), start }).ok_or_else(|| {
            let stands = passage.find(text.as_str()).map(|byte| passage[..byte].chars().count());
            let remedy = stands.map_or_else(
                || "it stands nowhere in the passage; remove or repair it".to_string(),
                |place| format!("it first stands at character {place}; repair `answer_start`"),
            );
            format!("answer {text:?} does not stand at character {answer_start} of its passage; {remedy}")
        })
    }
}

/// Where the questions stand in the file. Parsed JSON has no lines; the ids come in the file's order.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
    at: usize,
    line: usize,
}

impl Source<'_> {
    fn advance_to(&mut self, id: &str) {
        let written = serde_json::Value::from(id).to_string();
        let Some(found) = self.text[self.at..].find(&written) else { return };
        self.line += line_of(&self.text[self.at..], found) - 1;
        self.at += found + written.len();
    }

    fn wrong(&self, id: &str, problem: &str) -> EvalError {
        wrong(self.path, self.line, format!("question {id}: {problem}"))
    }
}

/// Line, from 1, of byte `at`.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count()
}
