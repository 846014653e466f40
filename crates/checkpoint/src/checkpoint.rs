//! Reading a checkpoint, by any layout.

use crate::manifest::{Chunk, FileRecord, MANIFEST, Manifest, TensorRecord};
use crate::publish::way_out;
use crate::stored::{Element, PositionedFile, Stored};
use crate::tensor_file::{TensorFile, is_absent};
use crate::{Block, CheckpointError, Kind, Weights};
use henge_files::Checksum;
use henge_spec::{Model, Parameter};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A published checkpoint, open for reading by any number of threads.
///
/// Opening checks the manifest, the presence and size of every shard and every header;
/// reading checks each chunk before a number of it is handed out, once.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    manifest: Manifest,
    files: BTreeMap<String, TensorFile>,
    /// By (kind, name): whether each chunk has been checked.
    checked: BTreeMap<(Kind, String), Vec<AtomicBool>>,
}

impl Checkpoint {
    /// Opens a checkpoint's folder.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let (checkpoint, problems) = open_parts(folder)?;
        problems.into_iter().next().map_or(Ok(checkpoint), Err)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Refuses a checkpoint of another model, by the first key that differs, and one whose
    /// tensors are not the model's. Dropout rates and `init_std` are free.
    pub fn check_model(&self, model: &Model) -> Result<(), CheckpointError> {
        let path = self.folder.join(MANIFEST);
        self.manifest.check_model(model, &path)?;
        self.manifest.check_against(model, &path)
    }

