//! Matrices as they lie in a file: positioned reads, conversion to float32, no mapping.
//!
//! Files are read with positioned reads rather than mapped: a file that shrinks or a disk
//! that fails is then an error with a name and not a signal, and the page cache copies as fast.

use crate::Block;
use crate::quantized::Quantized;
use half::{bf16, f16};
use henge_files::{Checksum, FilesError, Operation, WithPath};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[cfg(target_endian = "big")]
compile_error!("checkpoints are little-endian and are read in place; big-endian machines need a conversion here");

/// Bytes read at a time: stays inside a core's second cache.
pub(crate) const PANEL_BYTES: usize = 1 << 18;

/// A file open for positioned reads by any number of threads.
#[derive(Debug)]
pub(crate) struct PositionedFile {
    pub path: PathBuf,
    file: File,
    /// Its size when it was opened.
    pub bytes: u64,
}

impl PositionedFile {
    pub fn open(path: &Path) -> Result<Self, FilesError> {
        let file = File::open(path).with_path(path, Operation::Open)?;
        let bytes = file.metadata().with_path(path, Operation::Open)?.len();
        Ok(Self { path: path.to_path_buf(), file, bytes })
    }

    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), FilesError> {
        self.file.read_exact_at(out, offset).with_path(&self.path, Operation::Read)
    }

    /// A part as a vector of bytes. The caller has checked that it lies in the file.
    pub fn read_vec(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, FilesError> {
        let mut out = vec![0; bytes];
        self.read(offset, &mut out)?;
        Ok(out)
    }

    /// Fills `out` from `offset` on and returns its checksum, taken while each part is near the core.
    pub fn read_checked(&self, mut offset: u64, out: &mut [u8]) -> Result<String, FilesError> {
        let mut checksum = Checksum::new();
        for part in out.chunks_mut(PANEL_BYTES) {
            self.read(offset, part)?;
            checksum.update(part);
            offset += part.len() as u64;
        }
        Ok(checksum.hex())
    }

    /// The checksum of a part, in constant memory.
    pub fn checksum(&self, offset: u64, bytes: u64) -> Result<String, FilesError> {
        let mut checksum = Checksum::new();
        let mut buffer = vec![0; PANEL_BYTES.min(usize::try_from(bytes).unwrap_or(PANEL_BYTES))];
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(buffer.len() as u64) as usize;
            self.read(offset + done, &mut buffer[..part])?;
            checksum.update(&buffer[..part]);
            done += part as u64;
        }
        Ok(checksum.hex())
    }
}

/// How numbers are coded in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F64,
    F32,
    F16,
    BF16,
    Quantized(Quantized),
}

impl Element {
    /// Bytes of `count` elements; of whole blocks, where elements are coded in blocks.
    pub fn bytes(self, count: usize) -> usize {
        match self {
            Self::F64 => 8 * count,
            Self::F32 => 4 * count,
            Self::F16 | Self::BF16 => 2 * count,
            Self::Quantized(code) => code.bytes(count),
        }
    }

    /// Converts to float32; only F64 loses anything.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
            Self::F32 => bytemuck::cast_slice_mut(out).copy_from_slice(bytes),
            Self::F16 => each(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
            Self::BF16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
            Self::Quantized(code) => code.decode(bytes, out),
        }
    }

    /// Codes float32 as one of the float types, into `bytes` alone.
    ///
    /// # Panics
    /// If elements are coded in blocks: nothing is written so.
    pub fn encode(self, values: &[f32], bytes: &mut Vec<u8>) {
        bytes.clear();
        match self {
            Self::F64 => bytes.extend(values.iter().flat_map(|&value| f64::from(value).to_le_bytes())),
            Self::F32 => bytes.extend_from_slice(bytemuck::cast_slice(values)),
            Self::F16 => bytes.extend(values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes())),
            Self::BF16 => bytes.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes())),
            Self::Quantized(code) => panic!("{code:?} is read and not written"),
        }
    }

    /// Of a safetensors type, where it is one of the floats that weights come in.
    pub fn of_safetensors(dtype: safetensors::Dtype) -> Option<Self> {
        match dtype {
            safetensors::Dtype::F64 => Some(Self::F64),
            safetensors::Dtype::F32 => Some(Self::F32),
            safetensors::Dtype::F16 => Some(Self::F16),
            safetensors::Dtype::BF16 => Some(Self::BF16),
            _ => None,
        }
    }
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn([u8; N]) -> f32) {
    let (parts, _) = bytes.as_chunks::<N>();
    for (value, part) in out.iter_mut().zip(parts) {
        *value = convert(*part);
    }
}

/// A row-major matrix in a file.
pub(crate) struct Stored<'a> {
    pub file: &'a PositionedFile,
    /// First byte.
    pub offset: u64,
    pub element: Element,
    pub rows: usize,
    pub columns: usize,
}

/// Some rows of a block, as float32.
pub(crate) struct Panel<'a> {
    /// First row, counted from the block's.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
    values: &'a [f32],
    stride: usize,
    column: usize,
    columns: usize,
}

impl Panel<'_> {
    /// All columns of its rows, as the file has them.
    pub fn values(&self) -> &[f32] {
        self.values
    }

    /// The block's part of row `first + row`.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.stride + self.column..][..self.columns]
    }
}

impl Stored<'_> {
    /// Visits a block in panels of whole rows.
    ///
    /// # Panics
    /// If the block does not fit: blocks are checked where they enter.
    pub fn panels(&self, block: Block, mut take: impl FnMut(Panel)) -> Result<(), FilesError> {
        assert!(block.fits(&[self.rows, self.columns]), "{block} of {} x {}", self.rows, self.columns);
        if block.is_empty() {
            return Ok(());
        }
        let row_bytes = self.element.bytes(self.columns);
        let at_once = (PANEL_BYTES / row_bytes).clamp(1, block.rows);
        let as_they_are = self.element == Element::F32;
        let mut bytes = vec![0; if as_they_are { 0 } else { at_once * row_bytes }];
        let mut values = vec![0.0; at_once * self.columns];
        for first in (0..block.rows).step_by(at_once) {
            let rows = at_once.min(block.rows - first);
            let (offset, values) = ((block.row + first) * row_bytes, &mut values[..rows * self.columns]);
            if as_they_are {
                self.file.read(self.offset + offset as u64, bytemuck::cast_slice_mut(values))?;
            } else {
                let bytes = &mut bytes[..rows * row_bytes];
                self.file.read(self.offset + offset as u64, bytes)?;
                self.element.decode(bytes, values);
            }
            let (stride, column, columns) = (self.columns, block.column, block.columns);
            take(Panel { first, rows, values, stride, column, columns });
        }
        Ok(())
    }

    /// Reads a block into `out`, whose rows are `stride` apart.
    pub fn read(&self, block: Block, out: &mut [f32], stride: usize) -> Result<(), FilesError> {
        self.panels(block, |panel| {
            for row in 0..panel.rows {
                out[(panel.first + row) * stride..][..block.columns].copy_from_slice(panel.row(row));
            }
        })
    }

    /// Reads a block transposed: `out` is `[block.columns, block.rows]`.
    pub fn read_transposed(&self, block: Block, out: &mut [f32]) -> Result<(), FilesError> {
        self.panels(block, |panel| {
            for column in 0..block.columns {
                let line = &mut out[column * block.rows + panel.first..][..panel.rows];
                line.iter_mut().enumerate().for_each(|(row, value)| *value = panel.row(row)[column]);
            }
        })
    }
}
