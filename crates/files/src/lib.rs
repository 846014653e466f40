//! Files that are either whole or not there.
//!
//! What Henge writes must survive a full disk, a kill and a power cut without leaving something that
//! looks finished and is not. So a file is written beside its name, flushed to the device, and renamed;
//! the folder that holds the name is flushed too.
//!
//! - [`AtomicFile`] and [`write_atomic`] do that for one file, [`publish_folder`] for a folder of files.
//! - [`LockFile`] keeps a second run away from the same output.
//! - [`Checksum`], [`ChecksumWriter`] and [`checksum_file`] are the streaming 128-bit XXH3.
//! - [`FilesError`] carries path and operation; [`FilesError::is_disk_full`] tells a full disk apart.
//!
//! ```
//! use henge_files::{checksum_file, write_atomic};
//! use std::io::Write;
//!
//! let folder = tempfile::tempdir().unwrap();
//! let path = folder.path().join("metrics.json");
//! write_atomic(&path, |file| file.write_all(b"{}\n")).unwrap();
//! assert_eq!(std::fs::read(&path).unwrap(), b"{}\n");
//! assert_eq!(checksum_file(&path).unwrap().len(), 32);
//! ```
//!
//! This crate must not know what is in the files: no tensors, tokens or run files.

mod atomic;
mod checksum;
mod error;
mod lock;

pub use atomic::{AtomicFile, publish_folder, sync_folder, temporary_name, write_atomic};
pub use checksum::{Checksum, ChecksumWriter, checksum_file};
pub use error::{FilesError, Operation, WithPath};
pub use lock::LockFile;
