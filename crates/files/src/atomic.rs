//! Write beside, flush, rename.

use crate::error::{FilesError, Operation, WithPath};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// `name.tmp` beside `path`: where a file or folder grows before it is renamed.
///
/// The name is fixed, so that what a killed run left is overwritten by the next one and does not pile
/// up. Two runs that write one target are kept apart by a [`crate::LockFile`].
pub fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".tmp");
    path.with_file_name(name)
}

/// A buffered file that appears under its name only when committed, and is removed when dropped before.
#[derive(Debug)]
pub struct AtomicFile {
    target: PathBuf,
    temporary: PathBuf,
    /// `None` once the file has been closed by `commit`.
    writer: Option<BufWriter<File>>,
}

impl AtomicFile {
    /// Starts a file that will be `path`; its folder must exist.
    pub fn create(path: &Path) -> Result<Self, FilesError> {
        let temporary = temporary_name(path);
        let file = File::create(&temporary).with_path(&temporary, Operation::Create)?;
        let writer = Some(BufWriter::with_capacity(1 << 18, file));
        Ok(AtomicFile { target: path.to_path_buf(), temporary, writer })
    }

    /// The name the file will have.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flushes to the device, renames to the final name and flushes the folder.
    pub fn commit(mut self) -> Result<(), FilesError> {
        self.commit_inner().inspect_err(|_| self.discard())
    }

    fn commit_inner(&mut self) -> Result<(), FilesError> {
        let writer = self.writer.as_mut().expect("only commit, which consumes self, takes the writer");
        writer.flush().with_path(&self.temporary, Operation::Write)?;
        writer.get_ref().sync_all().with_path(&self.temporary, Operation::Flush)?;
        self.writer = None;
        fs::rename(&self.temporary, &self.target).with_path(&self.target, Operation::Rename)?;
        sync_folder(parent(&self.target))
    }

    fn discard(&mut self) {
        if let Some(writer) = self.writer.take() {
            // `into_parts` drops the buffer unwritten: on a full disk writing it would fail again.
            drop(writer.into_parts());
        }
        // The error that led here is the one worth reporting.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.as_mut().expect("only commit, which consumes self, takes the writer").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().expect("only commit, which consumes self, takes the writer").flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.discard();
        }
    }
}

/// Writes `path` whole: `fill` writes the content, an error of it leaves nothing behind.
pub fn write_atomic(path: &Path, fill: impl FnOnce(&mut AtomicFile) -> io::Result<()>) -> Result<(), FilesError> {
    let mut file = AtomicFile::create(path)?;
    fill(&mut file).with_path(path, Operation::Write)?;
    file.commit()
}

/// Renames a finished folder to its final name, so that the name never shows a half-filled folder.
///
/// Every file below `from` is flushed, then each folder, then the rename, then the folder that holds
/// `to`. An existing `to` is an error: a folder cannot be replaced in one step.
pub fn publish_folder(from: &Path, to: &Path) -> Result<(), FilesError> {
    if fs::symlink_metadata(to).is_ok() {
        return Err(FilesError::Exists { path: to.to_path_buf() });
    }
    sync_tree(from)?;
    fs::rename(from, to).with_path(to, Operation::Rename)?;
    sync_folder(parent(to))
}

fn sync_tree(folder: &Path) -> Result<(), FilesError> {
    for entry in fs::read_dir(folder).with_path(folder, Operation::List)? {
        let path = entry.with_path(folder, Operation::List)?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            let file = File::open(&path).with_path(&path, Operation::Open)?;
            file.sync_all().with_path(&path, Operation::Flush)?;
        }
    }
    sync_folder(folder)
}

/// Flushes a folder's own entries (its names) to the device.
pub fn sync_folder(folder: &Path) -> Result<(), FilesError> {
    let handle = File::open(folder).with_path(folder, Operation::Open)?;
    handle.sync_all().with_path(folder, Operation::Flush)
}

/// The folder that holds `path`; `.` for a bare name.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_old_content_stays_until_the_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        write_atomic(&path, |f| f.write_all(b"old")).unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn a_failure_while_filling_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let error = write_atomic(&path, |f| {
            f.write_all(&[0; 1 << 20])?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert!(error.unwrap_err().is_disk_full());
        assert!(names(folder.path()).is_empty());
    }

    /// The kernel's own "no space left": every write to `/dev/full` fails with it.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_reported_and_the_temporary_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::os::unix::fs::symlink("/dev/full", temporary_name(&path)).unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"stays in the buffer until the commit").unwrap();
        let error = file.commit().unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn dropping_without_commit_removes_the_temporary() {
        let folder = tempfile::tempdir().unwrap();
        drop(AtomicFile::create(&folder.path().join("x")).unwrap());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_folder_is_published_once() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("step.tmp"), folder.path().join("step"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("inner/shard"), b"1").unwrap();
        publish_folder(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("inner/shard")).unwrap(), b"1");
        assert_eq!(names(folder.path()), ["step"]);
        fs::create_dir(&from).unwrap();
        assert!(matches!(publish_folder(&from, &to), Err(FilesError::Exists { .. })));
    }
}
