//! The `henge` binary: parse, run one command, turn the result into an exit status.

mod asking;
mod bench;
mod checkpoint;
mod cores;
mod data;
mod doctor;
mod embed;
mod eval;
mod failure;
mod finetune;
mod generate;
mod launch;
mod launcher;
mod plan;
mod planning;
mod quickstart;
mod ranks;
mod schedule;
mod simulate;
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
    /// Learn a small GPT from text on this machine, every stage shown
    Quickstart(quickstart::Args),
    /// Train a model by a run file
    Train(train::Args),
    /// Start a run's ranks on many hosts by `mpirun`, and again after a failure
    Launch(launch::Args),
    /// Train a pretrained encoder on a task and score it: MNLI, QQP, RACE, SQuAD, pairs
    Finetune(finetune::Args),
    /// Rank the layouts of a model on a cluster by predicted time
    Plan(plan::Args),
    /// Predict one layout: time, memory, bubble; or compare with what is published
    Simulate(simulate::Args),
    /// Print each pipeline rank's program
    Schedule(schedule::Args),
    /// Prepare and look into corpora
    #[command(subcommand)]
    Data(data::Command),
    /// List, verify, compare, reshape, import and export checkpoints
    Checkpoint(checkpoint::Args),
    /// Evaluate a model: WikiText103, LAMBADA, any text, multiple choice
    #[command(subcommand)]
    Eval(eval::Command),
    /// Vectors of texts from an encoder, and how near they are to each other
    Embed(embed::Args),
    /// Go on with prompts, greedily or by drawing
    Generate(generate::Args),
    /// Show what this machine has and what Henge will use
    Doctor(doctor::Args),
    /// Measure against this machine's own ceilings
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    if !matches!(command, Command::Train(_)) {
        ranks::refuse_copies()?;
    }
    match command {
        Command::Quickstart(args) => quickstart::run(args),
        Command::Train(args) => train::run(args),
        Command::Launch(args) => launch::run(args),
        Command::Finetune(args) => finetune::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Schedule(args) => schedule::run(args),
        Command::Data(command) => data::run(command),
        Command::Checkpoint(args) => checkpoint::run(args),
        Command::Eval(command) => eval::run(command),
        Command::Embed(args) => embed::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Bench(command) => bench::run(command),
    }
}
