//! `henge schedule`: each rank's program, as a person or a program reads it.

use crate::failure::{Failure, print, print_json};
use henge_schedule::{Detail, Kind, Program, Shape, check};

#[derive(clap::Args)]
pub struct Args {
    /// Order of forwards and backwards: gpipe, 1f1b or interleaved
    #[arg(long)]
    kind: Kind,
    /// Pipeline ranks
    #[arg(long)]
    pipeline: usize,
    /// Microbatches of a step
    #[arg(long)]
    microbatches: usize,
    /// Model chunks a rank holds
    #[arg(long, default_value_t = 1)]
    chunks: usize,
    /// Show receives and sends too
    #[arg(long)]
    messages: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let Args { kind, pipeline, microbatches, chunks, .. } = args;
    let program = Program::generate(Shape { kind, pipeline, chunks, microbatches })?;
    let report = check(&program).map_err(Failure::run)?;
    let text = program.text(if args.messages { Detail::Messages } else { Detail::Compute });
    if !args.json {
        return print(&text);
    }
    let ranks: Vec<&str> = text.lines().collect();
    print_json(&serde_json::json!({
        "kind": kind.to_string(),
        "pipeline": pipeline,
        "chunks": chunks,
        "microbatches": microbatches,
        "receive_window": program.receive_window,
        "peak_in_flight": report.peak_in_flight,
        "ranks": ranks,
    }))
}
