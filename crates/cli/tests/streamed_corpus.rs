//! A corpus streamed from a generator and never kept: however much comes, the memory stays.
//!
//! `HENGE_STREAM_BYTES` says how much comes; `cargo xtask long` sets it to two billion.

#![cfg(target_os = "linux")]

mod common;

use common::{Place, henge_command};
use std::io::Write;
use std::process::{Child, Stdio};

/// What may be held at the most, in KiB.
const LIMIT: i64 = 512 << 10;
/// Bytes from which on a longer stream must not take more.
const SETTLED: u64 = 200_000_000;

/// JSON lines of words drawn by an uneven law from far more words than any cache holds.
fn stream(mut out: impl Write, bytes: u64) {
    let (mut state, mut written, mut line) = (88172645463325252u64, 0, String::new());
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    while written < bytes {
        line.clear();
        line.push_str("{\"text\": \"");
        for _ in 0..20 + next() % 600 {
            let word = next() % (1 << (4 + next() % 17));
            word.to_string().bytes().for_each(|digit| line.push(char::from(digit + 49)));
            line.push(' ');
        }
        line.push_str("\"}\n");
        out.write_all(line.as_bytes()).expect("the preparation reads");
        written += line.len() as u64;
    }
}

/// Waits for a child and returns the most memory that it held, in KiB.
fn peak(child: Child) -> i64 {
    let (mut status, pid) = (0, i32::try_from(child.id()).expect("a process number"));
    // SAFETY: both places outlive the call, and a rusage is plain numbers.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(pid, &raw mut status, 0, &raw mut usage), pid);
        usage
    };
    assert_eq!(status, 0, "the preparation ends well");
    usage.ru_maxrss
}

fn prepare(bytes: u64) -> i64 {
    let place = Place::new();
    let arguments = ["data", "prepare", "--input", "-", "--format", "jsonl", "--tokenizer", "gpt2", "--output", "c"];
    let mut command = henge_command(&place, &arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the binary starts");
    stream(child.stdin.take().expect("its input"), bytes);
    let peak = peak(child);
    let tokens = std::fs::metadata(place.path("c.bin")).expect("the corpus").len() / 2;
    eprintln!("{bytes} bytes: {tokens} tokens, at most {peak} KiB held");
    assert!(tokens > bytes / 8, "{tokens} tokens of {bytes} bytes");
    peak
}

#[test]
fn memory_does_not_grow_with_the_corpus() {
    let bytes = std::env::var("HENGE_STREAM_BYTES").map_or(30_000_000, |bytes| bytes.parse().expect("a number"));
    let most = prepare(bytes);
    assert!(most < LIMIT, "{most} KiB");
    if bytes >= 2 * SETTLED {
        let settled = prepare(SETTLED);
        assert!(most as f64 <= settled as f64 * 1.05, "{most} KiB at {bytes} bytes, {settled} at {SETTLED}");
    } else {
        eprintln!("skipped: HENGE_STREAM_BYTES is below {}, and memory has not settled by then", 2 * SETTLED);
    }
}
