//! Archives as `torch.save` writes them, one after the other in a file.

use crate::CheckpointError;
use crate::pickle_writer::PickleWriter;
use crate::stored::Element;
use henge_files::{Operation, WithPath};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Where torch lets the numbers of a tensor begin, and what a mapping of them asks for.
const ALIGNMENT: u16 = 64;

/// An archive that is being written at the end of a file.
pub(super) struct Archive<'a> {
    zip: ZipWriter<Section<'a>>,
    path: &'a Path,
}

impl<'a> Archive<'a> {
    /// Begins an archive around one pickled value.
    pub fn begin(file: &'a mut File, path: &'a Path, pickle: &[u8]) -> Result<Self, CheckpointError> {
        let start = file.stream_position().with_path(path, Operation::Write)?;
        let mut archive = Self { zip: ZipWriter::new(Section { file, start }), path };
        archive.entry("data.pkl", pickle)?;
        archive.entry("byteorder", b"little")?;
        archive.entry("version", b"3\n")?;
        Ok(archive)
    }

    fn entry(&mut self, name: &str, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.start(name, bytes.len() as u64)?;
        self.write(bytes)
    }

    fn start(&mut self, name: &str, bytes: u64) -> Result<(), CheckpointError> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .with_alignment(ALIGNMENT)
            .large_file(bytes >= u64::from(u32::MAX));
        let started = self.zip.start_file(format!("archive/{name}"), options);
        Ok(started.map_err(io::Error::from).with_path(self.path, Operation::Write)?)
    }

    /// Begins the storage that [`tensor`] refers to; its bytes follow by [`Self::write`].
    pub fn storage(&mut self, bytes: u64) -> Result<(), CheckpointError> {
        self.start("data/0", bytes)
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        Ok(self.zip.write_all(bytes).with_path(self.path, Operation::Write)?)
    }

    /// Ends the archive; the file stands behind it then.
    pub fn finish(self) -> Result<(), CheckpointError> {
        let section = self.zip.finish().map_err(io::Error::from).with_path(self.path, Operation::Write)?;
        section.file.seek(SeekFrom::End(0)).with_path(self.path, Operation::Write)?;
        Ok(())
    }
}

/// A pickled tensor, contiguous, alone in the archive's first storage.
pub(super) fn tensor(element: Element, shape: &[usize]) -> Vec<u8> {
    let count: usize = shape.iter().product();
    let strides = |w: &mut PickleWriter| {
        for axis in 0..shape.len() {
            w.size(shape[axis + 1..].iter().product::<usize>() as u64);
        }
    };
    PickleWriter::of(|w| {
        w.call("torch._utils", "_rebuild_tensor_v2", |w| {
            w.persistent(|w| {
                w.tuple(|w| {
                    w.text("storage");
                    w.global("torch", storage(element));
                    w.text("0");
                    w.text("cpu");
                    w.size(count as u64);
                });
            });
            w.int(0);
            w.tuple(|w| sizes(w, shape));
            w.tuple(strides);
            w.bool(false);
            w.call("collections", "OrderedDict", |_| ());
        });
    })
}

pub(super) fn sizes(w: &mut PickleWriter, shape: &[usize]) {
    shape.iter().for_each(|&size| w.size(size as u64));
}

/// Torch's class of a storage of such elements.
fn storage(element: Element) -> &'static str {
    match element {
        Element::F64 => "DoubleStorage",
        Element::F16 => "HalfStorage",
        Element::BF16 => "BFloat16Storage",
        Element::F32 | Element::Quantized(_) => "FloatStorage",
    }
}

/// Torch's name of an element type.
pub(super) fn dtype(element: Element) -> &'static str {
    match element {
        Element::F64 => "float64",
        Element::F16 => "float16",
        Element::BF16 => "bfloat16",
        Element::F32 | Element::Quantized(_) => "float32",
    }
}

/// The end of a file as a file of its own.
struct Section<'a> {
    file: &'a mut File,
    start: u64,
}

impl Write for Section<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Section<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(position) => SeekFrom::Start(self.start + position),
            relative => relative,
        };
        Ok(self.file.seek(to)? - self.start)
    }
}
