//! The project's chores: `cargo xtask <chore>`.

mod arrows;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Parser)]
#[command(about = "The project's chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Compare the crates' dependencies with the table of ARCHITECTURE.md
    Arrows,
    /// Format, lints and arrows: what is checked before any test
    Check,
    /// What takes too long for every change: a hundred kills of running trainings, 1,000 kills of
    /// saves, 1,000 flipped bits, 1,000 cuts and 1,000 damaged notes in what they left, a corpus of two billion bytes streamed, ten minutes of fuzzing each reader of foreign files
    /// (needs `cargo install cargo-fuzz`)
    Long,
    /// Write every golden file anew from what the code says now
    Goldens,
}

/// As `fuzz/Cargo.toml` names them.
const FUZZ_TARGETS: [&str; 3] = ["index", "json_lines", "tokenizer"];

fn main() -> Result<()> {
    match Arguments::parse().chore {
        Chore::Arrows => arrows::check(&root()),
        Chore::Check => check(),
        Chore::Long => long(),
        Chore::Goldens => cargo(&["test", "--workspace"], &[("HENGE_UPDATE_GOLDEN", "1")]),
    }
}

fn check() -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    arrows::check(&root())?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
}

fn long() -> Result<()> {
    let kills = ["test", "--release", "-p", "henge", "--test", "resume", "--", "killed_runs", "--nocapture"];
    cargo(&kills, &[("HENGE_KILLS", "34")])?;
    let damage =
        ["test", "--release", "-p", "henge-checkpoint", "--test", "kill", "--test", "damage", "--", "--nocapture"];
    cargo(&damage, &[("HENGE_KILLS", "1000"), ("HENGE_FLIPS", "1000")])?;
    let stream = ["test", "--release", "-p", "henge", "--test", "streamed_corpus", "--", "--nocapture"];
    cargo(&stream, &[("HENGE_STREAM_BYTES", "2000000000")])?;
    FUZZ_TARGETS.iter().try_for_each(|target| fuzz(target))
}

/// Runs a fuzz target over the seeds and what earlier runs found; sanitizers need a nightly compiler.
fn fuzz(target: &str) -> Result<()> {
    let (found, seeds) = (format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}"));
    std::fs::create_dir_all(root().join(&found))?;
    let limits = ["-max_total_time=600", "-timeout=30", "-rss_limit_mb=4096"];
    let arguments = ["fuzz", "run", "-s", "none", target, &found, &seeds, "--"];
    cargo(&[&arguments[..], &limits].concat(), &[])
}

fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let status = Command::new(env!("CARGO")).current_dir(root()).args(arguments).envs(environment.to_vec()).status()?;
    ensure!(status.success(), "cargo {} failed", arguments.join(" "));
    Ok(())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}
