//! Parquet inputs to blocks of rows.
//!
//! Only the wanted columns are read, each page by page through the `parquet` crate's column readers, so
//! memory holds a page a column (customarily a megabyte) and one block, whatever the size of a row group.
//! A row is a document; a later run goes on at a row.
//!
//! The crate asserts some of what it reads (a damaged dictionary page, say), so its panics are caught and
//! reported as the damage they are.

use super::reader::{BLOCK_BYTES, Block, Content, Position, Sink};
use crate::error::DataError;
use henge_files::{Operation, WithPath};
use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows taken from each column at a time: few, because the values of a row may be long.
const ROWS_AT_ONCE: usize = 16;

/// An open file and which of its columns are wanted.
pub(super) struct ParquetInput<'a> {
    path: Arc<Path>,
    file: SerializedFileReader<File>,
    keys: &'a [String],
    /// Indices of the keys' columns.
    columns: Vec<usize>,
    file_bytes: u64,
    rows: u64,
}

impl<'a> ParquetInput<'a> {
    /// # Errors
    /// No Parquet file; a key that is no column, or a column that holds no plain strings.
    pub(super) fn open(path: &Path, keys: &'a [String]) -> Result<Self, DataError> {
        let opened = File::open(path).with_path(path, Operation::Open)?;
        let file_bytes = opened.metadata().with_path(path, Operation::Read)?.len();
        let file = guarded(path, || SerializedFileReader::new(opened))?;
        let schema = file.metadata().file_metadata().schema_descr();
        let unreadable = |fault| DataError::UnreadableInput { path: PathBuf::from(path), fault };
        let columns = keys.iter().map(|key| find_column(schema, key).map_err(unreadable)).collect::<Result<_, _>>()?;
        let rows = file.metadata().row_groups().iter().map(|group| group.num_rows().max(0) as u64).sum();
        Ok(ParquetInput { path: Arc::from(path), file, keys, columns, file_bytes, rows })
    }

    /// Gives blocks of rows from `start` on; false when no more are wanted. `bytes_read` grows by the
    /// share of the file that the rows stand for.
    pub(super) fn read(&self, start: Position, bytes_read: &AtomicU64, sink: &mut Sink<'_>) -> Result<bool, DataError> {
        let mut pending = Pending { at: start, next_row: 0, bytes: Vec::new(), ends: Vec::new() };
        bytes_read.fetch_add(self.bytes_before(start.line - 1), Ordering::Relaxed);
        for group in 0..self.file.num_row_groups() {
            let rows = self.file.metadata().row_group(group).num_rows().max(0) as u64;
            let skipped = (start.line - 1).saturating_sub(pending.next_row).min(rows);
            pending.next_row += skipped;
            if skipped < rows && !self.read_group(group, skipped, rows, &mut pending, bytes_read, sink)? {
                return Ok(false);
            }
        }
        if pending.next_row < start.line - 1 {
            let fault = format!("has {} rows where {} had been read; start afresh", pending.next_row, start.line - 1);
            return Err(DataError::UnreadableInput { path: self.path.to_path_buf(), fault });
        }
        Ok(pending.ends.is_empty() || self.give(&mut pending, bytes_read, sink))
    }

    fn read_group(
        &self,
        group: usize,
        skipped: u64,
        rows: u64,
        pending: &mut Pending,
        bytes_read: &AtomicU64,
        sink: &mut Sink<'_>,
    ) -> Result<bool, DataError> {
        let mut readers = self.column_readers(group)?;
        for reader in &mut readers {
            guarded(&self.path, || reader.skip_records(skipped as usize))?;
        }
        let mut left = rows - skipped;
        while left > 0 {
            let wanted = ROWS_AT_ONCE.min(left as usize);
            let mut values = Vec::with_capacity(readers.len());
            for (reader, key) in readers.iter_mut().zip(self.keys) {
                values.push(self.read_values(reader, wanted, pending.next_row, key)?);
            }
            for row in 0..wanted {
                values.iter().for_each(|column| pending.push(column[row].data()));
                pending.next_row += 1;
                if pending.bytes.len() >= BLOCK_BYTES && !self.give(pending, bytes_read, sink) {
                    return Ok(false);
                }
            }
            left -= wanted as u64;
        }
        Ok(true)
    }

    fn column_readers(&self, group: usize) -> Result<Vec<ColumnReaderImpl<ByteArrayType>>, DataError> {
        let group = guarded(&self.path, || self.file.get_row_group(group))?;
        let reader = |&column: &usize| match guarded(&self.path, || group.get_column_reader(column))? {
            ColumnReader::ByteArrayColumnReader(reader) => Ok(reader),
            _ => unreachable!("find_column admits byte arrays only"),
        };
        self.columns.iter().map(reader).collect()
    }

