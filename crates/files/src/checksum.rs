//! Streaming 128-bit XXH3: fast enough to run beside every write, wide enough to tell files apart by
//! accident. It is no defence against someone who forges a file.

use crate::error::{FilesError, Operation, WithPath};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use twox_hash::xxhash3_128::Hasher;

/// A checksum under way.
#[derive(Clone, Default)]
pub struct Checksum {
    state: Hasher,
}

impl Checksum {
    /// The checksum of no bytes yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes; how they are cut into calls does not matter.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.write(bytes);
    }

    /// The checksum so far.
    pub fn value(&self) -> u128 {
        self.state.finish_128()
    }

    /// The checksum so far as 32 hexadecimal digits, as `xxhsum -H128` prints it.
    pub fn hex(&self) -> String {
        format!("{:032x}", self.value())
    }
}

/// Passes bytes on to a writer and keeps their checksum and count.
pub struct ChecksumWriter<W> {
    inner: W,
    checksum: Checksum,
    bytes: u64,
}

impl<W: Write> ChecksumWriter<W> {
    /// Checksums what is written to `inner` from here on.
    pub fn new(inner: W) -> Self {
        ChecksumWriter { inner, checksum: Checksum::new(), bytes: 0 }
    }

    /// The bytes accepted so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The checksum of the bytes accepted so far.
    pub fn checksum(&self) -> &Checksum {
        &self.checksum
    }

    /// The writer, to commit or close it.
    pub fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The checksum of a file's content, as [`Checksum::hex`], in constant memory.
pub fn checksum_file(path: &Path) -> Result<String, FilesError> {
    let mut file = File::open(path).with_path(path, Operation::Open)?;
    let mut checksum = Checksum::new();
    let mut buffer = vec![0u8; 1 << 18];
    loop {
        let length = file.read(&mut buffer).with_path(path, Operation::Read)?;
        if length == 0 {
            return Ok(checksum.hex());
        }
        checksum.update(&buffer[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The empty input's value is published in xxHash's own test table (seed 0).
    #[test]
    fn empty_input_has_the_published_value() {
        assert_eq!(Checksum::new().hex(), "99aa06d3014798d86001c324468d497f");
    }

    #[test]
    fn cuts_do_not_matter() {
        let bytes: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, &bytes).unwrap();
        let mut writer = ChecksumWriter::new(Vec::new());
        for piece in bytes.chunks(777) {
            writer.write_all(piece).unwrap();
        }
        assert_eq!(writer.checksum().hex(), checksum_file(&path).unwrap());
        assert_eq!(writer.bytes(), 100_000);
        assert_eq!(writer.into_inner(), bytes);
    }
}
