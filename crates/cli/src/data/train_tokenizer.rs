//! `henge data train-tokenizer`: a vocabulary of one's own, from text.

use crate::failure::{Failure, print, print_json};
use henge_data::prepare::{Format, find_inputs};
use henge_data::train_tokenizer::{TrainTokenizerOptions, VocabularyKind, train_tokenizer};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Files, folders or globs, of the forms that `henge data prepare` takes
    #[arg(long, required = true, num_args = 1..)]
    input: Vec<String>,
    /// Field of each JSON line that holds the text
    #[arg(long, default_value = "text")]
    json_key: String,
    /// byte-level-bpe (GPT-2's), wordpiece-cased or wordpiece-uncased (BERT's)
    #[arg(long, default_value = "byte-level-bpe")]
    kind: Kind,
    /// Tokens to learn, the special ones among them
    #[arg(long, default_value_t = 32_000)]
    vocab_size: usize,
    /// Pairs rarer than this are not merged
    #[arg(long, default_value_t = 2)]
    least_count: u64,
    /// The tokenizer's file (a Hugging Face tokenizer.json)
    #[arg(long)]
    output: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    ByteLevelBpe,
    WordpieceCased,
    WordpieceUncased,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let options = TrainTokenizerOptions {
        inputs: find_inputs(&args.input, Format::FromName)?,
        key: args.json_key,
        kind: match args.kind {
            Kind::ByteLevelBpe => VocabularyKind::ByteLevelBpe,
            Kind::WordpieceCased => VocabularyKind::WordPieceCased,
            Kind::WordpieceUncased => VocabularyKind::WordPieceUncased,
        },
        vocabulary_size: args.vocab_size,
        least_count: args.least_count,
        output: args.output,
    };
    let size = train_tokenizer(&options)?;
    let name = options.output.display().to_string();
    if args.json {
        return print_json(&serde_json::json!({ "tokenizer": name, "vocabulary_size": size }));
    }
    print(&format!("{name}: {size} tokens\n"))
}
