//! `henge data`: prepare and look into corpora.

mod inspect;
mod prepare;
mod train_tokenizer;

use crate::failure::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Turn text into a corpus: PREFIX.bin, PREFIX.idx, PREFIX.json
    Prepare(prepare::Args),
    /// Learn a byte-level BPE from text
    TrainTokenizer(train_tokenizer::Args),
    /// Show what a corpus holds
    Inspect(inspect::Args),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Prepare(args) => prepare::run(args),
        Command::TrainTokenizer(args) => train_tokenizer::run(args),
        Command::Inspect(args) => inspect::run(args),
    }
}
