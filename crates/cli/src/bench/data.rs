//! `henge bench data`: how fast text becomes tokens and tokens become samples.
//!
//! Each round measures everything in turn, so that a change of the machine's speed meets both sides of
//! a ratio; the medians over the rounds are reported.

use super::{median, positive};
use crate::cores::cores;
use crate::failure::{Failure, print, print_json};
use crate::quickstart::gather;
use henge_data::Corpus;
use henge_data::order::{Part, SampleOrder};
use henge_data::prepare::{Format, PrepareOptions, RECORD_EVERY, each_text, find_inputs};
use henge_data::throughput::{self, Library, Rate};
use henge_data::tokenizer::Tokenizer;
use std::path::Path;

/// Bytes of text that a preparation is measured on, the texts repeated: starting and ending it must not
/// show.
const PREPARED_BYTES: usize = 64 << 20;
/// `s` of the samples that are read.
const SEQUENCE: u64 = 1024;

#[derive(clap::Args)]
pub struct Args {
    /// Text to tokenize: files, folders or globs, as `henge data prepare` takes them [default: the Rust
    /// source in cargo's registry]
    #[arg(long, num_args = 1..)]
    input: Vec<String>,
    /// Field of each JSON line that holds the text
    #[arg(long, default_value = "text")]
    json_key: String,
    /// gpt2, another tiktoken vocabulary, a tokenizer.json, or a folder that holds one
    #[arg(long, default_value = "gpt2")]
    tokenizer: String,
    /// MiB of text that are tokenized at most
    #[arg(long, default_value_t = 8)]
    mebibytes: usize,
    /// MiB of the corpus whose samples are read
    #[arg(long, default_value_t = 256)]
    corpus_mebibytes: usize,
    /// Threads; every core without
    #[arg(long)]
    threads: Option<usize>,
    /// Times everything is measured
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let rounds = positive("--rounds", args.rounds)?;
    let threads = positive("--threads", args.threads.unwrap_or_else(cores))?;
    let limit = positive("--mebibytes", args.mebibytes)?.saturating_mul(1 << 20);
    let tokens = positive("--corpus-mebibytes", args.corpus_mebibytes)? as u64 * (1 << 19);
    let texts = texts(&args, limit)?;
    let tokenizer = Tokenizer::load(&args.tokenizer)?;
    let library = Library::of(&tokenizer, threads)?;
    if let Some(text) = library.as_ref().map_or(Ok(None), |library| library.first_difference(&texts, &tokenizer))? {
        let start: String = texts[text].chars().take(80).collect();
        return Err(Failure::run(format!("the library gives other ids for text {text}, {start:?}")));
    }
    let folder = tempfile::tempdir().map_err(Failure::run)?;
    let bench = Bench::new(folder.path(), texts, tokenizer, library, threads)?;
    let reading = Reading::new(folder.path(), tokens)?;
    let mut measured = Vec::new();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        measured.push(bench.round(&reading)?);
    }
    let report = Report::new(&bench, threads, &measured);
    if args.json { print_json(&report) } else { print(&report.text()) }
}

/// The texts to tokenize, as many as fit.
fn texts(args: &Args, limit: usize) -> Result<Vec<String>, Failure> {
    if args.input.is_empty() {
        return gather::documents(&[], limit);
    }
    let inputs = find_inputs(&args.input, Format::FromName)?;
    let (mut texts, mut bytes) = (Vec::new(), 0);
    each_text(&inputs, std::slice::from_ref(&args.json_key), &mut |text| {
        bytes += text.len();
        texts.push(text.to_string());
        bytes < limit
    })?;
    match bytes {
        0 => Err(Failure::request(format!("{}: there is no text to tokenize", args.input.join(", ")))),
        _ => Ok(texts),
    }
}

struct Bench {
    texts: Vec<String>,
    copies: usize,
    tokenizer: Tokenizer,
    library: Option<Library>,
    threads: usize,
    lines: PrepareOptions,
    packed: PrepareOptions,
}

/// One round.
struct Round {
    encode: Rate,
    library: Option<Rate>,
    /// Encoding the texts as often as they are prepared.
    encode_copies: Rate,
    lines: Rate,
    packed: Rate,
    read: Rate,
    copy: Rate,
}

impl Bench {
    fn new(
        folder: &Path,
        texts: Vec<String>,
        tokenizer: Tokenizer,
        library: Option<Library>,
        threads: usize,
    ) -> Result<Self, Failure> {
        let bytes: usize = texts.iter().map(String::len).sum();
        let copies = PREPARED_BYTES.div_ceil(bytes);
        let options = |name: &str| -> Result<PrepareOptions, Failure> {
            let input = folder.join(name);
            throughput::write_lines(&texts, copies, &input)?;
            Ok(PrepareOptions {
                inputs: find_inputs(&[input.display().to_string()], Format::FromName)?,
                keys: vec!["text".to_string()],
                output: folder.join("prepared"),
                end_of_document: None,
                workers: threads,
                record_every: RECORD_EVERY,
            })
        };
        let (lines, packed) = (options("texts.jsonl")?, options("texts.jsonl.zst")?);
        Ok(Bench { texts, copies, tokenizer, library, threads, lines, packed })
    }

