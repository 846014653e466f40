//! From a run file to a checked fine-tuning run: what it does not say is taken from the
//! starting weights and from the task's protocol.

use super::data::{Files, tokenizer};
use crate::failure::Failure;
use crate::train::resolve::{origin, read, reader};
use henge_checkpoint::{Source, TokenizerFile, open_source};
use henge_eval::downstream::{ModelSize, Protocol, Task};
use henge_spec::{Run, Settings, TaskName};
use henge_train::ReadWeights;
use std::path::Path;
use toml::Value;

/// Examples, before their files are read: enough for whatever warm-up is asked.
const ANY_NUMBER: usize = 1 << 32;

/// A run that differs from seed to seed in its seed and folder alone.
pub struct Resolved {
    /// Its keys.
    settings: Settings,
    /// With the first seed and the folder of all seeds.
    pub run: Run,
    /// Starting weights.
    pub weights: Option<ReadWeights>,
    /// The examples.
    pub files: Files,
    /// Where recipe values that nobody gave come from.
    pub protocol: String,
}

impl Resolved {
    /// The run of a seed, in a folder of its own.
    pub fn of_seed(&self, index: usize) -> Result<Run, Failure> {
        let seed = self.run.seed + index as u64;
        let mut settings = self.settings.clone();
        let origin = format!("seed {} of task.seeds = {}", index + 1, self.files.seeds);
        settings.replace("run.seed", whole(seed), &origin);
        settings.replace("run.dir", Value::String(format!("{}/seed-{seed}", self.run.dir)), &origin);
        Ok(Run::resolve(settings)?)
    }
}

/// Reads a run file, its starting weights' facts and its examples.
pub fn resolve(file: &Path, overrides: &[String]) -> Result<Resolved, Failure> {
    let mut settings = read(file, overrides)?;
    let name = task_name(&settings)?;
    let origin = format!("the protocol of {}", words(name));
    // Before the weights' own: they were trained with what pretraining needed.
    settings.fill("model.dropout", Value::Float(paper(name).protocol(ModelSize::M336).dropout), &origin);
    let source = match settings.text("init.from").map(str::to_string) {
        Some(from) => Some(adopt(&mut settings, Path::new(&from))?),
        None => None,
    };
    let (protocol, group) = (paper(name).protocol(size(&settings)), name.head().group());
    adopt_recipe(&mut settings, &protocol, group, &origin)?;
    // Every rule is checked before a file is read; the steps follow from the files.
    let first = Run::resolve(with_steps(&settings, (&protocol, group), ANY_NUMBER, &origin))?;
    let tokenizer = tokenizer(&first, source.is_some())?;
    let files = Files::read(&first, tokenizer, protocol.length)?;
    let settings = with_steps(&settings, (&protocol, group), files.train.len(), &origin);
    let run = Run::resolve(settings.clone())?;
    let weights = source.map(|source| reader(source, &run.model)).transpose()?;
    Ok(Resolved { settings, run, weights, files, protocol: origin })
}

/// The task, which the run file must name.
fn task_name(settings: &Settings) -> Result<TaskName, Failure> {
    let Some(given) = settings.text("task.name") else {
        let file = settings.file();
        return Err(Failure::request(format!("{file}: it names no task; add [task] with name, train and valid")));
    };
    let place = settings.source("task.name");
    given.parse().map_err(|problem| Failure::request(format!("{place}: task.name: {problem}")))
}

/// The task of the paper whose recipe a task is trained with.
pub fn paper(name: TaskName) -> Task {
    match name {
        TaskName::Mnli => Task::Mnli,
        // None is published for pairs of sentences; it too has pairs and two classes.
        TaskName::Qqp | TaskName::Consecutive => Task::Qqp,
        TaskName::Race => Task::Race,
        TaskName::Squad1 => Task::Squad1,
        TaskName::Squad2 => Task::Squad2,
    }
}

fn words(name: TaskName) -> String {
    match name {
        TaskName::Consecutive => "qqp, as none is published for consecutive".to_string(),
        name => name.to_string(),
    }
}

/// The paper's model next to this one: layers have about 12 hidden^2 parameters.
fn size(settings: &Settings) -> ModelSize {
    let number = |key: &str| settings.whole(key).unwrap_or(0) as f64;
    let parameters = 12.0 * number("model.layers") * number("model.hidden").powi(2);
    match parameters {
        _ if parameters < 0.65e9 => ModelSize::M336,
        _ if parameters < 2.2e9 => ModelSize::B1_3,
        _ => ModelSize::B3_9,
    }
}

/// Model and tokenizer of the starting weights. A task's head of theirs is not gone on with.
fn adopt(settings: &mut Settings, from: &Path) -> Result<Box<dyn Source>, Failure> {
    let source = open_source(from)?;
    let mut facts = source.facts();
    facts.retain(|key, _| !key.starts_with("model.task"));
    let origin = origin(source.as_ref());
    settings.adopt(&facts, &origin)?;
    if let Some(TokenizerFile::Path(path)) = source.tokenizer()? {
        settings.fill("data.tokenizer", Value::String(path.display().to_string()), &origin);
    }
    Ok(source)
}

/// Fills what the run file leaves to the protocol, but for what follows from the examples.
fn adopt_recipe(settings: &mut Settings, protocol: &Protocol, group: usize, origin: &str) -> Result<(), Failure> {
    if settings.is_given("train.steps") && settings.is_given("task.epochs") {
        let (steps, epochs) = (settings.source("train.steps"), settings.source("task.epochs"));
        let words = "say how long to train, one in steps and one in epochs; remove one of the two";
        return Err(Failure::request(format!("train.steps ({steps}) and task.epochs ({epochs}) both {words}")));
    }
    let micro = settings.whole("train.micro_batch").is_none();
    let mut fill = |key: &str, value: Value| settings.fill(key, value, origin);
    fill("train.global_batch", whole((protocol.global_batch * group) as u64));
    fill("train.optimizer.lr", Value::Float(protocol.learning_rate));
    fill("train.optimizer.min_lr", Value::Float(0.0));
    fill("train.optimizer.decay", Value::String("linear".to_string()));
    fill("train.optimizer.weight_decay", Value::Float(protocol.weight_decay));
    fill("train.optimizer.clip", Value::Float(protocol.clip));
    // Megatron-LM's default, which its fine-tuning scripts leave.
    fill("train.optimizer.beta2", Value::Float(0.999));
    if micro && group > 4 {
        fill("train.micro_batch", whole(group as u64));
    }
    if !settings.is_given("train.steps") {
        settings.fill("task.epochs", whole(protocol.epochs as u64), origin);
    }
    Ok(())
}

/// Steps and warm-up that follow from the number of examples.
fn with_steps(settings: &Settings, (protocol, group): (&Protocol, usize), examples: usize, origin: &str) -> Settings {
    let mut settings = settings.clone();
    let given = |key: &str, default: u64| settings.whole(key).unwrap_or(default);
    let epochs = given("task.epochs", 1);
    let batch = given("train.global_batch", 1).max(1);
    // What would not fill a last batch is left out, but one step is always made.
    let steps = given("train.steps", ((examples * group) as u64).saturating_mul(epochs).div_euclid(batch).max(1));
    let warmup = (steps as f64 * protocol.warmup_fraction) as u64;
    settings.fill("train.steps", whole(steps), &format!("{epochs} epochs of {examples} examples"));
    settings.fill("train.optimizer.warmup_steps", whole(warmup), origin);
    settings
}

fn whole(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}
