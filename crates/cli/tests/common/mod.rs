//! What the end-to-end tests share: a fresh folder, the real binary, its metrics.

#![allow(dead_code)] // each test binary uses its own part

pub mod mpi;
pub mod oracle;
pub mod resumed;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// t, p, d, v, schedule, microbatch.
pub type Case = (usize, usize, usize, usize, &'static str, usize);

/// Every kind of layout, microbatches of one sequence and of more.
pub const LAYOUTS: &[Case] = &[
    (1, 1, 1, 1, "1f1b", 8),
    (1, 1, 1, 1, "1f1b", 1),
    (2, 1, 1, 1, "1f1b", 2),
    (4, 1, 1, 1, "1f1b", 4),
    (1, 2, 1, 1, "1f1b", 2),
    (1, 4, 1, 1, "1f1b", 1),
    (1, 2, 1, 2, "interleaved", 1),
    (2, 2, 1, 2, "interleaved", 2),
    (1, 1, 2, 1, "1f1b", 1),
    (2, 2, 2, 1, "1f1b", 2),
    (1, 4, 1, 1, "gpipe", 2),
];

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

    /// Prepares a corpus of a few thousand GPT-2 tokens.
    pub fn small_corpus(&self, prefix: &str) {
        self.write("text.txt", "The quick brown fox jumps over the lazy dog. ".repeat(300));
        self.succeed(&["data", "prepare", "--input", "text.txt", "--tokenizer", "gpt2", "--output", prefix]);
    }

    /// Runs the binary here.
    pub fn henge(&self, arguments: &[&str]) -> Output {
        henge_command(self, arguments).stderr(Stdio::piped()).output().expect("the binary starts")
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

/// A small file system, unmounted at the end.
pub struct Disk(PathBuf);

impl Disk {
    pub fn mount(at: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a mount point");
        let option = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &option, "tmpfs"]).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(at.to_path_buf()));
        }
        eprintln!("skipped: this test mounts a file system, which only root may do");
        None
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.display());
    }
}

/// The binary, to be run in a folder.
pub fn henge_command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_henge"));
    command.current_dir(place.folder.path()).args(arguments).stderr(Stdio::null());
    command
}

pub fn words(output: &Output) -> String {
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

/// Batches of sequences that a small model can learn, 48 tokens below 509: each token mostly
/// follows from the last. A tenth of the targets is not scored.
pub fn batches(number: usize, sequences: usize) -> String {
    let mut state = 12345u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut sequence = || -> (Vec<u64>, Vec<i64>) {
        let mut token = next(509);
        let mut follow = || {
            token = if next(4) == 0 { next(509) } else { (token * 7 + 3) % 509 };
            token
        };
        let tokens: Vec<u64> = (0..49).map(|_| follow()).collect();
        let labels = tokens[1..].iter().map(|&token| if next(10) == 0 { -100 } else { token as i64 }).collect();
        (tokens[..48].to_vec(), labels)
    };
    let mut batch = || {
        let (tokens, labels): (Vec<_>, Vec<_>) = (0..sequences).map(|_| sequence()).unzip();
        serde_json::json!({ "tokens": tokens, "labels": labels })
    };
    serde_json::json!({ "batches": (0..number).map(|_| batch()).collect::<Vec<_>>() }).to_string()
}
