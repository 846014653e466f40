//! `henge eval`: the papers' zero-shot evaluations and plain ones, and fine-tuned heads alone.

mod task;

use crate::asking::{Asked, ModelArgs};
use crate::failure::{Failure, print, print_json};
use henge_eval::{Choices, Lambada, PlainText, Progress, Scoring, Tokens, WikiText, score};
use henge_model::Score;
use henge_spec::TaskName;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Perplexity of WikiText103's test set (wiki.test.tokens)
    Wikitext(WikitextArgs),
    /// Accuracy on LAMBADA's last words (JSON lines with `text`)
    Lambada(LambadaArgs),
    /// Perplexity of any text, or multiple choice by likelihood
    Lm(LmArgs),
    /// Accuracy of a fine-tuned head on MNLI, QQP or pairs of sentences (a table)
    Glue(task::Args),
    /// Accuracy of a fine-tuned head on RACE (a folder of papers)
    Race(task::Args),
    /// Exact match and F1 of a fine-tuned head on SQuAD 1.1 or 2.0
    Squad(task::Args),
}

#[derive(clap::Args)]
pub struct CommonArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Passages that run together
    #[arg(long, default_value_t = 4, value_name = "N")]
    batch: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct WikitextArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The raw test file
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Targets of a window [default: the paper's 1024, or the model's length where that is less]
    #[arg(long, value_name = "N")]
    window: Option<usize>,
    /// Targets between the beginnings of two windows; the paper's 32 costs 32 times as much
    /// as windows side by side
    #[arg(long, default_value_t = 32, value_name = "N")]
    stride: usize,
    /// Use the first tokens only
    #[arg(long, value_name = "N")]
    limit_tokens: Option<usize>,
}

#[derive(clap::Args)]
pub struct LambadaArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The test set
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Use the first examples only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(clap::Args)]
#[group(id = "what", required = true, multiple = false, args = ["text", "choices"])]
pub struct LmArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// A text file: its perplexity
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// JSON lines with `ctx`, `endings` and `label`: how often the right ending is likeliest
    #[arg(long, value_name = "FILE")]
    choices: Option<PathBuf>,
    /// Targets between the beginnings of two windows of a text [default: the model's length]
    #[arg(long, value_name = "N")]
    stride: Option<usize>,
    /// Use the first questions only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Wikitext(args) => wikitext(args),
        Command::Lambada(args) => lambada(args),
        Command::Lm(args) => lm(args),
        Command::Glue(args) => args.run("glue", &[TaskName::Mnli, TaskName::Qqp, TaskName::Consecutive]),
        Command::Race(args) => args.run("race", &[TaskName::Race]),
        Command::Squad(args) => args.run("squad", &[TaskName::Squad1, TaskName::Squad2]),
    }
}

fn wikitext(args: WikitextArgs) -> Result<(), Failure> {
    let (asked, tokenizer) = args.common.open()?;
    let (raw, length) = (read(&args.data)?, window(args.window, asked.loaded.model().seq_len)?);
    let (test, tokens) = WikiText::prepare(&raw, &tokenizer, length, args.stride, args.limit_tokens)?;
    let run = args.common.score(&asked, "wikitext", &args.data, tokens)?;
    let report = test.report(&run.scores);
    run.show(&report, || {
        let part = if report.is_part { " (a part of the test set)" } else { "" };
        format!(
            "WikiText103 perplexity {:.4}{part}: {} targets in {} windows of {}, stride {}; {:.4} per token\n",
            report.perplexity, report.targets, report.windows, report.window, report.stride, report.token_perplexity
        )
    })
}

/// Targets of a window, of a model that reads `longest` tokens.
fn window(given: Option<usize>, longest: usize) -> Result<usize, Failure> {
    match given {
        None => Ok(longest.min(WikiText::WINDOW)),
        Some(window) if window <= longest => Ok(window),
        Some(window) => {
            Err(Failure::request(format!("--window {window}: the model reads {longest} tokens; give at most that")))
        }
    }
}

fn lambada(args: LambadaArgs) -> Result<(), Failure> {
    let (asked, tokenizer) = args.common.open()?;
    let (test, tokens) = Lambada::prepare(&args.data, &tokenizer, asked.loaded.model().seq_len, args.limit)?;
    let run = args.common.score(&asked, "lambada", &args.data, tokens)?;
    let report = test.report(&run.scores);
    run.show(&report, || {
        format!(
            "LAMBADA accuracy {:.2}% strict, {:.2}% last token, over {} examples; perplexity of a last word {:.2}\n",
            100.0 * report.strict_accuracy,
            100.0 * report.last_token_accuracy,
            report.examples,
            report.word_perplexity
        )
    })
}

