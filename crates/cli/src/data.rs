//! `henge data`: prepare and look into corpora.

mod inspect;
mod prepare;

use crate::failure::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Turn text into a corpus: PREFIX.bin, PREFIX.idx, PREFIX.json
    Prepare(prepare::Args),
    /// Show what a corpus holds
    Inspect(inspect::Args),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Prepare(args) => prepare::run(args),
        Command::Inspect(args) => inspect::run(args),
    }
}
