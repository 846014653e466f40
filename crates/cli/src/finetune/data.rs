//! A task's files with the tokenizer that encodes them.

use super::source::{Cut, TaskExamples};
use crate::failure::Failure;
use henge_data::tokenizer::Tokenizer;
use henge_eval::downstream::{Malformed, Packer, PairTask, Sliding, Squad, Task, TaskForm, Truncation};
use henge_spec::{Run, TaskName};
use std::path::Path;
use std::sync::Arc;

/// Rows that a checkpoint's token table may have beyond its tokenizer: tables are padded for
/// tensor ranks.
const PADDING_OF_TABLES: usize = 1024;

/// The examples of a run.
pub struct Files {
    /// To train on.
    pub train: Arc<TaskExamples>,
    /// To be scored, by the name of the file.
    pub valid: Vec<(String, Arc<TaskExamples>)>,
    /// Tokens to which sequences are padded.
    pub length: usize,
    /// Runs.
    pub seeds: usize,
}

impl Files {
    /// Reads every file of the run's task; sequences are cut to `task.length`, or to `longest`.
    pub fn read(run: &Run, tokenizer: Tokenizer, longest: usize) -> Result<Self, Failure> {
        let task = run.task.as_ref().expect("a fine-tuning run has a task");
        if task.valid.is_empty() {
            let place = run.place("task.valid");
            return Err(Failure::request(format!("{place}: task.valid names no file, so nothing would be scored")));
        }
        let cut = Cut {
            length: task.length.unwrap_or(longest.min(run.model.seq_len)),
            truncation: truncation(task.name),
            group: task.name.head().group(),
        };
        let (form, tokenizer) = (form(task.name, cut.length), Arc::new(tokenizer));
        let read = |file: &String| open(&form, file, &tokenizer, cut).map(Arc::new);
        let train = read(&task.train)?;
        let valid = task.valid.iter().map(|file| Ok((file.clone(), read(file)?)));
        let valid = valid.collect::<Result<_, Failure>>()?;
        Ok(Self { train, valid, length: cut.length, seeds: task.seeds })
    }
}

fn open(form: &TaskForm, file: &str, tokenizer: &Arc<Tokenizer>, cut: Cut) -> Result<TaskExamples, Failure> {
    let mut packer = Packer::new(tokenizer, cut.length, cut.truncation)?;
    let data = form.read(Path::new(file), &mut packer, Malformed::Refuse)?;
    if let Some(first) = data.skipped().first() {
        let (left, line) = (data.skipped().len(), first.line);
        eprintln!("{file}: {left} examples left out, the first at line {line}: {}", first.problem);
    }
    Ok(TaskExamples::new(data, file, tokenizer.clone(), (cut, packer.pad())))
}

/// How the files of a task are read, of sequences of `length` tokens.
pub fn form(name: TaskName, length: usize) -> TaskForm {
    match name {
        TaskName::Mnli => Task::Mnli.form(),
        TaskName::Qqp => Task::Qqp.form(),
        TaskName::Race => Task::Race.form(),
        TaskName::Consecutive => TaskForm::Pairs(PairTask::consecutive()),
        TaskName::Squad1 => TaskForm::Spans(Squad::V1, sliding(length)),
        TaskName::Squad2 => TaskForm::Spans(Squad::V2, sliding(length)),
    }
}

/// BERT's windows, or of a shorter sequence the same shares of it: BERT's are of 384 tokens.
fn sliding(length: usize) -> Sliding {
    let Sliding { step, longest_question } = Sliding::BERT;
    Sliding { step: step.min(length / 3).max(1), longest_question: longest_question.min(length / 6).max(1) }
}

/// Megatron-LM cuts the tail, which would leave nothing of a second sentence behind a long one.
pub fn truncation(name: TaskName) -> Truncation {
    if name == TaskName::Consecutive { Truncation::LongestFirst } else { Truncation::Tail }
}

/// The run's tokenizer, held against the model's token table.
pub fn tokenizer(run: &Run, is_pretrained: bool) -> Result<Tokenizer, Failure> {
    let name = run.data.tokenizer.as_ref().expect("a checked fine-tuning run names its tokenizer");
    let tokenizer = Tokenizer::load(name)?;
    let (size, rows) = (tokenizer.vocabulary_size(), run.model.vocab_size);
    let is_foreign = size > rows || (is_pretrained && size + PADDING_OF_TABLES <= rows);
    if !is_foreign {
        return Ok(tokenizer);
    }
    let (place, told) = (run.place("data.tokenizer"), run.place("model.vocab_size"));
    Err(Failure::request(format!(
        "{place}: tokenizer {name} has {size} tokens, but the encoder has a vocabulary of {rows} ({told}): they do not \
         belong together; name the tokenizer that the encoder was trained with"
    )))
}
