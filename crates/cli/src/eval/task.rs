//! A fine-tuned head scored alone: the task and the length of its sequences are those that the
//! checkpoint records.

use super::{Bar, CommonArgs, Finished, facts};
use crate::asking::Asked;
use crate::failure::Failure;
use crate::finetune::data::{form, truncation};
use crate::finetune::resolve::paper;
use crate::finetune::results::said;
use henge_eval::downstream::{Malformed, ModelSize, Packer, TaskData};
use henge_eval::{Encoding, Progress, task_logits};
use henge_spec::TaskName;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: CommonArgs,
    /// The task's file as it is published; of RACE a folder
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// Tokens to which sequences are cut [default: as when the head was trained]
    #[arg(long, value_name = "N")]
    length: Option<usize>,
}

impl Args {
    /// Scores one of `tasks`, which `command` is for.
    pub fn run(self, command: &str, tasks: &[TaskName]) -> Result<(), Failure> {
        let asked = self.common.model.open_tuned()?;
        let (name, recorded) = recorded(&asked)?;
        if !tasks.contains(&name) {
            let path = asked.loaded.path().display();
            let words =
                format!("{path}: its head was fine-tuned on {name}, which `henge eval {command}` does not score");
            return Err(Failure::request(format!("{words}; use `henge eval {}`", command_of(name))));
        }
        let length = self.length(&asked, name, recorded)?;
        let tokenizer = self.common.model.tokenizer(&asked)?;
        let mut packer = Packer::new(&tokenizer, length, truncation(name))?;
        let data = form(name, length).read(&self.data, &mut packer, Malformed::Refuse)?;
        let begin = Instant::now();
        let report = data.report(&self.outputs(&asked, &data, &mut packer)?);
        let mut facts = facts(&asked, &name.to_string(), &self.data, begin);
        facts["protocol"] = json!("accuracy over every example of the file");
        facts["length"] = json!(length);
        let line = format!("{name}, {}: {}\n", self.data.display(), said(&report));
        Finished { scores: vec![], facts, json: self.common.json }.show(&report, || line)
    }

    fn length(&self, asked: &Asked, name: TaskName, recorded: Option<usize>) -> Result<usize, Failure> {
        let longest = asked.loaded.model().seq_len;
        match self.length {
            Some(length) if length > longest => {
                Err(Failure::request(format!("--length {length}: the model reads {longest} tokens; give at most that")))
            }
            Some(length) => Ok(length),
            None => Ok(recorded.unwrap_or(paper(name).protocol(ModelSize::M336).length.min(longest))),
        }
    }

    /// The head's output for each item: of multiple choice those of its options together.
    fn outputs(&self, asked: &Asked, data: &TaskData, packer: &mut Packer<'_>) -> Result<Vec<Vec<f32>>, Failure> {
        let encoded = (0..data.len()).map(|item| data.encode(item, packer)).collect::<Result<Vec<_>, _>>()?;
        let groups: Vec<usize> = encoded.iter().map(|encoded| encoded.sequences.len()).collect();
        let sequences: Vec<_> = encoded.into_iter().flat_map(|encoded| encoded.sequences).collect();
        let bar = Arc::new(Bar::new(sequences.len()));
        let (loaded, progress) = (Arc::clone(&asked.loaded), Arc::clone(&bar) as Arc<dyn Progress>);
        let job = Encoding { loaded, layout: asked.layout, sequences, batch: self.common.batch, progress };
        let logits = task_logits(job, asked.engine(), asked.device())?;
        bar.0.finish_and_clear();
        let mut logits = logits.into_iter();
        Ok(groups.into_iter().map(|group| logits.by_ref().take(group).flatten().collect()).collect())
    }
}

/// The task of the head and the length that its sequences were cut to.
fn recorded(asked: &Asked) -> Result<(TaskName, Option<usize>), Failure> {
    let path = asked.loaded.path().display();
    let Some((name, length)) = asked.loaded.recorded_task() else {
        let words = "the checkpoint does not record which task its head is for; give one of `henge finetune`";
        return Err(Failure::request(format!("{path}: {words}")));
    };
    let name = name.parse().map_err(|problem| Failure::request(format!("{path}: task.name: {problem}")))?;
    Ok((name, length))
}

/// The command that scores a task.
fn command_of(name: TaskName) -> &'static str {
    match name {
        TaskName::Mnli | TaskName::Qqp | TaskName::Consecutive => "glue",
        TaskName::Race => "race",
        TaskName::Squad1 | TaskName::Squad2 => "squad",
    }
}
