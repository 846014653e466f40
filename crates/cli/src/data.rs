//! `henge data`: prepare and look into corpora.

mod clean;
mod inspect;
mod locate;
mod prepare;
mod rearrange;
mod train_tokenizer;
mod verify;

use crate::failure::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Turn text into a corpus: PREFIX.bin, PREFIX.idx, PREFIX.json
    Prepare(prepare::Args),
    /// Repair, filter, de-duplicate and decontaminate text before it is prepared
    Clean(clean::Args),
    /// Learn a byte-level BPE from text
    TrainTokenizer(train_tokenizer::Args),
    /// Show what a corpus holds
    Inspect(inspect::Args),
    /// Check all of a corpus: every length, pointer, document and token
    Verify(verify::Args),
    /// Show which documents a step of a run reads
    Where(locate::WhereArgs),
    /// Show which steps of a run read a document
    When(locate::WhenArgs),
    /// Write several corpora as one
    Merge(rearrange::MergeArgs),
    /// Cut a corpus into training, validation and test between its documents
    Split(rearrange::SplitArgs),
    /// Turn a raw token file of datatrove or nanotron into a corpus
    Import(rearrange::ImportArgs),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Prepare(args) => prepare::run(args),
        Command::Clean(args) => clean::run(args),
        Command::TrainTokenizer(args) => train_tokenizer::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Where(args) => locate::run_where(args),
        Command::When(args) => locate::run_when(args),
        Command::Merge(args) => rearrange::merge(args),
        Command::Split(args) => rearrange::split(args),
        Command::Import(args) => rearrange::import(args),
    }
}
