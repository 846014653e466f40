//! One form for all tasks: numbered items to train on or to be scored by, and the score of a model's outputs.

use super::classify::{ClassScores, RaceScores, predicted_class};
use super::examples::{Examples, Malformed, MultipleChoice, Pair, Skipped, SpanQuestion};
use super::pack::{Encoded, Packer};
use super::pairs::PairTask;
use super::protocol::Task;
use super::race::read_race;
use super::spans::{Prediction, SpanSearch, WindowScores};
use super::squad::Squad;
use super::squad_score::SquadReport;
use super::windows::{Sliding, Window};
use crate::EvalError;
use serde::Serialize;
use std::path::Path;

/// A task's form: how its files are read and what its head gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskForm {
    /// Classes of pairs.
    Pairs(PairTask),
    /// Four options (RACE).
    Choice,
    /// Stretches of a passage.
    Spans(Squad, Sliding),
}

/// What the linear layer on top of the encoder gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A logit for each of so many classes, from the pooled `[CLS]`.
    Classes(usize),
    /// One logit from the pooled `[CLS]` of each option's sequence; softmax is over the options.
    Choice,
    /// Two logits of each token, as the answer's first and as its last.
    Span,
}

/// A file of a task, ready to be encoded. An item is an example; of spans, a window of a question.
pub struct TaskData {
    items: Items,
    skipped: Vec<Skipped>,
}

enum Items {
    Pairs { classes: usize, pairs: Vec<Pair> },
    Choices(Vec<MultipleChoice>),
    Spans { version: Squad, questions: Vec<SpanQuestion>, windows: Vec<Window> },
}

impl Task {
    /// The form of the paper's task.
    pub fn form(self) -> TaskForm {
        match self {
            Task::Mnli => TaskForm::Pairs(PairTask::mnli()),
            Task::Qqp => TaskForm::Pairs(PairTask::qqp()),
            Task::Race => TaskForm::Choice,
            Task::Squad1 => TaskForm::Spans(Squad::V1, Sliding::BERT),
            Task::Squad2 => TaskForm::Spans(Squad::V2, Sliding::BERT),
        }
    }
}

/// The scores of a model's outputs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TaskReport {
    /// Of pairs.
    Classes(ClassScores),
    /// Of RACE.
    Race(RaceScores),
    /// Of SQuAD.
    Squad(SquadReport),
}

impl TaskForm {
    /// The head that the task needs.
    pub fn head(&self) -> Head {
        match self {
            Self::Pairs(task) => Head::Classes(task.classes.len()),
            Self::Choice => Head::Choice,
            Self::Spans(..) => Head::Span,
        }
    }

    /// Reads a file (RACE: a folder); passages are cut into windows at once.
    ///
    /// # Errors
    /// Those of [`PairTask::read`], [`read_race`], [`Squad::read`] and [`Packer::windows`].
    pub fn read(&self, path: &Path, packer: &mut Packer<'_>, malformed: Malformed) -> Result<TaskData, EvalError> {
        match self {
            Self::Pairs(task) => {
                let Examples { examples: pairs, skipped } = task.read(path, malformed)?;
                Ok(TaskData { items: Items::Pairs { classes: task.classes.len(), pairs }, skipped })
            }
            Self::Choice => {
                let Examples { examples, skipped } = read_race(path, malformed)?;
                Ok(TaskData { items: Items::Choices(examples), skipped })
            }
            Self::Spans(version, sliding) => {
                let Examples { examples: questions, skipped } = version.read(path, malformed)?;
                let windows = packer.windows(&questions, *sliding)?;
                Ok(TaskData { items: Items::Spans { version: *version, questions, windows }, skipped })
            }
        }
    }
}

impl TaskData {
    /// Number of items, never 0.
    #[expect(clippy::len_without_is_empty, reason = "a file without an example is refused when it is read")]
    pub fn len(&self) -> usize {
        match &self.items {
            Items::Pairs { pairs, .. } => pairs.len(),
            Items::Choices(choices) => choices.len(),
            Items::Spans { windows, .. } => windows.len(),
        }
    }

    /// What the files held that is no example.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Item `index` as sequences and target.
    ///
    /// # Panics
    /// When `index` is not below [`TaskData::len`].
    pub fn encode(&self, index: usize, packer: &mut Packer<'_>) -> Result<Encoded, EvalError> {
        match &self.items {
            Items::Pairs { pairs, .. } => packer.pair(&pairs[index]),
            Items::Choices(choices) => packer.choice(&choices[index]),
            Items::Spans { windows, .. } => Ok(windows[index].encoded()),
        }
    }

    /// The scores of a model's logits, `outputs[i]` those of item `i`: of pairs `[classes]`, of a choice `[4]`, of
    /// a window `[s, 2]` (first, last), which may have rows of padding at its end. Of SQuAD 2.0 no answer is given
    /// where it scores higher than the best one (threshold 0).
    ///
    /// # Panics
    /// When there is not an output of that size for each item.
    pub fn report(&self, outputs: &[Vec<f32>]) -> TaskReport {
        assert_eq!(outputs.len(), self.len(), "an output for each item");
        let predicted = |width: usize| -> Vec<usize> {
            assert!(outputs.iter().all(|logits| logits.len() == width), "{width} logits an item");
            outputs.iter().map(|logits| predicted_class(logits)).collect()
        };
        match &self.items {
            Items::Pairs { classes, pairs } => {
                let truth: Vec<usize> = pairs.iter().map(|pair| pair.label).collect();
                TaskReport::Classes(ClassScores::new(&predicted(*classes), &truth, *classes))
            }
            Items::Choices(choices) => TaskReport::Race(RaceScores::new(&predicted(4), choices)),
            Items::Spans { version, questions, windows } => {
                let predictions = predictions(questions, windows, outputs);
                TaskReport::Squad(version.report(questions, &predictions, 0.0))
            }
        }
    }
}

/// The answer to each question from the outputs of its windows, which follow one another.
fn predictions(questions: &[SpanQuestion], windows: &[Window], outputs: &[Vec<f32>]) -> Vec<Prediction> {
    let columns = |logits: &Vec<f32>| -> [Vec<f32>; 2] {
        [0, 1].map(|column| logits.iter().skip(column).step_by(2).copied().collect())
    };
    let columns: Vec<[Vec<f32>; 2]> = outputs.iter().map(columns).collect();
    let scores = windows.iter().zip(&columns).map(|(window, [start, end])| WindowScores { window, start, end });
    let scores: Vec<WindowScores<'_>> = scores.collect();
    let of_question = scores.chunk_by(|a, b| a.window.question == b.window.question);
    of_question.map(|scores| SpanSearch::BERT.answer(&questions[scores[0].window.question], scores)).collect()
}

impl TaskReport {
    /// The number by which runs are compared, 0 to 1: accuracy, or SQuAD's F1.
    pub fn score(&self) -> f64 {
        match self {
            Self::Classes(scores) => scores.accuracy,
            Self::Race(scores) => scores.all.accuracy,
            Self::Squad(report) => report.all.f1 / 100.0,
        }
    }
}
