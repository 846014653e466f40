//! The frame of a GGUF file: metadata and the table of tensors, every number of it checked.
//!
//! Layout (version 2 and 3, little-endian): `GGUF`, version u32, tensors u64, pairs u64; each
//! pair a key, a type u32 and a value; each tensor a name, axes u32, sizes u64 (fastest first),
//! type u32, offset u64; then, aligned, the data. A string is its length u64 and its bytes.

use crate::CheckpointError;
use crate::quantized::Quantized;
use crate::stored::{Element, PositionedFile};
use henge_files::{Operation, WithPath};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

const MAGIC: [u8; 4] = *b"GGUF";
/// Far above any key or token, far below a damaged length.
const LONGEST_STRING: u64 = 1 << 24;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Whole(i128),
    Float(f64),
    Flag(bool),
    Text(String),
    List(Vec<Value>),
}

/// A tensor in the file.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    /// Its shape with the slowest axis first.
    pub shape: Vec<usize>,
    /// How it is coded, or the number of a type that is not read here.
    pub element: Result<Element, u32>,
    /// First byte in the file.
    pub offset: u64,
}

/// What stands before the data.
pub(super) struct Frame {
    pub metadata: BTreeMap<String, Value>,
    pub tensors: BTreeMap<String, Tensor>,
}

/// Whether a file begins as a GGUF file does.
pub(super) fn is_at(path: &Path) -> bool {
    let mut magic = [0; 4];
    path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == MAGIC
}

pub(super) fn read(file: &PositionedFile) -> Result<Frame, CheckpointError> {
    let open = File::open(&file.path).with_path(&file.path, Operation::Open)?;
    let mut cursor = Cursor { file, input: BufReader::new(open), position: 0, place: "its first bytes".to_string() };
    if cursor.array::<4>()? != MAGIC {
        return Err(cursor.damaged("it does not begin with `GGUF`".to_string()));
    }
    let version = cursor.u32()?;
    if !(2..=3).contains(&version) {
        let what = match version.swap_bytes() {
            2..=3 => "it is a big-endian GGUF file".to_string(),
            _ => format!("it is GGUF of version {version}"),
        };
        return Err(unsupported(file, what, "convert it to little-endian GGUF of version 3"));
    }
    // A tensor's entry takes 24 bytes and more, a pair 13.
    let (tensors, pairs) = (cursor.count(24)?, cursor.count(13)?);
    let metadata = cursor.metadata(pairs)?;
    let entries = cursor.entries(tensors)?;
    let start = cursor.data_start(&metadata)?;
    let tensors = entries.into_iter().map(|entry| entry.place(file, start)).collect::<Result<_, _>>()?;
    Ok(Frame { metadata, tensors })
}

fn unsupported(file: &PositionedFile, what: String, fix: &str) -> CheckpointError {
    CheckpointError::Unsupported { file: file.path.clone(), what, fix: fix.to_string() }
}

fn damaged(file: &PositionedFile, place: &str, problem: String) -> CheckpointError {
    CheckpointError::Damaged {
        file: file.path.clone(),
        place: place.to_string(),
        problem,
        fix: "download or convert the file again".to_string(),
    }
}

struct Cursor<'a> {
    file: &'a PositionedFile,
    input: BufReader<File>,
    position: u64,
    /// What is being read, for messages.
    place: String,
}

