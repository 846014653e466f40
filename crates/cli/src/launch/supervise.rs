//! A launcher while it runs: signals are handed on, and one that outlives its job is ended.

use crate::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// A launcher is over so long after its ranks have said how they failed, unless it waits for a
/// host that it cannot reach.
const LINGER: Duration = Duration::from_secs(15);
/// Between asking it to end and ending it.
const MERCY: Duration = Duration::from_secs(5);

/// How a start ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// On request, saved.
    Stopped,
    /// The request was wrong: another start would not help.
    Refused,
    /// In words.
    Failed(String),
}

impl Ended {
    fn of(status: ExitStatus) -> Self {
        match status.code() {
            Some(0) => Self::Done,
            Some(2) => Self::Refused,
            Some(130) => Self::Stopped,
            Some(code) => Self::Failed(format!("status {code}")),
            None => Self::Failed(format!("signal {}", status.signal().unwrap_or_default())),
        }
    }
}

/// What this process was asked by signal.
pub struct Signals {
    stop: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
}

impl Signals {
    pub fn listen() -> Result<Self, Failure> {
        let signals = Self { stop: Arc::default(), end: Arc::default() };
        let mut heard = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGUSR1]).map_err(Failure::run)?;
        let (stop, end) = (signals.stop.clone(), signals.end.clone());
        let listen = move || {
            for signal in heard.forever() {
                if stop.swap(true, Ordering::Relaxed) && signal == SIGINT {
                    end.store(true, Ordering::Relaxed);
                }
            }
        };
        thread::Builder::new().name("henge-signals".to_string()).spawn(listen).map_err(Failure::run)?;
        Ok(signals)
    }
}

/// Runs `mpirun` to its end. It has a process group of its own, since it answers Ctrl-C by ending
/// the ranks before they have saved: what it hands on to them is SIGUSR1.
pub fn run(command: &mut Command, signals: &Signals) -> Result<Ended, Failure> {
    command.process_group(0).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Failure::run(format!("mpirun: {error}")))?;
    let has_failed = Arc::new(AtomicBool::new(false));
    let reader = child.stderr.take().map(|words| {
        let has_failed = has_failed.clone();
        thread::spawn(move || hand_on(words, &has_failed))
    });
    let status = watch(&mut child, signals, &has_failed)?;
    // Where a daemon of its lives on with the pipe, its words are not waited for.
    let begun = Instant::now();
    while reader.as_ref().is_some_and(|reader| !reader.is_finished()) && begun.elapsed() < MERCY {
        thread::sleep(LOOK);
    }
    Ok(Ended::of(status))
}

/// Hands on its words, and notes those by which the ranks end a job.
fn hand_on(words: ChildStderr, has_failed: &AtomicBool) {
    let mut words = BufReader::new(words);
    let mut line = vec![];
    while words.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        // Nobody is left to be told of what cannot be written here.
        let _ = std::io::stderr().write_all(&line);
        if line.starts_with(b"error: ") {
            has_failed.store(true, Ordering::Relaxed);
        }
        line.clear();
    }
}

fn watch(child: &mut Child, signals: &Signals, has_failed: &AtomicBool) -> Result<ExitStatus, Failure> {
    let (mut failed, mut ended, mut has_stopped) = (None::<Instant>, None::<Instant>, false);
    loop {
        if let Some(status) = child.try_wait().map_err(Failure::run)? {
            return Ok(status);
        }
        if signals.stop.load(Ordering::Relaxed) && !has_stopped {
            has_stopped = true;
            send(child.id(), "USR1");
        }
        if has_failed.load(Ordering::Relaxed) && failed.is_none() {
            failed = Some(Instant::now());
        }
        let lingers = failed.is_some_and(|since| since.elapsed() > LINGER);
        if ended.is_none() && (lingers || signals.end.load(Ordering::Relaxed)) {
            eprintln!("mpirun does not end by itself and is ended");
            ended = Some(Instant::now());
            send(child.id(), "TERM");
        }
        if ended.is_some_and(|since| since.elapsed() > MERCY) {
            send_to_all(child.id(), "KILL");
        }
        thread::sleep(LOOK);
    }
}

/// To the launcher.
fn send(pid: u32, signal: &str) {
    kill(signal, &pid.to_string());
}

/// To it and to the shells that it has opened to other hosts.
fn send_to_all(pid: u32, signal: &str) {
    kill(signal, &format!("-{pid}"));
}

/// A process that is gone meanwhile needs no signal.
fn kill(signal: &str, whom: &str) {
    let sent = Command::new("kill").args(["-s", signal, "--", whom]).stderr(Stdio::null()).status();
    if let Err(error) = sent {
        eprintln!("kill: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(script: &str) -> Ended {
        let signals = Signals { stop: Arc::default(), end: Arc::default() };
        run(Command::new("sh").args(["-c", script]), &signals).unwrap()
    }

    #[test]
    fn a_status_says_whether_to_start_again() {
        assert_eq!(ended("true"), Ended::Done);
        assert_eq!(ended("exit 2"), Ended::Refused);
        assert_eq!(ended("exit 130"), Ended::Stopped);
        assert_eq!(ended("exit 137"), Ended::Failed("status 137".to_string()));
        assert_eq!(ended("kill -9 $$"), Ended::Failed("signal 9".to_string()));
    }

    #[test]
    fn a_request_to_stop_is_handed_on_as_the_signal_that_saves() {
        let signals = Signals { stop: Arc::new(AtomicBool::new(true)), end: Arc::default() };
        let script = "trap 'exit 130' USR1; while true; do sleep 0.05; done";
        // The shell may not have come to its trap before the signal does, and then ends by it.
        let outcome = run(Command::new("sh").args(["-c", script]), &signals).unwrap();
        assert!([Ended::Stopped, Ended::Failed("signal 10".to_string())].contains(&outcome), "{outcome:?}");
    }
}
