//! What the end-to-end tests share: a fresh folder, the real binary, its metrics.

#![allow(dead_code)] // each test binary uses its own part

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A fresh folder in which the binary runs; gone at the end.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("inside the folder")).expect("its folders");
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// Runs the binary here.
    pub fn henge(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_henge"));
        command.current_dir(self.folder.path()).args(arguments).output().expect("the binary starts")
    }

    /// Runs the binary and expects status 0; returns standard output.
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.henge(arguments);
        assert!(output.status.success(), "henge {}\n{}", arguments.join(" "), words(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Runs the binary, expects a status and returns standard error.
    pub fn fail(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.henge(arguments);
        assert_eq!(output.status.code(), Some(status), "henge {}\n{}", arguments.join(" "), words(&output));
        String::from_utf8(output.stderr).expect("UTF-8")
    }

    /// The lines of a run's metrics that belong to steps.
    pub fn steps(&self, run: &str) -> Vec<Value> {
        self.metrics(run).into_iter().filter(|line| line.get("loss").is_some()).collect()
    }

    /// Every line of a run's metrics.
    pub fn metrics(&self, run: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(run).join("metrics.jsonl")).expect("metrics.jsonl");
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

fn words(output: &Output) -> String {
    format!(
        "status {:?}\nstdout:\n{}\nstderr:\n{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The folder of real files, or `None` with a word about what is skipped.
///
/// # Panics
/// Where the folder is named and lacks `part`.
pub fn test_data(part: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("HENGE_TEST_DATA") else {
        eprintln!("skipped: HENGE_TEST_DATA is not set, and this test reads {part} below it");
        return None;
    };
    let path = Path::new(&folder).join(part);
    let path = path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(path)
}

/// A number of a JSON object.
pub fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("`{key}` of {value}"))
}

/// `|a - b| / |b|`.
pub fn relative(a: f64, b: f64) -> f64 {
    (a - b).abs() / b.abs()
}
