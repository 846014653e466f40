//! `henge data inspect`: what a corpus holds.

use crate::failure::{Failure, print, print_json};
use henge_data::Corpus;
use henge_data::tokenizer::Tokenizer;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Name of the corpus, without ending
    prefix: PathBuf,
    /// Decode the first documents with this tokenizer
    #[arg(long)]
    tokenizer: Option<String>,
    /// Documents to show
    #[arg(long, default_value_t = 3)]
    documents: u64,
    /// Tokens of each to show
    #[arg(long, default_value_t = 60)]
    tokens: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let corpus = Corpus::open(&args.prefix)?;
    let tokenizer = args.tokenizer.as_deref().map(Tokenizer::load).transpose()?;
    if let Some(tokenizer) = &tokenizer {
        corpus.check_tokenizer(tokenizer)?;
    }
    let lengths = lengths(&corpus);
    let heads = heads(&args, &corpus, tokenizer.as_ref())?;
    let indexed = corpus.indexed();
    let largest = corpus.largest_id()?;
    if args.json {
        return print_json(&serde_json::json!({
            "prefix": args.prefix.display().to_string(),
            "dtype": indexed.token_type().name(),
            "tokens": indexed.tokens(),
            "sequences": indexed.sequences(),
            "documents": indexed.documents(),
            "largest_id": largest,
            "length": lengths,
            "card": corpus.card(),
            "first": heads,
        }));
    }
    let card =
        corpus.card().map_or("made elsewhere".to_string(), |card| format!("by tokenizer {}", card.tokenizer.name));
    let mut text = format!(
        "{}: {} tokens, {} sequences, {} documents; {}; {card}\nlargest id {largest}; sequence length {} to {}, median {}, mean {:.1}\n",
        args.prefix.display(),
        indexed.tokens(),
        indexed.sequences(),
        indexed.documents(),
        indexed.token_type().name(),
        lengths.least,
        lengths.most,
        lengths.median,
        lengths.mean,
    );
    for (document, head) in heads.iter().enumerate() {
        text += &format!("document {document}: {head}\n");
    }
    print(&text)
}

#[derive(serde::Serialize)]
struct Lengths {
    least: u32,
    median: u32,
    most: u32,
    mean: f64,
}

fn lengths(corpus: &Corpus) -> Lengths {
    let indexed = corpus.indexed();
    let mut lengths: Vec<u32> = (0..indexed.sequences()).map(|i| indexed.length(i)).collect();
    lengths.sort_unstable();
    let at = |place: usize| lengths.get(place).copied().unwrap_or(0);
    Lengths {
        least: at(0),
        median: at(lengths.len() / 2),
        most: at(lengths.len().saturating_sub(1)),
        mean: indexed.tokens() as f64 / lengths.len().max(1) as f64,
    }
}

fn heads(args: &Args, corpus: &Corpus, tokenizer: Option<&Tokenizer>) -> Result<Vec<String>, Failure> {
    let indexed = corpus.indexed();
    let mut heads = Vec::new();
    for document in 0..args.documents.min(indexed.documents()) {
        let sequences = indexed.document(document)?;
        let mut tokens = Vec::new();
        for sequence in sequences {
            let wanted = args.tokens.saturating_sub(tokens.len()).min(indexed.length(sequence) as usize);
            if wanted == 0 {
                break;
            }
            let mut part = Vec::new();
            indexed.read_part(sequence, 0, wanted, &mut part)?;
            tokens.extend(part);
        }
        heads.push(match tokenizer {
            Some(tokenizer) => tokenizer.decode(&tokens)?,
            None => format!("{tokens:?}"),
        });
    }
    Ok(heads)
}
