//! The numbers of a run as TensorBoard reads them: an event file of scalars.
//!
//! ```text
//!   file    = record*                    record = length u64, mask(crc(length)) u32,
//!   payload = one Event in protobuf               payload,    mask(crc(payload)) u32
//!   mask(c) = rotate_right(c, 15) + 0xa282ead8
//! ```
//!
//! Numbers are little-endian, the checksum is CRC-32C (Castagnoli); TensorFlow's
//! `lib/io/record_writer.h`, `lib/hash/crc32c.h`, `core/util/event.proto` and
//! `core/framework/summary.proto` define the form. The messages hold only the fields that
//! are written here; protobuf skips absent ones.

use crate::TrainError;
use prost::Message;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What readers take as the second form of event files, the one with session marks.
const FILE_VERSION: &str = "brain.Event:2";
/// `SessionLog.SessionStatus.START`.
const SESSION_START: i32 = 1;

/// `tensorflow.Event`.
#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    session_log: Option<SessionLog>,
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

/// `tensorflow.Summary.Value`.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// `tensorflow.SessionLog`.
#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// One event file. Each call writes its record whole, so a reader never waits for a step.
pub struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Opens a new file in `folder`, which is made where it is absent. A run that goes on
    /// from a checkpoint opens one more: its first record tells readers to forget what
    /// earlier files say of `first_step` and later steps.
    ///
    /// # Errors
    /// [`TrainError::Output`] where the folder or the file cannot be made or written.
    pub fn create(folder: &Path, first_step: u64) -> Result<Self, TrainError> {
        let failed = |path: &Path, source| TrainError::Output { path: path.display().to_string(), source };
        std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
        let (path, file) = new_file(folder).map_err(|source| failed(folder, source))?;
        let mut events = Self { path, file };
        events.write(&Event { file_version: Some(FILE_VERSION.to_string()), ..Event::at(0) })?;
        let session_log = Some(SessionLog { status: SESSION_START });
        events.write(&Event { session_log, ..Event::at(first_step) })?;
        Ok(events)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds one number. TensorBoard keeps scalars in float32.
    ///
    /// # Errors
    /// [`TrainError::Output`] where the file cannot be written.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f64) -> Result<(), TrainError> {
        self.scalars(step, &[(tag.to_string(), value)])
    }

    /// Adds several numbers of one step as one record.
    ///
    /// # Errors
    /// [`TrainError::Output`] where the file cannot be written.
    pub fn scalars(&mut self, step: u64, values: &[(String, f64)]) -> Result<(), TrainError> {
        let value = |(tag, value): &(String, f64)| Value { tag: tag.clone(), simple_value: Some(*value as f32) };
        let summary = Some(Summary { value: values.iter().map(value).collect() });
        self.write(&Event { summary, ..Event::at(step) })
    }

    fn write(&mut self, event: &Event) -> Result<(), TrainError> {
        let written = self.file.write_all(&record(&event.encode_to_vec()));
        written.map_err(|source| TrainError::Output { path: self.path.display().to_string(), source })
    }
}

impl Event {
    fn at(step: u64) -> Self {
        // A step beyond i64 would take longer than the Earth; saturating keeps it a step.
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        Self { wall_time: since_epoch().as_secs_f64(), step, ..Self::default() }
    }
}

/// A clock before 1970 counts as 1970.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// `events.out.tfevents.<seconds>.<host>.<process>.<n>`, as TensorFlow names them: readers
/// look for `tfevents` and take the files of a folder in the order of their names.
fn new_file(folder: &Path) -> std::io::Result<(PathBuf, File)> {
    let host = gethostname::gethostname().to_string_lossy().replace(['/', '\\'], "-");
    let stem = format!("events.out.tfevents.{:010}.{host}.{}", since_epoch().as_secs(), std::process::id());
    let mut number = 0;
    loop {
        let path = folder.join(format!("{stem}.{number}"));
        match OpenOptions::new().create_new(true).append(true).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            opened => return opened.map(|file| (path, file)),
        }
    }
}

fn record(payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u64).to_le_bytes();
    let checksum = |bytes: &[u8]| mask(crc32c::crc32c(bytes)).to_le_bytes();
    [&length[..], &checksum(&length), payload, &checksum(payload)].concat()
}

fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
#[path = "tensorboard_test.rs"]
mod tests;
