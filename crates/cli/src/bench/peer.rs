//! Another system's step on the same machine, for a comparison in turn.

use super::ShapeArgs;
use crate::failure::Failure;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python and a script that trains the same shape and prints one JSON line with
/// `step_seconds`.
#[derive(clap::Args)]
pub struct PeerArgs {
    /// Python of the peer, to run it in turn with Henge
    #[arg(long, value_name = "PYTHON", requires = "against_script")]
    against: Option<PathBuf>,
    /// The peer's script; it takes --layers, --hidden, --heads, --seq, --batch, --vocab, --threads and
    /// --precision, and prints one JSON line with `step_seconds`
    #[arg(long, value_name = "FILE", requires = "against")]
    against_script: Option<PathBuf>,
}

impl PeerArgs {
    /// One measurement of the peer; none where there is no peer.
    pub fn measure(&self, shape: &ShapeArgs, batch: usize) -> Result<Option<Value>, Failure> {
        let (Some(python), Some(script)) = (&self.against, &self.against_script) else { return Ok(None) };
        eprintln!("the peer: {} {}", python.display(), script.display());
        let said = Command::new(python).arg(script).args(flags(shape, batch)).output();
        let said = said.map_err(|error| Failure::request(format!("--against {}: {error}", python.display())))?;
        if !said.status.success() {
            let words = String::from_utf8_lossy(&said.stderr);
            return Err(Failure::run(format!("{}: {}\n{words}", script.display(), said.status)));
        }
        parse(&String::from_utf8_lossy(&said.stdout), script).map(Some)
    }
}

fn flags(shape: &ShapeArgs, batch: usize) -> Vec<String> {
    let ShapeArgs { layers, hidden, heads, seq, vocab, precision, threads } = shape;
    let sizes = [
        ("layers", *layers),
        ("hidden", *hidden),
        ("heads", *heads),
        ("seq", *seq),
        ("batch", batch),
        ("vocab", *vocab),
        ("threads", *threads),
    ];
    let sizes = sizes.into_iter().flat_map(|(name, size)| [format!("--{name}"), size.to_string()]);
    sizes.chain(["--precision".to_string(), precision.to_string()]).collect()
}

/// The last line that is a JSON object with the seconds of a step.
fn parse(text: &str, script: &Path) -> Result<Value, Failure> {
    let objects = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    objects.into_iter().find(|value| seconds(value).is_some()).ok_or_else(|| {
        Failure::request(format!("{} printed no JSON line with a positive `step_seconds`", script.display()))
    })
}

/// Seconds of the peer's step.
pub fn seconds(value: &Value) -> Option<f64> {
    value["step_seconds"].as_f64().filter(|&seconds| seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_with_the_seconds_is_found() {
        let text = "warming up\n{\"step_seconds\": 1.5, \"peer\": \"torch\"}\nbye\n";
        assert_eq!(seconds(&parse(text, Path::new("peer.py")).unwrap()), Some(1.5));
        assert!(parse("{\"step_seconds\": 0}\n", Path::new("peer.py")).is_err());
    }
}
