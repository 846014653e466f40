//! `henge data prepare`: from text to a corpus.

use super::rearrange::make_folder;
use crate::cores::cores;
use crate::failure::{Failure, print, print_json};
use henge_data::prepare::{
    Format, InputKind, PrepareOptions, Progress, RECORD_EVERY, Summary, find_inputs, prepare, prepare_sentences,
};
use henge_data::tokenizer::Tokenizer;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two lines of progress where there is no terminal.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub struct Args {
    /// Files, folders or globs; `-` is standard input
    #[arg(long, required = true, num_args = 1..)]
    input: Vec<String>,
    /// gpt2, another tiktoken vocabulary, a tokenizer.json, a SentencePiece .model, or a folder that holds one
    #[arg(long)]
    tokenizer: String,
    /// Name of the corpus, without ending
    #[arg(long)]
    output: PathBuf,
    /// Field of each JSON line, or column of Parquet, that holds the text; several make a corpus each
    #[arg(long, default_value = "text", num_args = 1..)]
    json_key: Vec<String>,
    /// What the inputs hold, where their names do not say: text, jsonl or parquet
    #[arg(long)]
    format: Option<Kind>,
    /// Append the tokenizer's end-of-document token, or the token of this id
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "tokenizer")]
    append_eod: Option<String>,
    /// One sequence a sentence, as BERT's samples need it; an end-of-document token goes to the last
    #[arg(long)]
    sentences: bool,
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
    make_folder(&options.output)?;
    let (bar, mut said) = (bar(), Instant::now());
    let mut show = |progress: &Progress| show(&bar, progress, &mut said);
    let stop = stop_on_interrupt()?;
    let summary = match args.sentences {
        true => prepare_sentences(&options, &tokenizer, &stop, &mut show),
        false => prepare(&options, &tokenizer, &stop, &mut show),
    };
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
pub(super) fn stop_on_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).map_err(Failure::run)?;
    Ok(stop)
}

pub(super) fn bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bytes}/{total_bytes} {wide_bar} {binary_bytes_per_sec}, {eta} left {msg}");
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// On a terminal a bar; elsewhere a line now and then.
fn show(bar: &ProgressBar, progress: &Progress, said: &mut Instant) {
    if bar.is_hidden() {
        if said.elapsed() >= PAUSE {
            *said = Instant::now();
            eprintln!("{}", line(progress));
        }
        return;
    }
    if let Some(total) = progress.total_bytes {
        bar.set_length(total);
    }
    bar.set_position(progress.bytes);
    bar.set_message(format!("{} documents, {} tokens", progress.documents, progress.tokens));
}

fn line(progress: &Progress) -> String {
    let Progress { bytes, total_bytes, documents, tokens, elapsed } = progress;
    let of = total_bytes.map_or_else(String::new, |total| format!(" of {}", HumanBytes(total)));
    // A preparation that has only begun has no speed yet.
    let speed = (*bytes as f64 / elapsed.as_secs_f64().max(1e-3)).max(1.0);
    let left = total_bytes.map(|total| total.saturating_sub(*bytes) as f64 / speed);
    let left = left.map_or_else(String::new, |left| format!(", {} left", HumanDuration(Duration::from_secs_f64(left))));
    format!("{}{of}, {}/s{left}; {documents} documents, {tokens} tokens", HumanBytes(*bytes), HumanBytes(speed as u64))
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