    /// The next `wanted` values of a column; `row` of them counted from 0 is the first.
    fn read_values(
        &self,
        reader: &mut ColumnReaderImpl<ByteArrayType>,
        wanted: usize,
        row: u64,
        key: &str,
    ) -> Result<Vec<ByteArray>, DataError> {
        let (mut values, mut levels) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted));
        while levels.len() < wanted {
            let before = values.len();
            let left = wanted - levels.len();
            let (records, found, _) =
                guarded(&self.path, || reader.read_records(left, Some(&mut levels), None, &mut values))?;
            if records == 0 {
                let fault = format!("column {key:?} ends before its row group does; copy the file again");
                return Err(DataError::UnreadableInput { path: self.path.to_path_buf(), fault });
            }
            // A required column has no levels to count by.
            levels.resize(before + records, 1);
            if found < records {
                return Err(self.null_at(row + levels.iter().position(|&level| level == 0).unwrap_or(0) as u64, key));
            }
        }
        Ok(values)
    }

    fn null_at(&self, row: u64, key: &str) -> DataError {
        let fault = format!("column {key:?} is null in this row; leave such rows out of the file");
        DataError::BadLine { path: self.path.to_path_buf(), line: row + 1, fault }
    }

    fn bytes_before(&self, row: u64) -> u64 {
        (u128::from(self.file_bytes) * u128::from(row) / u128::from(self.rows.max(1))) as u64
    }

    fn give(&self, pending: &mut Pending, bytes_read: &AtomicU64, sink: &mut Sink<'_>) -> bool {
        let (start, row) = (pending.at, pending.next_row);
        let read = self.bytes_before(row) - self.bytes_before(start.line - 1);
        let bytes_read = bytes_read.fetch_add(read, Ordering::Relaxed) + read;
        pending.at = Position { byte: row, line: row + 1, ..start };
        let content =
            Content::Rows { bytes: std::mem::take(&mut pending.bytes), ends: std::mem::take(&mut pending.ends) };
        sink(Block {
            path: Arc::clone(&self.path),
            first_line: start.line,
            first_byte: start.byte,
            content,
            end: Some(pending.at),
            bytes_read,
        })
    }
}

/// Rows read and not yet given away.
struct Pending {
    /// Where they begin; the "line" is the row, counted from 1.
    at: Position,
    /// Counted from 0.
    next_row: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Pending {
    fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }
}

/// The leaf column called `key`.
///
/// Byte arrays without a logical type are taken for text, as older writers leave it out; the text is
/// checked to be UTF-8 like any other.
fn find_column(schema: &SchemaDescriptor, key: &str) -> Result<usize, String> {
    let top = schema.root_schema().get_fields().iter().find(|field| field.name() == key);
    let Some(top) = top else {
        let names: Vec<&str> = schema.root_schema().get_fields().iter().map(|field| field.name()).collect();
        return Err(format!("has no column {key:?}; name the one that holds the text of {}", names.join(", ")));
    };
    let leaf = (0..schema.num_columns()).find(|&at| schema.get_column_root(at).name() == key);
    let is_repeated = leaf.is_some_and(|at| schema.column(at).max_rep_level() > 0);
    let Some(leaf) = leaf.filter(|_| top.is_primitive() && !is_repeated) else {
        return Err(format!("column {key:?} is nested (a list or struct); write its text to a column of its own"));
    };
    let column = schema.column(leaf);
    let is_text = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::String | LogicalType::Json | LogicalType::Enum), _) => true,
        (None, converted) => {
            matches!(converted, ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::JSON | ConvertedType::ENUM)
        }
        _ => false,
    };
    if column.physical_type() != PhysicalType::BYTE_ARRAY || !is_text {
        let logical = column.logical_type_ref().map_or_else(String::new, |logical| format!(", {logical:?}"));
        let kind = column.physical_type();
        return Err(format!("column {key:?} holds no strings ({kind}{logical}); name a column of strings"));
    }
    Ok(leaf)
}

/// What a call of the crate gives, its errors and panics as damage to the file.
fn guarded<T>(path: &Path, call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, DataError> {
    // After a panic the readers are dropped unused.
    let fault = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "a page of it is damaged".into(),
    };
    let fault = format!("cannot be read as Parquet ({fault}); copy or write the file again");
    Err(DataError::UnreadableInput { path: path.to_path_buf(), fault })
}
