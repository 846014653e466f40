//! A file that only grows, can be cut back to a known length, and vanishes unless kept or renamed.

use crate::error::DataError;
use henge_files::{Operation, WithPath};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What becomes of the file when the spool is dropped.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Removed,
    Left,
}

#[derive(Debug)]
pub(crate) struct Spool {
    path: PathBuf,
    writer: BufWriter<File>,
    fate: Fate,
}

impl Spool {
    /// Opens the file and cuts it to `length` bytes; created if `length` is 0.
    pub(crate) fn open(path: &Path, length: u64) -> Result<Self, DataError> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(length == 0)
            .truncate(false)
            .open(path)
            .with_path(path, Operation::Open)?;
        let actual = file.metadata().with_path(path, Operation::Read)?.len();
        if actual < length {
            return Err(DataError::UnreadableInput {
                path: path.to_path_buf(),
                fault: format!("has {actual} bytes where {length} had been written; remove it and start again"),
            });
        }
        if actual > length {
            file.set_len(length).with_path(path, Operation::Write)?;
        }
        file.seek(SeekFrom::Start(length)).with_path(path, Operation::Write)?;
        let writer = BufWriter::with_capacity(1 << 18, file);
        Ok(Spool { path: path.to_path_buf(), writer, fate: Fate::Removed })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        Ok(self.writer.write_all(bytes).with_path(&self.path, Operation::Write)?)
    }

    pub(crate) fn sync(&mut self) -> Result<(), DataError> {
        self.writer.flush().with_path(&self.path, Operation::Write)?;
        Ok(self.writer.get_ref().sync_data().with_path(&self.path, Operation::Flush)?)
    }

    pub(crate) fn keep(&mut self) {
        self.fate = Fate::Left;
    }

    /// A reader from the start of what has been synced.
    pub(crate) fn reader(&self) -> Result<File, DataError> {
        Ok(File::open(&self.path).with_path(&self.path, Operation::Open)?)
    }

    /// Gives the synced file its final name.
    pub(crate) fn rename(&mut self, to: &Path) -> Result<(), DataError> {
        fs::rename(&self.path, to).with_path(to, Operation::Rename)?;
        self.fate = Fate::Left;
        Ok(())
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.fate == Fate::Removed {
            // Nothing to report to: whoever drops an unfinished spool has an error of its own.
            let _ = fs::remove_file(&self.path);
        }
    }
}
