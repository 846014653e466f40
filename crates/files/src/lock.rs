//! An advisory lock that dies with its holder.

use crate::error::{FilesError, Operation, WithPath};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Held from [`LockFile::acquire`] until dropped, or until the process ends, however it ends.
///
/// The operating system's lock decides, not the file's presence, so what a killed run leaves behind locks
/// nothing. The file keeps the holder's process id for the message that another run prints; it is removed
/// with the lock.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    /// Holds the lock while open.
    file: File,
}

impl LockFile {
    /// Takes the lock at `path`, creating the file if need be; never waits.
    ///
    /// # Errors
    /// [`FilesError::Locked`] when another process, or another `LockFile` of this one, holds it.
    pub fn acquire(path: &Path) -> Result<Self, FilesError> {
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .with_path(path, Operation::Open)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(FilesError::Locked { path: path.to_path_buf(), holder: holder(&mut file) });
                }
                Err(TryLockError::Error(source)) => return Err(FilesError::new(path, Operation::Lock, source)),
            }
            // A holder that left between our open and our lock has removed the name: lock the new file.
            if still_named(&file, path) {
                return Self::sign(path, file);
            }
        }
    }

    fn sign(path: &Path, mut file: File) -> Result<Self, FilesError> {
        file.set_len(0).with_path(path, Operation::Write)?;
        file.rewind().with_path(path, Operation::Write)?;
        write!(file, "process {}", std::process::id()).with_path(path, Operation::Write)?;
        Ok(LockFile { path: path.to_path_buf(), file })
    }

    /// The locked file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Removed while still locked, so that whoever opened it before finds it unnamed. A file that
        // cannot be removed does no harm.
        if still_named(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether `path` names the open file.
#[cfg(unix)]
fn still_named(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: std::io::Result<std::fs::Metadata>| metadata.ok().map(|m| (m.dev(), m.ino()));
    identity(file.metadata()) == identity(std::fs::metadata(path)) && identity(file.metadata()).is_some()
}

/// Elsewhere an open file cannot lose its name.
#[cfg(not(unix))]
fn still_named(_file: &File, _path: &Path) -> bool {
    true
}

/// Who wrote its id into the lock file, as far as it can be read.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(64).read_to_string(&mut text) {
        Ok(length) if length > 0 => text,
        _ => "holder unknown".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("corpus.lock");
        let first = LockFile::acquire(&path).unwrap();
        let message = LockFile::acquire(&path).unwrap_err().to_string();
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        drop(first);
        assert!(!path.exists());
        LockFile::acquire(&path).unwrap();
    }

    #[test]
    fn a_lock_file_left_behind_does_not_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("corpus.lock");
        std::fs::write(&path, "process 1 that was killed long ago").unwrap();
        let _lock = LockFile::acquire(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("process {}", std::process::id()));
    }
}
