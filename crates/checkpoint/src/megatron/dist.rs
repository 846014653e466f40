//! The distributed form: `.metadata` names the pieces of each global tensor and their places.

use super::torch_file::TorchFile;
use super::{Global, Piece, Tables, facts::Arguments};
use crate::pickle::{Pickle, Value};
use crate::stored::PositionedFile;
use crate::{Block, CheckpointError};
use henge_files::{Operation, WithPath};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where one piece lies: file, first byte, length.
type Place = (String, u64, u64);

/// Opens an iteration's folder: its tables, and the arguments of the run if they are there.
pub(super) fn open(folder: &Path) -> Result<(Tables, Arguments), CheckpointError> {
    let path = folder.join(".metadata");
    let reader = Reader { path: path.clone(), folder };
    let bytes = std::fs::read(&path).with_path(&path, Operation::Read)?;
    let pickle = Pickle::parse(&bytes).map_err(|error| reader.damaged(".metadata", error.to_string()))?;
    let places = reader.places(pickle.root())?;
    let mut opened = Opened::default();
    let tensors = pickle.root().get("state_dict_metadata").map(Value::items).unwrap_or_default();
    for (name, value) in tensors {
        let name = name.text().unwrap_or_default();
        // Optimizer state and other extras are not read; bytes have no size.
        let wanted =
            name.starts_with("embedding.") || name.starts_with("decoder.") || name.starts_with("output_layer.");
        if let (true, Some(size)) = (wanted, value.get("size").and_then(Value::sizes)) {
            reader.tensor(name, &size, value, &places, &mut opened)?;
        }
    }
    let common = folder.join("common.pt");
    let arguments = if common.is_file() { Arguments::of_file(&common)? } else { Arguments::default() };
    Ok((opened.tables, arguments))
}

/// The tables as they grow, and the place of each file in them.
#[derive(Default)]
struct Opened {
    tables: Tables,
    known: BTreeMap<String, usize>,
}

struct Reader<'a> {
    path: PathBuf,
    folder: &'a Path,
}

impl Reader<'_> {
    fn damaged(&self, place: &str, problem: String) -> CheckpointError {
        let fix = "copy the checkpoint again".to_string();
        CheckpointError::Damaged { file: self.path.clone(), place: place.to_string(), problem, fix }
    }

    /// `storage_data`: for each tensor and offset the part of a file.
    fn places(&self, root: Value) -> Result<BTreeMap<(String, Vec<usize>), Place>, CheckpointError> {
        let entries = root.get("storage_data").map(Value::items).unwrap_or_default();
        let entry = |(index, place): (Value, Value)| {
            let name = index.get("fqn")?.text()?.to_string();
            let offset = index.get("offset").and_then(Value::sizes).unwrap_or_default();
            let file = place.get("relative_path")?.text()?.to_string();
            let number = |key| place.get(key)?.size().map(|number| number as u64);
            Some(((name, offset), (file, number("offset")?, number("length")?)))
        };
        let places: Option<BTreeMap<_, _>> = entries.into_iter().map(entry).collect();
        let places = places.filter(|places| !places.is_empty());
        places.ok_or_else(|| self.damaged("`storage_data`", "it does not say where the pieces are".to_string()))
    }

    fn tensor(
        &self,
        name: &str,
        size: &[usize],
        value: Value,
        places: &BTreeMap<(String, Vec<usize>), Place>,
        opened: &mut Opened,
    ) -> Result<(), CheckpointError> {
        let damaged = |problem: &str| self.damaged(&format!("`{name}`"), problem.to_string());
        let chunks = value.get("chunks").and_then(Value::sequence).ok_or_else(|| damaged("it has no chunks"))?;
        for chunk in chunks {
            let offsets =
                chunk.get("offsets").and_then(Value::sizes).ok_or_else(|| damaged("a chunk has no offset"))?;
            let sizes = chunk.get("sizes").and_then(Value::sizes).ok_or_else(|| damaged("a chunk has no size"))?;
            if offsets.len() != size.len() || sizes.len() != size.len() {
                return Err(damaged("a chunk has another number of axes than the tensor"));
            }
            let place = places.get(&(name.to_string(), offsets.clone()));
            let place = place.ok_or_else(|| damaged(&format!("nothing says where its piece at {offsets:?} is")))?;
            self.chunk(name, size, &offsets, &sizes, place, opened)?;
        }
        Ok(())
    }

    /// Enters one chunk. Where all layers are one tensor, the first axis is the layer.
    fn chunk(
        &self,
        name: &str,
        size: &[usize],
        offsets: &[usize],
        sizes: &[usize],
        (file, offset, length): &Place,
        opened: &mut Opened,
    ) -> Result<(), CheckpointError> {
        let file = self.file(file, opened)?;
        let positioned = &opened.tables.files[file];
        let archive = TorchFile::open(positioned, *offset, *length)?;
        let wrong = |problem: String| self.damaged(&format!("`{name}` at {offsets:?}"), problem);
        let tensor = archive.tensor(archive.pickle.root()).map_err(wrong)?;
        if tensor.shape != sizes {
            return Err(wrong(format!("the piece has shape {:?}, not {sizes:?}", tensor.shape)));
        }
        let axes = usize::from(stacked(name).is_some());
        let layers = if axes == 1 { offsets[0]..offsets[0].saturating_add(sizes[0]) } else { 0..1 };
        let block = block(&offsets[axes..], &sizes[axes..]);
        let step = tensor.element.bytes(block.len()) as u64;
        for (place, layer) in layers.enumerate() {
            let name = stacked(name).map_or(name.to_string(), |rest| format!("decoder.layers.{layer}.{rest}"));
            let global = opened
                .tables
                .tensors
                .entry(name)
                .or_insert_with(|| Global { shape: size[axes..].to_vec(), pieces: Vec::new() });
            let offset = tensor.offset + place as u64 * step;
            global.pieces.push(Piece { block, file, offset, element: tensor.element });
        }
        Ok(())
    }

    fn file(&self, name: &str, opened: &mut Opened) -> Result<usize, CheckpointError> {
        if let Some(&place) = opened.known.get(name) {
            return Ok(place);
        }
        if name.contains(['/', '\\']) {
            return Err(self.damaged("`storage_data`", format!("`{name}` is not a file of this folder")));
        }
        opened.tables.files.push(PositionedFile::open(&self.folder.join(name))?);
        let place = opened.tables.files.len() - 1;
        opened.known.insert(name.to_string(), place);
        Ok(place)
    }
}

/// What follows `decoder.layers.` where that is not a layer's number.
fn stacked(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("decoder.layers.")?;
    (!rest.starts_with(|first: char| first.is_ascii_digit())).then_some(rest)
}

fn block(offsets: &[usize], sizes: &[usize]) -> Block {
    let axis = |list: &[usize], axis: usize, absent| list.get(axis).copied().unwrap_or(absent);
    Block { row: axis(offsets, 0, 0), rows: axis(sizes, 0, 1), column: axis(offsets, 1, 0), columns: axis(sizes, 1, 1) }
}
