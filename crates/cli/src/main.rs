//! The `henge` binary: parse, run one command, turn the result into an exit status.

mod data;
mod failure;
mod schedule;
mod train;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// Trains large transformer language models over tensor, pipeline and data parallel ranks.
#[derive(Parser)]
#[command(name = "henge", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model by a run file
    Train(train::Args),
    /// Print each pipeline rank's program
    Schedule(schedule::Args),
    /// Prepare and look into corpora
    #[command(subcommand)]
    Data(data::Command),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Train(args) => train::run(args),
        Command::Schedule(args) => schedule::run(args),
        Command::Data(command) => data::run(command),
    }
}