fn lm(args: LmArgs) -> Result<(), Failure> {
    match (&args.text, &args.choices) {
        (Some(file), _) => plain_text(&args, file),
        (None, Some(file)) => choices(&args, file),
        (None, None) => unreachable!("one of the two is required"),
    }
}

fn plain_text(args: &LmArgs, file: &Path) -> Result<(), Failure> {
    let (asked, tokenizer) = args.common.open()?;
    let (text, length) = (read(file)?, asked.loaded.model().seq_len);
    let stride = args.stride.unwrap_or(length);
    let (test, tokens) = PlainText::prepare(&file.display().to_string(), &text, &tokenizer, length, stride)?;
    let run = args.common.score(&asked, "text", file, tokens)?;
    let report = test.report(&run.scores);
    run.show(&report, || {
        format!(
            "perplexity {:.4} per token, {:.4} per word; {:.4} bits per byte; {} targets\n",
            report.perplexity, report.word_perplexity, report.bits_per_byte, report.targets
        )
    })
}

fn choices(args: &LmArgs, file: &Path) -> Result<(), Failure> {
    let (asked, tokenizer) = args.common.open()?;
    let (test, tokens) = Choices::prepare(file, &tokenizer, asked.loaded.model().seq_len, args.limit)?;
    let run = args.common.score(&asked, "choices", file, tokens)?;
    let report = test.report(&run.scores);
    run.show(&report, || {
        format!(
            "accuracy {:.2}% by the sum, {:.2}% per token, {:.2}% per byte, over {} questions\n",
            100.0 * report.accuracy,
            100.0 * report.accuracy_per_token,
            100.0 * report.accuracy_per_byte,
            report.questions
        )
    })
}

fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| Failure::request(format!("{}: {error}", file.display())))
}

/// A finished evaluation.
struct Finished {
    scores: Vec<Vec<Score>>,
    /// What the result document says beside the report.
    facts: Value,
    json: bool,
}

impl CommonArgs {
    fn open(&self) -> Result<(Asked, henge_data::tokenizer::Tokenizer), Failure> {
        let asked = self.model.open()?;
        let tokenizer = self.model.tokenizer(&asked)?;
        Ok((asked, tokenizer))
    }

    fn score(&self, asked: &Asked, task: &str, data: &Path, tokens: Tokens) -> Result<Finished, Failure> {
        let bar = Arc::new(Bar::new(tokens.passages.len()));
        let job = Scoring {
            loaded: Arc::clone(&asked.loaded),
            layout: asked.layout,
            tokens: tokens.ids,
            passages: tokens.passages,
            batch: self.batch,
            progress: Arc::clone(&bar) as Arc<dyn Progress>,
        };
        let begin = Instant::now();
        let scores = score(job, asked.engine(), asked.device())?;
        bar.0.finish_and_clear();
        Ok(Finished { scores, facts: facts(asked, task, data, begin), json: self.json })
    }
}

/// What every result document says.
fn facts(asked: &Asked, task: &str, data: &Path, begin: Instant) -> Value {
    json!({
        "task": task,
        "data": data,
        "checkpoint": asked.loaded.path(),
        "layout": asked.layout_text(),
        "precision": asked.precision().to_string(),
        "seconds": begin.elapsed().as_secs_f64(),
    })
}

impl Finished {
    fn show(&self, report: &impl Serialize, words: impl FnOnce() -> String) -> Result<(), Failure> {
        if !self.json {
            return print(&words());
        }
        let mut document = self.facts.clone();
        let report = serde_json::to_value(report).map_err(Failure::run)?;
        if let (Value::Object(document), Value::Object(report)) = (&mut document, report) {
            document.extend(report);
        }
        print_json(&document)
    }
}

/// A bar on standard error where that is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new(passages: usize) -> Self {
        let template = "{bar:40} {pos}/{len} passages, {eta} left";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(ProgressBar::new(passages as u64).with_style(style))
    }
}

impl Progress for Bar {
    fn advance(&self, passages: usize) {
        self.0.inc(passages as u64);
    }
}
