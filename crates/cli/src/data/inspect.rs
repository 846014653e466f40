//! `henge data inspect`: what a corpus holds.

use crate::failure::{Failure, print, print_json};
use henge_data::Corpus;
use henge_data::inspect::{Inspection, decoded_samples, inspect};
use henge_data::tokenizer::Tokenizer;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Name of the corpus, without ending
    prefix: PathBuf,
    /// Show the beginnings of some sequences as text by this tokenizer [default: the one the corpus was
    /// made with, where it can be loaded]
    #[arg(long)]
    tokenizer: Option<String>,
    /// Sequences to show, spread evenly over the corpus
    #[arg(long, default_value_t = 3)]
    samples: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let corpus = Corpus::open(&args.prefix)?;
    let tokenizer = tokenizer(&args, &corpus)?;
    let found = inspect(&corpus)?;
    let samples = match &tokenizer {
        Some(tokenizer) => decoded_samples(&corpus, tokenizer, args.samples)?,
        None => Vec::new(),
    };
    let prefix = args.prefix.display().to_string();
    if !args.json {
        return print(&text(&prefix, &found, tokenizer.as_ref(), &samples));
    }
    let samples: Vec<_> =
        samples.iter().map(|(sequence, text)| serde_json::json!({ "sequence": sequence, "text": text })).collect();
    let mut document = serde_json::to_value(&found).map_err(Failure::run)?;
    document["prefix"] = prefix.into();
    document["card"] = serde_json::to_value(corpus.card()).map_err(Failure::run)?;
    document["samples"] = samples.into();
    print_json(&document)
}

/// The one that is named, which must be that of the corpus, or else the corpus's own if it is still there.
fn tokenizer(args: &Args, corpus: &Corpus) -> Result<Option<Tokenizer>, Failure> {
    if let Some(name) = &args.tokenizer {
        let tokenizer = Tokenizer::load(name)?;
        corpus.check_tokenizer(&tokenizer)?;
        return Ok(Some(tokenizer));
    }
    let own = corpus.card().and_then(|card| Tokenizer::load(&card.tokenizer.name).ok());
    Ok(own.filter(|tokenizer| corpus.check_tokenizer(tokenizer).is_ok()))
}

fn text(prefix: &str, found: &Inspection, tokenizer: Option<&Tokenizer>, samples: &[(u64, String)]) -> String {
    let Inspection { tokens, sequences, documents, empty_documents, dtype, largest_id, distinct_ids, .. } = found;
    let made = found.tokenizer.as_ref().map_or("made elsewhere".to_string(), |name| format!("by tokenizer {name}"));
    let modes = if found.has_modes { ", with modes" } else { "" };
    let lengths = &found.sequence_lengths;
    let [median, ninth, last] = lengths.at_least;
    let mut text = format!(
        "{prefix}: {tokens} tokens, {sequences} sequences, {documents} documents ({empty_documents} empty); \
         {dtype}{modes}; {made}\n\
         sequence length {} to {}, mean {:.1}; half have at least {median}, a tenth {ninth}, a hundredth {last}\n\
         {distinct_ids} distinct ids, the largest {largest_id}; entropy {:.3} nats a token\n",
        lengths.shortest, lengths.longest, lengths.mean, found.unigram_entropy
    );
    let share = |count: &u64| 100.0 * *count as f64 / *tokens as f64;
    let spelt = |id: u32| tokenizer.and_then(|t| t.decode(&[id]).ok()).map_or(String::new(), |t| format!(" {t:?}"));
    let frequent = found.most_frequent.iter().map(|(id, count)| format!("{id}{} {:.1}%", spelt(*id), share(count)));
    text += &format!("most frequent: {}\n", frequent.collect::<Vec<_>>().join(", "));
    samples.iter().for_each(|(sequence, start)| text += &format!("sequence {sequence}: {start:?}\n"));
    text
}
