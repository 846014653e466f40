//! What `torch.save` writes: a zip archive of one pickle and one entry for each storage, none
//! of them compressed.

use crate::CheckpointError;
use crate::pickle::{Pickle, Value};
use crate::stored::{Element, PositionedFile};
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use zip::{CompressionMethod, ZipArchive};

/// An archive that fills a part of a file, or the whole.
#[derive(Debug)]
pub(super) struct TorchFile {
    pub pickle: Pickle,
    /// First byte in the file and length of each storage, by its key.
    storages: BTreeMap<String, (u64, u64)>,
}

/// A contiguous tensor in the file.
#[derive(Clone, Debug)]
pub(super) struct TorchTensor {
    /// First byte in the file.
    pub offset: u64,
    pub element: Element,
    pub shape: Vec<usize>,
}

impl TorchFile {
    /// Opens the archive in `length` bytes from `offset`.
    pub fn open(file: &PositionedFile, offset: u64, length: u64) -> Result<Self, CheckpointError> {
        let damaged = |problem: String| CheckpointError::Damaged {
            file: file.path.clone(),
            place: format!("the archive at byte {offset}"),
            problem,
            fix: "copy the checkpoint again".to_string(),
        };
        if offset.checked_add(length).is_none_or(|end| end > file.bytes) {
            return Err(damaged(format!("it should be {length} bytes long, in a file of {}", file.bytes)));
        }
        let mut archive = ZipArchive::new(Section { file, offset, length, position: 0 })
            .map_err(|error| damaged(error.to_string()))?;
        let (mut storages, mut pickle) = (BTreeMap::new(), None);
        for index in 0..archive.len() {
            let entry = archive.by_index_raw(index).map_err(|error| damaged(error.to_string()))?;
            let (start, size) = (offset + entry.data_start(), entry.size());
            let inside = start.checked_add(size).is_some_and(|end| end <= offset + length);
            if entry.compression() != CompressionMethod::Stored || !inside {
                return Err(damaged(format!("entry `{}` is compressed or runs out of it", entry.name())));
            }
            match entry.name().split_once('/') {
                Some((_, "data.pkl")) => pickle = Some((start, size)),
                Some((_, "byteorder")) if file.read_vec(start, size as usize)? != b"little" => {
                    return Err(damaged("its numbers are big-endian".to_string()));
                }
                Some((_, name)) if name.starts_with("data/") => {
                    storages.insert(name["data/".len()..].to_string(), (start, size));
                }
                _ => {}
            }
        }
        let (start, size) = pickle.ok_or_else(|| damaged("there is no data.pkl in it".to_string()))?;
        let bytes = file.read_vec(start, size as usize)?;
        let pickle = Pickle::parse(&bytes).map_err(|error| damaged(error.to_string()))?;
        Ok(Self { pickle, storages })
    }

    /// The tensor that a value rebuilds, if it is one of floats, contiguous and inside its
    /// storage; else why not.
    pub fn tensor(&self, value: Value) -> Result<TorchTensor, String> {
        let (name, arguments) = value.call().ok_or("it is no tensor")?;
        match (name, &arguments[..]) {
            ("torch._utils _rebuild_parameter", [inner, ..]) => self.tensor(*inner),
            ("torch._utils _rebuild_tensor_v2", [storage, first, shape, strides, ..]) => {
                self.rebuild(*storage, *first, *shape, *strides)
            }
            _ => Err(format!("it is rebuilt by `{name}`, which is not read")),
        }
    }

    fn rebuild(&self, storage: Value, first: Value, shape: Value, strides: Value) -> Result<TorchTensor, String> {
        let parts = storage.persistent().and_then(Value::sequence).ok_or("it has no storage")?;
        let [_, class, key, ..] = parts[..] else { return Err("its storage has no key".to_string()) };
        let class = class.global().unwrap_or_default();
        let element = element(class).ok_or_else(|| format!("its element type is `{class}`"))?;
        let key = key.text().unwrap_or_default();
        let &(start, size) = self.storages.get(key).ok_or_else(|| format!("storage `{key}` is not in the archive"))?;
        let (first, shape) = (first.size().ok_or("it has no offset")?, shape.sizes().ok_or("it has no shape")?);
        if strides.sizes().is_none_or(|strides| !is_contiguous(&shape, &strides)) {
            return Err("it is not contiguous".to_string());
        }
        let count = shape.iter().try_fold(1usize, |count, &n| count.checked_mul(n));
        let end = count.and_then(|count| count.checked_add(first)).and_then(|end| end.checked_mul(element.bytes(1)));
        if end.is_none_or(|end| end as u64 > size) {
            return Err(format!("its shape {shape:?} does not fit its storage of {size} bytes"));
        }
        Ok(TorchTensor { offset: start + element.bytes(first) as u64, element, shape })
    }
}

fn element(class: &str) -> Option<Element> {
    match class {
        "torch FloatStorage" => Some(Element::F32),
        "torch HalfStorage" => Some(Element::F16),
        "torch BFloat16Storage" => Some(Element::BF16),
        "torch DoubleStorage" => Some(Element::F64),
        _ => None,
    }
}

/// Axes of one element may have any stride.
fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1usize;
    shape.len() == strides.len()
        && shape.iter().zip(strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected = expected.saturating_mul(size.max(1));
            fits
        })
}

/// A part of a file as a reader of its own.
struct Section<'a> {
    file: &'a PositionedFile,
    offset: u64,
    length: u64,
    position: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.length.saturating_sub(self.position).min(out.len() as u64) as usize;
        self.file.read(self.offset + self.position, &mut out[..count]).map_err(io::Error::other)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Section<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = target.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}
