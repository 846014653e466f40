//! `henge data clean`: repair, filter, de-duplicate and decontaminate text.

use super::prepare::{bar, stop_on_interrupt};
use crate::cores::cores;
use crate::failure::{Failure, print, print_json};
use henge_data::clean::{CleanOptions, Contamination, DuplicateRule, clean};
use henge_data::prepare::{Format, Input, InputKind, find_inputs};
use henge_data::tokenizer::Tokenizer;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// JSON lines or Parquet: files, folders or globs; `-` is JSON lines from standard input
    #[arg(long, required = true, num_args = 1..)]
    input: Vec<String>,
    /// JSON lines to write; packed if it ends in .gz or .zst
    #[arg(long)]
    output: PathBuf,
    /// Field of each JSON line, or column, that holds the text
    #[arg(long, default_value = "text")]
    json_key: String,
    /// Language to keep, by its ISO 639-3 code; `all` keeps every one
    #[arg(long, default_value = "eng")]
    language: String,
    /// Drop documents of fewer tokens
    #[arg(long, default_value_t = 128)]
    min_tokens: usize,
    /// The tokenizer that counts them
    #[arg(long, default_value = "gpt2")]
    tokenizer: String,
    /// Keep one document of each group whose shingles have at least this Jaccard index; `off` keeps all
    #[arg(long, default_value_t = DuplicateRule::PAPER.jaccard.to_string())]
    jaccard: String,
    /// Bands of the minimum hashes
    #[arg(long, default_value_t = DuplicateRule::PAPER.bands)]
    bands: usize,
    /// Minimum hashes a band
    #[arg(long, default_value_t = DuplicateRule::PAPER.rows)]
    rows: usize,
    /// Evaluation sets that may not occur: JSON lines or plain text
    #[arg(long, num_args = 1..)]
    against: Vec<String>,
    /// Words of a run that is taken for a part of an evaluation set
    #[arg(long, default_value_t = 13)]
    ngram: usize,
    /// Threads; every core without
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let options = CleanOptions {
        inputs: inputs(&args.input)?,
        key: args.json_key.clone(),
        output: args.output.clone(),
        language: (args.language != "all").then(|| args.language.clone()),
        min_tokens: args.min_tokens,
        contamination: contamination(&args)?,
        duplicates: duplicates(&args)?,
        workers: args.workers.unwrap_or_else(cores).max(1),
    };
    let tokenizer = Tokenizer::load(&args.tokenizer)?;
    let bar = bar();
    let sizes = options.inputs.iter().map(|input| std::fs::metadata(&input.path).ok().map(|file| file.len()));
    if let Some(total) = sizes.sum() {
        bar.set_length(total);
    }
    let report = clean(&options, &tokenizer, &*stop_on_interrupt()?, &mut |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    let report = report?;
    if args.json { print_json(&report) } else { print(&report.to_string()) }
}

/// As the names say; standard input has none and is taken for JSON lines.
fn inputs(names: &[String]) -> Result<Vec<Input>, Failure> {
    let mut inputs = find_inputs(names, Format::FromName)?;
    for input in inputs.iter_mut().filter(|input| input.is_standard_input()) {
        input.kind = InputKind::JsonLines;
    }
    Ok(inputs)
}

fn contamination(args: &Args) -> Result<Option<Contamination>, Failure> {
    if args.against.is_empty() {
        return Ok(None);
    }
    if args.ngram < 8 {
        return Err(Failure::request(format!("--ngram {}: shorter runs than 8 words occur by chance", args.ngram)));
    }
    let mut contamination = Contamination::new(args.ngram);
    contamination.add_files(&find_inputs(&args.against, Format::FromName)?)?;
    if contamination.is_empty() {
        let words = format!("--against {}: no text of 8 words or more in it", args.against.join(" "));
        return Err(Failure::request(words));
    }
    Ok(Some(contamination))
}

fn duplicates(args: &Args) -> Result<Option<DuplicateRule>, Failure> {
    if args.jaccard == "off" {
        return Ok(None);
    }
    let jaccard = args.jaccard.parse().ok().filter(|index| (0.0..=1.0).contains(index) && *index > 0.0);
    let jaccard = jaccard.ok_or_else(|| {
        Failure::request(format!("--jaccard {}: give a number above 0 and up to 1, or off", args.jaccard))
    })?;
    if !(1..=1024).contains(&(args.bands.saturating_mul(args.rows))) {
        let words = format!("--bands {} --rows {}: give 1 to 1024 hashes in all", args.bands, args.rows);
        return Err(Failure::request(words));
    }
    Ok(Some(DuplicateRule { jaccard, bands: args.bands, rows: args.rows }))
}