    /// Reads a block, row-major, from whichever chunks hold it.
    ///
    /// # Panics
    /// If `out` has another length than the block or the block does not fit the tensor.
    pub fn read(&self, kind: Kind, name: &str, block: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        assert_eq!(out.len(), block.len(), "output of {block}");
        let record = self.manifest.tensor(kind, name).ok_or_else(|| self.absent(kind, name))?;
        assert!(block.fits(&record.shape), "{block} of {name} {:?}", record.shape);
        let checked = &self.checked[&(kind, name.to_string())];
        for (chunk, checked) in record.chunks.iter().zip(checked) {
            let Some(part) = chunk.block.intersection(&block) else { continue };
            if part == block && part == chunk.block {
                return self.read_chunk(record, chunk, out);
            }
            let start = (part.row - block.row) * block.columns + part.column - block.column;
            let (part, out, stride) = (local(part, chunk, record), &mut out[start..], stride(block, record));
            if checked.load(Ordering::Relaxed) {
                self.stored(chunk, record).read(part, out, stride)?;
                continue;
            }
            self.read_part(record, chunk, part, out, stride)?;
            checked.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The whole of a chunk in one read, checked as it lies in memory.
    fn read_chunk(&self, record: &TensorRecord, chunk: &Chunk, out: &mut [f32]) -> Result<(), CheckpointError> {
        let file = &self.files[&chunk.file].file;
        let found = file.read_checked(chunk.offset, bytemuck::cast_slice_mut(out))?;
        self.compare(record, chunk, found)
    }

    /// A part of a chunk that is not yet checked: one pass over the chunk for both.
    fn read_part(
        &self,
        record: &TensorRecord,
        chunk: &Chunk,
        part: Block,
        out: &mut [f32],
        stride: usize,
    ) -> Result<(), CheckpointError> {
        let (stored, mut checksum) = (self.stored(chunk, record), Checksum::new());
        let whole = Block { row: 0, rows: stored.rows, column: 0, columns: stored.columns };
        stored.panels(whole, |panel| {
            checksum.update(bytemuck::cast_slice(panel.values()));
            let rows = panel.first.max(part.row)..(panel.first + panel.rows).min(part.row + part.rows);
            for row in rows {
                let line = &panel.row(row - panel.first)[part.column..][..part.columns];
                out[(row - part.row) * stride..][..part.columns].copy_from_slice(line);
            }
        })?;
        self.compare(record, chunk, checksum.hex())
    }

    /// Reads a chunk only for its checksum.
    pub(crate) fn check_chunk(&self, record: &TensorRecord, chunk: &Chunk) -> Result<(), CheckpointError> {
        let found = self.files[&chunk.file].file.checksum(chunk.offset, chunk.bytes)?;
        self.compare(record, chunk, found)
    }

    /// Whether a shard could be opened; false only after [`open_parts`].
    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Where a shard itself says a chunk is, by its key: `None` if the shard is not there,
    /// `Some(None)` if it has no such key.
    pub(crate) fn own_offset(&self, chunk: &Chunk, key: &str) -> Option<Option<u64>> {
        let file = self.files.get(&chunk.file)?;
        Some(file.tensor(key).map(|info| file.start + info.data_offsets.0 as u64))
    }

    fn compare(&self, record: &TensorRecord, chunk: &Chunk, found: String) -> Result<(), CheckpointError> {
        if found == chunk.checksum {
            return Ok(());
        }
        Err(CheckpointError::Damaged {
            file: self.folder.join(&chunk.file),
            place: format!("{} `{}`, {}, at byte {}", record.kind, record.name, chunk.block, chunk.offset),
            problem: format!("its checksum is {found}, not {}", chunk.checksum),
            fix: way_out(&self.folder),
        })
    }

    fn stored(&self, chunk: &Chunk, record: &TensorRecord) -> Stored<'_> {
        let (rows, columns) = lying(chunk.block, record);
        Stored { file: &self.files[&chunk.file].file, offset: chunk.offset, element: Element::F32, rows, columns }
    }

    fn absent(&self, kind: Kind, name: &str) -> CheckpointError {
        let fix = match kind {
            Kind::Weight => "it is a checkpoint of another model",
            _ => "it was saved or imported without the optimizer's moments; start a run from it instead of resuming",
        };
        let tensor = if kind == Kind::Weight { name.to_string() } else { format!("{name} ({kind})") };
        CheckpointError::NoTensor { file: self.folder.clone(), tensor, fix: fix.to_string() }
    }
}

impl Weights for Checkpoint {
    fn read(&self, parameter: &Parameter, block: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        let name = &parameter.name;
        let record = self.manifest.tensor(Kind::Weight, name).ok_or_else(|| self.absent(Kind::Weight, name))?;
        if record.shape != parameter.shape {
            return Err(CheckpointError::Shape {
                file: self.folder.clone(),
                tensor: name.clone(),
                found: record.shape.clone(),
                expected: parameter.shape.clone(),
            });
        }
        self.read(Kind::Weight, name, block, out)
    }
}

/// Opens whatever shards of a checkpoint are sound, with what is wrong with the others.
pub(crate) fn open_parts(folder: &Path) -> Result<(Checkpoint, Vec<CheckpointError>), CheckpointError> {
    let path = folder.join(MANIFEST);
    if !path.is_file() {
        return Err(CheckpointError::NotFound {
            path: folder.to_path_buf(),
            problem: format!("there is no {MANIFEST} in it, so it is no finished checkpoint"),
            fix: way_out(folder),
        });
    }
    let manifest = Manifest::read(&path, &way_out(folder))?;
    let (mut files, mut problems) = (BTreeMap::new(), Vec::new());
    for record in &manifest.files {
        match open_shard(folder, &manifest, record) {
            Ok(file) => drop(files.insert(record.name.clone(), file)),
            Err(problem) => problems.push(problem),
        }
    }
    let flags = |tensor: &TensorRecord| tensor.chunks.iter().map(|_| AtomicBool::new(false)).collect();
    let checked = manifest.tensors.iter().map(|tensor| ((tensor.kind, tensor.name.clone()), flags(tensor))).collect();
    Ok((Checkpoint { folder: folder.to_path_buf(), manifest, files, checked }, problems))
}

/// A vector lies as one row, so that a run of it is read at once.
fn lying(block: Block, record: &TensorRecord) -> (usize, usize) {
    if record.shape.len() < 2 { (1, block.rows) } else { (block.rows, block.columns) }
}

/// `part` in the coordinates of its chunk as it lies in the file.
fn local(part: Block, chunk: &Chunk, record: &TensorRecord) -> Block {
    let (row, column) = (part.row - chunk.block.row, part.column - chunk.block.column);
    if record.shape.len() < 2 {
        return Block { row: 0, rows: 1, column: row, columns: part.rows };
    }
    Block { row, column, ..part }
}

fn stride(block: Block, record: &TensorRecord) -> usize {
    if record.shape.len() < 2 { block.rows } else { block.columns }
}

fn open_shard(folder: &Path, manifest: &Manifest, record: &FileRecord) -> Result<TensorFile, CheckpointError> {
    let path = folder.join(&record.name);
    let fix = way_out(folder);
    let damaged = |place: &str, problem: String| CheckpointError::Damaged {
        file: path.clone(),
        place: place.to_string(),
        problem,
        fix: fix.clone(),
    };
    if record.name.contains(['/', '\\']) {
        return Err(damaged("name", "a shard's name is no path".to_string()));
    }
    let bytes = match PositionedFile::open(&path) {
        Err(error) if is_absent(&error) => {
            return Err(CheckpointError::MissingShard {
                file: path.clone(),
                holds: holds(manifest, &record.name),
                fix,
            });
        }
        file => file?.bytes,
    };
    if bytes != record.bytes {
        let holds = holds(manifest, &record.name);
        return Err(damaged("size", format!("{bytes} bytes instead of {}; it holds {holds}", record.bytes)));
    }
    let file = TensorFile::open(&path, &fix)?;
    if file.header_checksum != record.header_checksum {
        return Err(damaged("header", "its checksum differs from the manifest's".to_string()));
    }
    Ok(file)
}

/// The first tensors of a shard, for messages.
fn holds(manifest: &Manifest, file: &str) -> String {
    let inside = |tensor: &&TensorRecord| tensor.chunks.iter().any(|chunk| chunk.file == file);
    let mut names: Vec<String> = manifest.tensors.iter().filter(inside).map(|t| format!("`{}`", t.name)).collect();
    names.sort();
    names.dedup(); // a weight and its moments share a name
    match names.len() {
        0..=3 => names.join(", "),
        more => format!("{} and {} more", names[..3].join(", "), more - 3),
    }
}
