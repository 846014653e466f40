//! The one place that turns errors into words and an exit status.

use std::fmt;
use std::process::ExitCode;

/// Status of a command that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// What ends a command before its work is done.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    words: String,
}

impl Failure {
    /// Of a status; one without words is told by another process.
    pub fn new(status: u8, words: String) -> Self {
        Self { status, words }
    }

    /// Its status alone.
    #[cfg(feature = "mpi")]
    pub fn untold(self) -> Self {
        Self { words: String::new(), ..self }
    }

    /// Its exit status.
    #[cfg(feature = "mpi")]
    pub fn status(&self) -> u8 {
        self.status
    }

    /// What happened.
    #[cfg(feature = "mpi")]
    pub fn words(&self) -> &str {
        &self.words
    }

    /// The request was wrong: status 2.
    pub fn request(words: impl fmt::Display) -> Self {
        Self { status: 2, words: words.to_string() }
    }

    /// The run failed: status 1.
    pub fn run(words: impl fmt::Display) -> Self {
        Self { status: 1, words: words.to_string() }
    }

    /// Ctrl-C, after saving: status 130.
    pub fn interrupted(words: impl fmt::Display) -> Self {
        Self { status: INTERRUPTED, words: words.to_string() }
    }

    /// Says what happened on standard error and returns the status.
    pub fn report(self) -> ExitCode {
        ExitCode::from(self.told().status)
    }

    /// Says what happened on standard error, where nobody else does; it is not said again.
    pub fn told(self) -> Self {
        let kind = if self.status == INTERRUPTED { "" } else { "error: " };
        if !self.words.is_empty() {
            eprintln!("{kind}{}", self.words);
        }
        Self { words: String::new(), ..self }
    }
}

impl From<henge_spec::SpecError> for Failure {
    fn from(error: henge_spec::SpecError) -> Self {
        Self::request(error)
    }
}

impl From<henge_schedule::ScheduleError> for Failure {
    fn from(error: henge_schedule::ScheduleError) -> Self {
        Self::request(error)
    }
}

impl From<henge_train::TrainError> for Failure {
    fn from(error: henge_train::TrainError) -> Self {
        if error.is_request() { Self::request(error) } else { Self::run(error) }
    }
}

/// Prints one JSON document on standard output. A reader that has gone away is no error.
pub fn print_json(document: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).map_err(Failure::run)?;
    print(&(text + "\n"))
}

/// Prints text on standard output. A reader that has gone away is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::run(format!("standard output: {error}"))),
        _ => Ok(()),
    }
}
