//! `--fault rank=1,operation=B2,after=0,kind=panic`: a failure on purpose, for drills and tests.

use henge_comm::{Fault, FaultKind};
use std::collections::BTreeMap;
use std::time::Duration;

/// Parses a fault; the kind is panic, error, stall, or a number of milliseconds to be slow.
pub fn parse(text: &str) -> Result<Fault, String> {
    let fields: BTreeMap<&str, &str> = text.split(',').filter_map(|field| field.split_once('=')).collect();
    let number = |key: &str| -> Result<usize, String> {
        let value = fields.get(key).copied().unwrap_or("0");
        value.parse().map_err(|_| format!("{key} = {value} is not a whole number"))
    };
    let kind = match fields.get("kind").copied() {
        Some("panic") => FaultKind::Panic,
        Some("error") => FaultKind::Error,
        Some("stall") => FaultKind::Stall,
        other => {
            let milliseconds = other.and_then(|kind| kind.parse().ok());
            let choices = "kind must be panic, error, stall, or milliseconds to be slow";
            FaultKind::Slow(Duration::from_millis(milliseconds.ok_or(choices)?))
        }
    };
    let operation = fields.get("operation").copied().unwrap_or_default().to_string();
    Ok(Fault { rank: number("rank")?, operation, after: number("after")?, kind })
}
