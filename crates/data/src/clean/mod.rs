//! Cleaning a corpus of text before it is prepared, as the first Megatron paper cleaned its own
//! (arXiv:1909.08053, section 4.1, and the scripts it came with): repair the text, keep one language, drop
//! short documents, cut out what evaluation sets hold, keep one of each group of near-duplicates.
//!
//! The first pass reads, judges and repairs block by block over any number of threads ([`filter`]) and
//! writes what survives to a file without a name in the output's folder; near-duplicates are then found by
//! MinHash and verified on the texts ([`duplicates`]), and a last pass writes the output. Memory is that of
//! [`crate::prepare`] plus 28 bytes a surviving document (its place, its group, and one band of hashes while
//! it is sorted) and 8 to 16 bytes a distinct n-gram of the evaluation sets. The output and the report are
//! the same for any number of threads.

mod contamination;
mod duplicates;
mod filter;
mod minhash;
mod mojibake;
mod output;
mod repair;
mod report;
mod splice;
mod survivors;

pub use contamination::{Contamination, Cut};
pub use duplicates::DuplicateRule;
pub use filter::Reason;
pub use minhash::{MinHash, jaccard, shingles};
pub use repair::repair;
pub use report::{CleanReport, Dropped, Example};

use crate::error::DataError;
use crate::indexed::beside;
use crate::prepare::{Input, InputKind, Position, Reader, in_order};
use crate::tokenizer::{CutRule, Tokenizer};
use duplicates::Duplicates;
use filter::{Filter, Filtered};
use henge_files::LockFile;
use output::Output;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use survivors::Survivors;
use whatlang::Lang;

/// What to clean and how.
pub struct CleanOptions {
    /// JSON lines and Parquet files.
    pub inputs: Vec<Input>,
    /// The field or column that holds the text.
    pub key: String,
    /// JSON lines, packed as the ending `.gz` or `.zst` says; other fields of a line stay as they are.
    pub output: PathBuf,
    /// The language to keep, by its ISO 639-3 code; `None` keeps all.
    pub language: Option<String>,
    /// Documents of fewer tokens are dropped; the paper's 128.
    pub min_tokens: usize,
    /// What may not occur.
    pub contamination: Option<Contamination>,
    /// What counts as a near-duplicate; `None` keeps them.
    pub duplicates: Option<DuplicateRule>,
    /// Threads; at least 1.
    pub workers: usize,
}

/// Cleans; `progress` is given the packed bytes read so far. Ctrl-C and errors leave nothing behind.
///
/// # Errors
/// Unreadable or invalid input, by file and line; plain text input; an unknown language; a full disk.
pub fn clean(
    options: &CleanOptions,
    tokenizer: &Tokenizer,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<CleanReport, DataError> {
    assert!(options.workers > 0, "no workers");
    check_inputs(&options.inputs)?;
    let language = options.language.as_deref().map(language).transpose()?;
    let _lock = LockFile::acquire(&beside(&options.output, ".lock"))?;
    let output = Output::create(&options.output)?;
    let mut report = CleanReport::new(options);
    let hashes = options.duplicates.map(|rule| MinHash::new(rule.bands, rule.rows));
    let folder = options.output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut survivors = Survivors::create(folder, hashes.as_ref().map_or(0, MinHash::bands))?;
    let filter = Filter { options, tokenizer, language, hashes };
    judge(&filter, &mut survivors, &mut report, stop, progress)?;
    let survivors = survivors.finish()?;
    let duplicates = match options.duplicates {
        Some(rule) => Duplicates::find(&survivors, rule, options, stop)?,
        None => Duplicates::none(survivors.len()),
    };
    duplicates.report(&survivors, options, &mut report)?;
    output.write(&survivors, &duplicates, &mut report, stop)?;
    report.write(&beside(&options.output, ".report.json"))?;
    Ok(report)
}

/// The first pass.
fn judge(
    filter: &Filter<'_>,
    survivors: &mut Survivors,
    report: &mut CleanReport,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<(), DataError> {
    let options = filter.options;
    let keys = [options.key.clone()];
    let reader = Reader {
        inputs: &options.inputs,
        keys: &keys,
        rule: CutRule::BehindAnything,
        encoder: None,
        bytes_read: Arc::new(AtomicU64::new(0)),
    };
    let worker = || filter.worker(&keys);
    in_order(reader, Position::start_of(0), options.workers, &worker, &mut |block, filtered: Filtered| {
        let input = options.inputs.iter().position(|input| input.path == *block.path).unwrap_or(0);
        report.add(&filtered, &block.path);
        survivors.add(input as u32, &filtered.kept)?;
        progress(block.bytes_read);
        if stop.load(Ordering::Relaxed) { Err(DataError::Cancelled) } else { Ok(()) }
    })
}

fn check_inputs(inputs: &[Input]) -> Result<(), DataError> {
    match inputs.iter().find(|input| input.kind == InputKind::Text) {
        None => Ok(()),
        Some(text) => Err(DataError::BadRequest {
            what: format!("{} is plain text, of which no documents are dropped", text.path.display()),
            remedy: "write each document as a line of JSON".into(),
        }),
    }
}

fn language(code: &str) -> Result<Lang, DataError> {
    Lang::from_code(code).ok_or_else(|| DataError::BadRequest {
        what: format!("no language {code:?} is told apart"),
        remedy: format!("give one of {}", Lang::all().iter().map(|lang| lang.code()).collect::<Vec<_>>().join(" ")),
    })
}
