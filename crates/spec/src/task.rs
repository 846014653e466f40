//! Fine-tuning: what an encoder's head is asked, and where a task's examples are.

use crate::model::named;

/// The head that replaces an encoder's pretraining heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskHead {
    /// So many classes of a sequence, from its pooled first token.
    Classes(usize),
    /// So many options, one sequence each, of which one is right: a number from each pooled
    /// first token.
    Choice(usize),
    /// First and last token of a stretch.
    Span,
}

impl TaskHead {
    /// Outputs of the head's linear layer.
    pub fn outputs(self) -> usize {
        match self {
            Self::Classes(classes) => classes,
            Self::Choice(_) => 1,
            Self::Span => 2,
        }
    }

    /// Whether the head reads the pooled first token; else every token.
    pub fn is_pooled(self) -> bool {
        self != Self::Span
    }

    /// Sequences of an example.
    pub fn group(self) -> usize {
        match self {
            Self::Choice(options) => options,
            Self::Classes(_) | Self::Span => 1,
        }
    }
}

/// The name of a [`TaskHead`] in a run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskHeadKind {
    Classes,
    Choice,
    Span,
}

named!(TaskHeadKind, "a task's head", "classes" => Classes, "choice" => Choice, "span" => Span);

/// A task with a reader and a score of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskName {
    /// MNLI: three classes of sentence pairs.
    Mnli,
    /// QQP: whether two questions ask the same.
    Qqp,
    /// RACE: four answers to a question on a passage.
    Race,
    /// SQuAD 1.1: a stretch of a passage.
    Squad1,
    /// SQuAD 2.0: a stretch of a passage or none.
    Squad2,
    /// Whether the second of two sentences follows the first.
    Consecutive,
}

named!(TaskName, "a task",
    "mnli" => Mnli, "qqp" => Qqp, "race" => Race, "squad1" => Squad1, "squad2" => Squad2,
    "consecutive" => Consecutive);

impl TaskName {
    /// The head that the task needs.
    pub fn head(self) -> TaskHead {
        match self {
            Self::Mnli => TaskHead::Classes(3),
            Self::Qqp | Self::Consecutive => TaskHead::Classes(2),
            Self::Race => TaskHead::Choice(4),
            Self::Squad1 | Self::Squad2 => TaskHead::Span,
        }
    }
}

/// A fine-tuning run's examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FineTuning {
    /// The task.
    pub name: TaskName,
    /// File of training examples; RACE: a folder.
    pub train: String,
    /// Files of examples to score, by path.
    pub valid: Vec<String>,
    /// Runs that differ in their seed alone; the median is reported (1909.08053, section 5.3).
    pub seeds: usize,
    /// Passes over the training examples; the run's steps follow from it, where they are not given.
    pub epochs: Option<usize>,
    /// Tokens to which sequences are cut and padded; at most the model's.
    pub length: Option<usize>,
}
