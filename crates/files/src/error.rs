//! What went wrong, with which file, while doing what.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What was being done to a file when it failed; reads as "cannot {operation} {path}".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Open,
    Read,
    Write,
    Flush,
    Rename,
    Remove,
    Lock,
    Map,
    List,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush to disk",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::Lock => "lock",
            Operation::Map => "map into memory",
            Operation::List => "list",
        })
    }
}

/// Why a file could not be read, written, renamed or locked.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The device or the user's quota is full. Nothing half written is left under the final name.
    #[error(
        "the disk is full: cannot {operation} {}; free some space or write to another disk, then start again",
        path.display()
    )]
    DiskFull { path: PathBuf, operation: Operation },
    /// Another process holds the lock.
    #[error(
        "{} is being written by another run ({holder}); wait for it to end or choose another output",
        path.display()
    )]
    Locked { path: PathBuf, holder: String },
    /// The target of a folder's rename is there already.
    #[error("{} exists already; remove it or choose another name", path.display())]
    Exists { path: PathBuf },
    /// Any other refusal of the operating system.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io { path: PathBuf, operation: Operation, source: io::Error },
}

impl FilesError {
    /// Names the file and the operation of an error of the operating system.
    pub fn new(path: &Path, operation: Operation, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FilesError::DiskFull { path, operation },
            _ => FilesError::Io { path, operation, source },
        }
    }

    /// Whether the failure is a full disk: the run's misfortune rather than a wrong request.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, FilesError::DiskFull { .. })
    }
}

/// Adds path and operation to an `io::Result`.
pub trait WithPath<T> {
    /// `Ok` as it is; an error as [`FilesError`] of `path` and `operation`.
    fn with_path(self, path: &Path, operation: Operation) -> Result<T, FilesError>;
}

impl<T> WithPath<T> for io::Result<T> {
    fn with_path(self, path: &Path, operation: Operation) -> Result<T, FilesError> {
        self.map_err(|source| FilesError::new(path, operation, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_apart() {
        let full = FilesError::new(Path::new("a.bin"), Operation::Write, io::Error::from(io::ErrorKind::StorageFull));
        assert!(full.is_disk_full());
        assert!(full.to_string().starts_with("the disk is full: cannot write a.bin"));
        let gone = FilesError::new(Path::new("a.bin"), Operation::Open, io::Error::from(io::ErrorKind::NotFound));
        assert!(!gone.is_disk_full());
        assert!(gone.to_string().starts_with("cannot open a.bin: "));
    }
}
