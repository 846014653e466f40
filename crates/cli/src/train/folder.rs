//! A run's folder: locked while the run lasts, never shared by two runs.

use crate::failure::Failure;
use henge_files::{LockFile, write_atomic};
use henge_spec::Run;
use std::io::Write;
use std::path::{Path, PathBuf};

/// An open run folder; the lock is held until it is dropped.
pub struct Folder {
    path: PathBuf,
    _lock: LockFile,
}

impl Folder {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes the folder, locks it and writes `config.toml`.
pub fn open(run: &Run) -> Result<Folder, Failure> {
    let path = PathBuf::from(&run.dir);
    let named = |error: &dyn std::fmt::Display| Failure::run(format!("{}: {error}", path.display()));
    std::fs::create_dir_all(&path).map_err(|error| named(&error))?;
    let lock = LockFile::acquire(&path.join("lock")).map_err(Failure::request)?;
    let metrics = path.join("metrics.jsonl");
    if metrics.exists() {
        return Err(Failure::request(format!(
            "{} already holds a run; choose another run.dir ({}) or move that folder away",
            path.display(),
            run.place("run.dir"),
        )));
    }
    write_atomic(&path.join("config.toml"), |file| file.write_all(run.render().as_bytes())).map_err(Failure::run)?;
    Ok(Folder { path, _lock: lock })
}
