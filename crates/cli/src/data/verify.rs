//! `henge data verify`: everything that can be wrong with a corpus.

use crate::failure::{Failure, print, print_json};
use henge_data::Corpus;
use henge_data::tokenizer::Tokenizer;
use henge_data::verify::{Verified, verify};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Names of corpora, without ending
    #[arg(required = true)]
    prefixes: Vec<PathBuf>,
    /// Hold every token against a vocabulary of this size
    #[arg(long, value_name = "N", conflicts_with = "tokenizer")]
    vocab_size: Option<u32>,
    /// Hold the corpora against this tokenizer: the one they were made with, and its vocabulary
    #[arg(long)]
    tokenizer: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Passed {
    prefix: String,
    #[serde(flatten)]
    found: Verified,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let tokenizer = args.tokenizer.as_deref().map(Tokenizer::load).transpose()?;
    let mut passed = Vec::new();
    for prefix in &args.prefixes {
        let corpus = Corpus::open(prefix)?;
        let mut vocabulary = args.vocab_size;
        if let Some(tokenizer) = &tokenizer {
            corpus.check_tokenizer(tokenizer)?;
            vocabulary = u32::try_from(tokenizer.vocabulary_size()).ok();
        }
        let found = verify(&corpus, vocabulary)?;
        passed.push(Passed { prefix: prefix.display().to_string(), found });
    }
    if args.json {
        return print_json(&serde_json::json!({ "corpora": passed }));
    }
    let line = |Passed { prefix, found }: &Passed| {
        let Verified { tokens, sequences, documents, largest_id } = found;
        format!(
            "{prefix}: sound; {tokens} tokens, {sequences} sequences, {documents} documents, largest id {largest_id}\n"
        )
    };
    print(&passed.iter().map(line).collect::<String>())
}