impl Cursor<'_> {
    fn damaged(&self, problem: String) -> CheckpointError {
        damaged(self.file, &self.place, problem)
    }

    fn left(&self) -> u64 {
        self.file.bytes.saturating_sub(self.position)
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), CheckpointError> {
        if out.len() as u64 > self.left() {
            return Err(self.damaged(format!("the file ends after {} bytes", self.file.bytes)));
        }
        self.input.read_exact(out).with_path(&self.file.path, Operation::Read)?;
        self.position += out.len() as u64;
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CheckpointError> {
        let mut out = [0; N];
        self.fill(&mut out)?;
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32, CheckpointError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, CheckpointError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of things that take at least `least` bytes each, so that it bounds memory.
    fn count(&mut self, least: u64) -> Result<usize, CheckpointError> {
        let count = self.u64()?;
        if count > self.left() / least {
            return Err(self.damaged(format!("{count} entries in the {} bytes that are left", self.left())));
        }
        Ok(count as usize)
    }

    fn string(&mut self) -> Result<String, CheckpointError> {
        let length = self.u64()?;
        if length > self.left().min(LONGEST_STRING) {
            return Err(self.damaged(format!("a string of {length} bytes where {} are left", self.left())));
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|error| self.damaged(error.to_string()))
    }

    fn metadata(&mut self, pairs: usize) -> Result<BTreeMap<String, Value>, CheckpointError> {
        let mut metadata = BTreeMap::new();
        for pair in 0..pairs {
            self.place = format!("pair {pair} of its metadata");
            let key = self.string()?;
            self.place = format!("`{key}`");
            let kind = self.u32()?;
            let value = self.value(kind)?;
            if metadata.insert(key, value).is_some() {
                return Err(self.damaged("it is given twice".to_string()));
            }
        }
        Ok(metadata)
    }

    fn value(&mut self, kind: u32) -> Result<Value, CheckpointError> {
        const ARRAY: u32 = 9;
        if kind != ARRAY {
            return self.scalar(kind);
        }
        let kind = self.u32()?;
        let count = self.count(if kind == 8 { 8 } else { 1 })?;
        (0..count).map(|_| self.scalar(kind)).collect::<Result<_, _>>().map(Value::List)
    }

    fn scalar(&mut self, kind: u32) -> Result<Value, CheckpointError> {
        Ok(match kind {
            0 => Value::Whole(self.array::<1>()?[0].into()),
            1 => Value::Whole((self.array::<1>()?[0] as i8).into()),
            2 => Value::Whole(u16::from_le_bytes(self.array()?).into()),
            3 => Value::Whole(i16::from_le_bytes(self.array()?).into()),
            4 => Value::Whole(self.u32()?.into()),
            5 => Value::Whole(i32::from_le_bytes(self.array()?).into()),
            6 => Value::Float(as_written(f32::from_le_bytes(self.array()?))),
            7 => match self.array::<1>()?[0] {
                byte @ 0..=1 => Value::Flag(byte == 1),
                byte => return Err(self.damaged(format!("{byte} is neither true nor false"))),
            },
            8 => Value::Text(self.string()?),
            10 => Value::Whole(self.u64()?.into()),
            11 => Value::Whole(i64::from_le_bytes(self.array()?).into()),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            kind => return Err(self.damaged(format!("there is no value of type {kind}"))),
        })
    }

    fn entries(&mut self, tensors: usize) -> Result<Vec<Entry>, CheckpointError> {
        let mut entries: Vec<Entry> = Vec::with_capacity(tensors);
        for tensor in 0..tensors {
            self.place = format!("tensor {tensor} of its table");
            let name = self.string()?;
            self.place = format!("tensor `{name}`");
            let axes = self.u32()?;
            if !(1..=4).contains(&axes) {
                return Err(self.damaged(format!("it has {axes} axes")));
            }
            let mut shape = (0..axes).map(|_| self.u64()).collect::<Result<Vec<_>, _>>()?;
            shape.reverse();
            entries.push(Entry { name, shape, kind: self.u32()?, offset: self.u64()? });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        match entries.windows(2).find(|pair| pair[0].name == pair[1].name) {
            Some(pair) => Err(damaged(self.file, &format!("tensor `{}`", pair[0].name), "it is listed twice".into())),
            None => Ok(entries),
        }
    }

    fn data_start(&self, metadata: &BTreeMap<String, Value>) -> Result<u64, CheckpointError> {
        let alignment = match metadata.get("general.alignment") {
            None => 32,
            Some(&Value::Whole(alignment)) if (1..=1 << 20).contains(&alignment) => alignment as u64,
            Some(_) => return Err(damaged(self.file, "`general.alignment`", "no alignment of 1 to 2^20".into())),
        };
        Ok(self.position.next_multiple_of(alignment))
    }
}

/// A float as a person wrote it, 1e-5 and not its nearest float32 in full.
fn as_written(value: f32) -> f64 {
    value.to_string().parse().expect("a number's own text is a number")
}

/// A tensor's line in the table.
struct Entry {
    name: String,
    shape: Vec<u64>,
    kind: u32,
    offset: u64,
}

impl Entry {
    /// Checks that the tensor lies in the file.
    fn place(self, file: &PositionedFile, start: u64) -> Result<(String, Tensor), CheckpointError> {
        let wrong = |problem: String| damaged(file, &format!("tensor `{}`", self.name), problem);
        let elements = self.shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
        let elements = elements.filter(|&elements| !self.shape.is_empty() && elements > 0 && elements < 1 << 48);
        let elements = elements.ok_or_else(|| wrong(format!("its shape is {:?}", self.shape)))?;
        let element = element(self.kind);
        let bytes = match element {
            Ok(Element::Quantized(code)) if !self.shape[self.shape.len() - 1].is_multiple_of(code.block().0 as u64) => {
                return Err(wrong(format!("rows of {:?} are no whole blocks of {code:?}", self.shape)));
            }
            Ok(element) => element.bytes(elements as usize) as u64,
            Err(_) => 0,
        };
        let first = start
            .checked_add(self.offset)
            .filter(|first| first.checked_add(bytes).is_some_and(|end| end <= file.bytes));
        let Some(offset) = first else {
            return Err(wrong(format!("{bytes} bytes at {} leave a file of {}", self.offset, file.bytes)));
        };
        let shape = self.shape.iter().map(|&size| size as usize).collect();
        Ok((self.name, Tensor { shape, element, offset }))
    }
}

/// The numbers are those of `ggml_type`.
fn element(kind: u32) -> Result<Element, u32> {
    Ok(match kind {
        0 => Element::F32,
        1 => Element::F16,
        2 => Element::Quantized(Quantized::Q4_0),
        3 => Element::Quantized(Quantized::Q4_1),
        6 => Element::Quantized(Quantized::Q5_0),
        7 => Element::Quantized(Quantized::Q5_1),
        8 => Element::Quantized(Quantized::Q8_0),
        12 => Element::Quantized(Quantized::Q4K),
        13 => Element::Quantized(Quantized::Q5K),
        14 => Element::Quantized(Quantized::Q6K),
        28 => Element::F64,
        30 => Element::BF16,
        other => return Err(other),
    })
}
