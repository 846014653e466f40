//! The cleaned lines, packed as the name says.

use super::duplicates::Duplicates;
use super::report::CleanReport;
use super::survivors::Documents;
use crate::error::DataError;
use henge_files::{AtomicFile, Operation, WithPath};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file under way, which appears under its name once it is whole.
pub(super) struct Output {
    writer: Packed,
}

enum Packed {
    Plain(AtomicFile),
    Gzip(flate2::write::GzEncoder<AtomicFile>),
    Zstd(zstd::stream::write::Encoder<'static, AtomicFile>),
}

impl Output {
    pub(super) fn create(path: &Path) -> Result<Self, DataError> {
        let file = AtomicFile::create(path)?;
        let writer = match path.extension().and_then(|ending| ending.to_str()) {
            Some("gz" | "gzip") => Packed::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
            Some("zst" | "zstd") => {
                let level = zstd::DEFAULT_COMPRESSION_LEVEL;
                Packed::Zstd(zstd::stream::write::Encoder::new(file, level).with_path(path, Operation::Create)?)
            }
            _ => Packed::Plain(file),
        };
        Ok(Output { writer })
    }

    /// Writes the documents that stay.
    pub(super) fn write(
        mut self,
        documents: &Documents,
        duplicates: &Duplicates,
        report: &mut CleanReport,
        stop: &AtomicBool,
    ) -> Result<(), DataError> {
        let path = self.writer.file().target().to_path_buf();
        for number in (0..documents.len()).filter(|&number| duplicates.stays(number)) {
            if stop.load(Ordering::Relaxed) {
                return Err(DataError::Cancelled);
            }
            let mut line = documents.read(number)?.json;
            line.push('\n');
            report.written += 1;
            report.written_bytes += line.len() as u64;
            self.writer.write_all(line.as_bytes()).with_path(&path, Operation::Write)?;
        }
        let file = self.writer.finish().with_path(&path, Operation::Write)?;
        Ok(file.commit()?)
    }
}

impl Packed {
    fn file(&self) -> &AtomicFile {
        match self {
            Packed::Plain(file) => file,
            Packed::Gzip(packer) => packer.get_ref(),
            Packed::Zstd(packer) => packer.get_ref(),
        }
    }

    fn finish(self) -> io::Result<AtomicFile> {
        match self {
            Packed::Plain(file) => Ok(file),
            Packed::Gzip(packer) => packer.finish(),
            Packed::Zstd(packer) => packer.finish(),
        }
    }
}

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Packed::Plain(file) => file.write(bytes),
            Packed::Gzip(packer) => packer.write(bytes),
            Packed::Zstd(packer) => packer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Packed::Plain(file) => file.flush(),
            Packed::Gzip(packer) => packer.flush(),
            Packed::Zstd(packer) => packer.flush(),
        }
    }
}