    fn round(&self, reading: &Reading) -> Result<Round, Failure> {
        let Bench { texts, tokenizer, threads, .. } = self;
        let encode_copies = throughput::encode(texts, self.copies, tokenizer, *threads)?;
        Ok(Round {
            packed: throughput::end_to_end(&self.packed, tokenizer)?,
            lines: throughput::end_to_end(&self.lines, tokenizer)?,
            encode: throughput::encode(texts, 1, tokenizer, *threads)?,
            library: self.library.as_ref().map(|library| library.encode(texts)).transpose()?,
            encode_copies,
            read: throughput::read_samples(&reading.order, reading.order.distinct_samples())?,
            copy: throughput::copy(&reading.corpus)?,
        })
    }
}

/// A corpus whose samples are read.
struct Reading {
    corpus: std::sync::Arc<Corpus>,
    order: SampleOrder,
}

impl Reading {
    fn new(folder: &Path, tokens: u64) -> Result<Self, Failure> {
        let prefix = folder.join("random");
        throughput::write_random(&prefix, tokens)?;
        let corpus = Corpus::open(&prefix)?;
        let order = SampleOrder::shuffled(vec![(corpus.whole(Part::Train), 1.0)], SEQUENCE, 1)?;
        // Once over, so that what is measured is warm.
        throughput::read_samples(&order, order.distinct_samples())?;
        Ok(Reading { corpus, order })
    }
}

#[derive(serde::Serialize)]
struct Report {
    tokenizer: String,
    threads: usize,
    text_bytes: u64,
    tokens: u64,
    /// Million bytes of text a second, all threads together.
    encode_mb_per_second: f64,
    library_mb_per_second: Option<f64>,
    encode_over_library: Option<f64>,
    jsonl_mb_per_second: f64,
    jsonl_over_encode: f64,
    jsonl_zst_mb_per_second: f64,
    jsonl_zst_over_encode: f64,
    /// Billion bytes of stored tokens a second, on one thread.
    sample_gb_per_second: f64,
    /// The same tokens read as they lie.
    sequential_gb_per_second: f64,
}

impl Report {
    fn new(bench: &Bench, threads: usize, rounds: &[Round]) -> Self {
        let middle = |of: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let speed = |rate: &dyn Fn(&Round) -> Rate| middle(&|round| rate(round).megabytes_per_second());
        let text = |round: &Round, rate: Rate| round.encode_copies.bytes as f64 / rate.seconds / 1e6;
        let over = |round: &Round, rate: Rate| round.encode_copies.seconds / rate.seconds;
        let library = |of: &dyn Fn(&Round, Rate) -> f64| {
            let values: Vec<f64> = rounds.iter().filter_map(|round| Some(of(round, round.library?))).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        Report {
            tokenizer: bench.tokenizer.name().to_string(),
            threads,
            text_bytes: rounds[0].encode.bytes,
            tokens: rounds[0].encode.tokens,
            encode_mb_per_second: speed(&|round| round.encode),
            library_mb_per_second: library(&|_, rate| rate.megabytes_per_second()),
            encode_over_library: library(&|round, rate| rate.seconds / round.encode.seconds),
            jsonl_mb_per_second: middle(&|round| text(round, round.lines)),
            jsonl_over_encode: middle(&|round| over(round, round.lines)),
            jsonl_zst_mb_per_second: middle(&|round| text(round, round.packed)),
            jsonl_zst_over_encode: middle(&|round| over(round, round.packed)),
            sample_gb_per_second: speed(&|round| round.read) / 1e3,
            sequential_gb_per_second: speed(&|round| round.copy) / 1e3,
        }
    }

    fn text(&self) -> String {
        let library = match (self.library_mb_per_second, self.encode_over_library) {
            (Some(speed), Some(ratio)) => format!("{speed:.1} MB/s, the same ids; {ratio:.2} times as fast here"),
            _ => "has no such tokenizer".to_string(),
        };
        format!(
            "{} on {} threads, {} bytes of text, {} tokens\n\
             encoding          {:>8.1} MB/s\n\
             tokenizers crate  {library}\n\
             from JSONL        {:>8.1} MB/s, {:.0}% of encoding alone\n\
             from JSONL.zst    {:>8.1} MB/s, {:.0}% of encoding alone\n\
             reading samples   {:>8.2} GB/s on one thread, warm, shuffled; {:.2} GB/s as they lie\n",
            self.tokenizer,
            self.threads,
            self.text_bytes,
            self.tokens,
            self.encode_mb_per_second,
            self.jsonl_mb_per_second,
            100.0 * self.jsonl_over_encode,
            self.jsonl_zst_mb_per_second,
            100.0 * self.jsonl_zst_over_encode,
            self.sample_gb_per_second,
            self.sequential_gb_per_second,
        )
    }
}
