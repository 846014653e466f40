//! `henge data prepare`: from text to a corpus.

use crate::cores::cores;
use crate::failure::{Failure, print, print_json};
use henge_data::prepare::{Format, InputKind, PrepareOptions, Progress, RECORD_EVERY, Summary, find_inputs, prepare};
use henge_data::tokenizer::Tokenizer;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(clap::Args)]
pub struct Args {
    /// Files, folders or globs; `-` is standard input
    #[arg(long, required = true, num_args = 1..)]
    input: Vec<String>,
    /// gpt2, another tiktoken vocabulary, a tokenizer.json, or a folder that holds one
    #[arg(long)]
    tokenizer: String,
    /// Name of the corpus, without ending
    #[arg(long)]
    output: PathBuf,
    /// Field of each JSON line that holds the text; several make a corpus each
    #[arg(long, default_value = "text", num_args = 1..)]
    json_key: Vec<String>,
    /// What the inputs hold, where their names do not say: text, jsonl or parquet
    #[arg(long)]
    format: Option<Kind>,
    /// Append the tokenizer's end-of-document token, or the token of this id
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "tokenizer")]
    append_eod: Option<String>,
    /// Threads that tokenize; every core without
    #[arg(long)]
    workers: Option<usize>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Text,
    Jsonl,
    Parquet,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let format = match args.format {
        None => Format::FromName,
        Some(Kind::Text) => Format::Given(InputKind::Text),
        Some(Kind::Jsonl) => Format::Given(InputKind::JsonLines),
        Some(Kind::Parquet) => Format::Given(InputKind::Parquet),
    };
    let tokenizer = Tokenizer::load(&args.tokenizer)?;
    let end_of_document = args.append_eod.as_deref().map(|id| end_of_document(id, &tokenizer)).transpose()?;
    let options = PrepareOptions {
        inputs: find_inputs(&args.input, format)?,
        keys: args.json_key,
        output: args.output,
        end_of_document,
        workers: args.workers.unwrap_or_else(cores).max(1),
        record_every: RECORD_EVERY,
    };
    if let Some(folder) = options.output.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failure::run(format!("{}: {error}", folder.display())))?;
    }
    let bar = bar();
    let summary = prepare(&options, &tokenizer, &*stop_on_interrupt()?, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    report(&summary?, args.json)
}

fn end_of_document(id: &str, tokenizer: &Tokenizer) -> Result<u32, Failure> {
    if id == "tokenizer" {
        let words = "this tokenizer names no end-of-document token; give its id: --append-eod 4999";
        return tokenizer.end_of_document().ok_or_else(|| Failure::request(words));
    }
    let size = tokenizer.vocabulary_size();
    id.parse()
        .ok()
        .filter(|&id: &u32| (id as usize) < size)
        .ok_or_else(|| Failure::request(format!("--append-eod {id}: give the id of a token, a number below {size}")))
}

/// Set once Ctrl-C is pressed; the preparation then ends at its next block.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).map_err(Failure::run)?;
    Ok(stop)
}

fn bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bytes}/{total_bytes} {wide_bar} {binary_bytes_per_sec}, {eta} left {msg}");
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, progress: &Progress) {
    if let Some(total) = progress.total_bytes {
        bar.set_length(total);
    }
    bar.set_position(progress.bytes);
    bar.set_message(format!("{} documents, {} tokens", progress.documents, progress.tokens));
}

fn report(summary: &Summary, json: bool) -> Result<(), Failure> {
    if json {
        let corpora = summary
            .corpora
            .iter()
            .map(|(prefix, card)| serde_json::json!({ "prefix": prefix.display().to_string(), "card": card }));
        return print_json(&serde_json::json!({
            "corpora": corpora.collect::<Vec<_>>(),
            "empty_documents": summary.empty_documents,
            "seconds": summary.elapsed.as_secs_f64(),
        }));
    }
    let mut text = String::new();
    for (prefix, card) in &summary.corpora {
        text += &format!(
            "{}: {} tokens in {} documents, {} ({}), largest id {}\n",
            prefix.display(),
            card.tokens,
            card.documents,
            card.dtype,
            HumanBytes(card.tokens * if card.dtype == "uint16" { 2 } else { 4 }),
            card.largest_id
        );
    }
    if summary.empty_documents > 0 {
        text += &format!("{} documents without any token were left out\n", summary.empty_documents);
    }
    print(&text)
}
