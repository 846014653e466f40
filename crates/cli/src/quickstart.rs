//! `henge quickstart`: from nothing but this machine to a small GPT that has learned text.
//!
//! It gathers documents and then runs the commands that a person would: each stage is this
//! binary with arguments that are printed, so the whole can be repeated by hand.

pub mod gather;
mod recipe;

use crate::failure::{self, Failure, print, print_json};
use henge_data::Corpus;
use henge_data::inspect::inspect;
use henge_data::tokenizer::Tokenizer;
use henge_files::write_atomic;
use recipe::Recipe;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Tokens of the vocabulary that is trained.
const VOCABULARY: usize = 2048;
/// Beginning of the sample: ordinary in Rust, and text anywhere.
const PROMPT: &str = "fn new(";
/// Tokens of the sample.
const SAMPLE: &str = "96";

#[derive(clap::Args)]
pub struct Args {
    /// Text to learn from: files and folders [default: the Rust source in cargo's registry]
    #[arg(long, num_args = 1..)]
    input: Vec<PathBuf>,
    /// Folder that everything is written to; it must not exist
    #[arg(long, default_value = "quickstart")]
    dir: PathBuf,
    /// Training steps
    #[arg(long, default_value_t = 1000)]
    steps: u64,
    /// MiB of text that are taken at most
    #[arg(long, default_value_t = 8)]
    mebibytes: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let begin = Instant::now();
    if args.dir.exists() {
        let words = format!("{} exists; name another folder by --dir or remove it", args.dir.display());
        return Err(Failure::request(words));
    }
    let documents = gather::documents(&args.input, args.mebibytes.saturating_mul(1 << 20))?;
    // The stages hear Ctrl-C themselves; this process waits for them to end in order.
    ctrlc::set_handler(|| {}).map_err(Failure::run)?;
    std::fs::create_dir_all(&args.dir).map_err(|error| named(&args.dir, error))?;
    let mut stages = Stages { commands: Vec::new() };
    let files = Files::below(&args.dir);
    let bytes = gather::write(&files.documents, &documents)?;
    eprintln!("{}: {} documents, {bytes} bytes of text", files.documents.display(), documents.len());
    prepare(&files, &mut stages)?;
    let found = inspect(&*Corpus::open(&files.corpus)?)?;
    let recipe = Recipe::for_machine(vocabulary(&files)?, args.steps);
    eprintln!("{}", recipe.why());
    let text = recipe.text(&files.run, &files.corpus, &files.tokenizer);
    write_atomic(&files.recipe, |file| file.write_all(text.as_bytes())).map_err(Failure::run)?;
    stages.run(&["train", &files.recipe.display().to_string()])?;
    let sample = generate(&files, &mut stages)?;
    let summary = Summary {
        sample,
        validation_loss: validation_loss(&files.run)?,
        unigram_entropy: found.unigram_entropy,
        tokens: found.tokens,
        seconds: begin.elapsed().as_secs_f64(),
        commands: stages.commands,
    };
    if args.json { print_json(&summary) } else { print(&summary.text()) }
}

fn named(path: &Path, error: std::io::Error) -> Failure {
    Failure::run(format!("{}: {error}", path.display()))
}

/// Everything that is written.
struct Files {
    documents: PathBuf,
    tokenizer: PathBuf,
    corpus: PathBuf,
    recipe: PathBuf,
    run: PathBuf,
}

impl Files {
    fn below(dir: &Path) -> Self {
        let [documents, tokenizer, corpus, recipe, run] =
            ["documents.jsonl", "tokenizer.json", "corpus", "run.toml", "run"].map(|name| dir.join(name));
        Self { documents, tokenizer, corpus, recipe, run }
    }
}

fn prepare(files: &Files, stages: &mut Stages) -> Result<(), Failure> {
    let [documents, tokenizer, corpus] =
        [&files.documents, &files.tokenizer, &files.corpus].map(|path| path.display().to_string());
    let size = VOCABULARY.to_string();
    stages.run(&["data", "train-tokenizer", "--input", &documents, "--vocab-size", &size, "--output", &tokenizer])?;
    let prepare = ["data", "prepare", "--input", &documents, "--tokenizer", &tokenizer, "--append-eod"];
    stages.run(&[&prepare[..], &["--output", &corpus]].concat())
}

/// Goes on with a prompt from the run's last checkpoint.
fn generate(files: &Files, stages: &mut Stages) -> Result<String, Failure> {
    let (run, tokenizer) = (files.run.display().to_string(), files.tokenizer.display().to_string());
    let model = ["generate", "--checkpoint", &run, "--tokenizer", &tokenizer, "--prompt", PROMPT];
    stages.ask(&[&model[..], &["--max-tokens", SAMPLE, "--temperature", "0.8", "--top-k", "50"]].concat())
}

fn vocabulary(files: &Files) -> Result<usize, Failure> {
    Ok(Tokenizer::load(&files.tokenizer.display().to_string())?.vocabulary_size())
}

/// The last evaluation of a run.
fn validation_loss(run: &Path) -> Result<f64, Failure> {
    let path = run.join("metrics.jsonl");
    let text = std::fs::read_to_string(&path).map_err(|error| named(&path, error))?;
    let lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let loss = lines.into_iter().find_map(|line| line["eval_loss"].as_f64());
    loss.ok_or_else(|| Failure::run(format!("{} has no evaluation", path.display())))
}

/// The commands that were run.
struct Stages {
    commands: Vec<String>,
}

impl Stages {
    /// Runs this binary; what the stage prints goes to standard error, with its progress.
    fn run(&mut self, arguments: &[&str]) -> Result<(), Failure> {
        let printed = self.ask(arguments)?;
        eprint!("{printed}");
        Ok(())
    }

    /// Runs this binary and returns what it prints.
    fn ask(&mut self, arguments: &[&str]) -> Result<String, Failure> {
        let command = format!("henge {}", arguments.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
        eprintln!("\n$ {command}");
        let binary = std::env::current_exe().map_err(Failure::run)?;
        let stage = Command::new(binary).args(arguments).stdout(Stdio::piped()).stderr(Stdio::inherit()).output();
        let stage = stage.map_err(Failure::run)?;
        let printed = String::from_utf8_lossy(&stage.stdout).into_owned();
        let words = format!("quickstart ended at: {command}");
        match stage.status.code() {
            Some(0) => {}
            Some(2) => return Err(Failure::request(words)),
            Some(code) if code == i32::from(failure::INTERRUPTED) => return Err(Failure::interrupted(words)),
            _ => return Err(Failure::run(words)),
        }
        self.commands.push(command);
        Ok(printed)
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[derive(serde::Serialize)]
struct Summary {
    /// Mean loss over the validation documents, nats a token.
    validation_loss: f64,
    /// What a model that knows only how frequent each token is would reach.
    unigram_entropy: f64,
    tokens: u64,
    /// A prompt and how the model goes on.
    sample: String,
    seconds: f64,
    commands: Vec<String>,
}

impl Summary {
    fn text(&self) -> String {
        format!(
            "\n{}\n\nvalidation loss   {:.3} nats a token\n\
             unigram entropy   {:.3} nats a token, over the {} tokens of the corpus: what frequencies alone give\n\
             {:.0} seconds; by hand:\n  {}\n",
            self.sample.trim_end(),
            self.validation_loss,
            self.unigram_entropy,
            self.tokens,
            self.seconds,
            self.commands.join("\n  ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("quickstart/run.toml"), "quickstart/run.toml");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
    }
}
