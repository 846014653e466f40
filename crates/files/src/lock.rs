//! An advisory lock that dies with its holder.

use crate::error::{FilesError, Operation, WithPath};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Held from [`LockFile::acquire`] until dropped, or until the process ends, however it ends.
///
/// The operating system's lock decides, not the file's presence, so a killed run leaves nothing to clean
/// up by hand. The file keeps the holder's process id for the message that another run prints. It is
/// never removed: a lock on a removed file would let two runs in.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    /// Holds the lock while open.
    _file: File,
}

impl LockFile {
    /// Takes the lock at `path`, creating the file if need be; never waits.
    ///
    /// # Errors
    /// [`FilesError::Locked`] when another process, or another `LockFile` of this one, holds it.
    pub fn acquire(path: &Path) -> Result<Self, FilesError> {
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
        file.set_len(0).with_path(path, Operation::Write)?;
        file.rewind().with_path(path, Operation::Write)?;
        write!(file, "process {}", std::process::id()).with_path(path, Operation::Write)?;
        Ok(LockFile { path: path.to_path_buf(), _file: file })
    }

    /// The locked file.
    pub fn path(&self) -> &Path {
        &self.path
    }
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
        LockFile::acquire(&path).unwrap();
    }

    #[test]
    fn a_lock_file_left_behind_does_not_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("corpus.lock");
        std::fs::write(&path, "process 1 that was killed long ago").unwrap();
        LockFile::acquire(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("process {}", std::process::id()));
    }
}
