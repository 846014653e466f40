//! Hugging Face folders: a `config.json` and the weights as one safetensors file or several.

mod config;
mod export;

pub use export::export;

use crate::stored::Element;
use crate::tensor_file::TensorFile;
use crate::{Block, CheckpointError, Weights};
use config::Config;
use henge_files::{Operation, WithPath};
use henge_spec::Parameter;
use safetensors::tensor::TensorInfo;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::Value;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Prefixes that folders of the bare model leave out.
const PREFIXES: [&str; 3] = ["transformer.", "model.", "bert."];

/// A Hugging Face folder of the GPT-2, the Llama or the BERT family, open for reading.
#[derive(Debug)]
pub struct HfFolder {
    folder: PathBuf,
    facts: BTreeMap<String, Value>,
    files: Vec<TensorFile>,
    /// Which file holds a tensor.
    places: BTreeMap<String, usize>,
}

impl HfFolder {
    /// Opens a folder: `config.json`, and `model.safetensors` or its index and parts.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let facts = Config::read(&folder.join("config.json"))?.facts()?;
        let fix = "download or export the folder again";
        let open = |name: &String| TensorFile::open(&folder.join(name), fix);
        let files = file_names(folder)?.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let names = |(place, file): (usize, &TensorFile)| {
            file.metadata.offset_keys().into_iter().map(move |name| (name, place)).collect::<Vec<_>>()
        };
        let places: BTreeMap<String, usize> = files.iter().enumerate().flat_map(names).collect();
        let layers = facts.get("model.layers").and_then(Value::as_integer).unwrap_or(0);
        if layers as usize > places.len() {
            // Lists of that many layers would ask for the machine's memory.
            return Err(CheckpointError::Unsupported {
                file: folder.join("config.json"),
                what: format!("it tells of {layers} layers, and there are {} tensors in all", places.len()),
                fix: fix.to_string(),
            });
        }
        Ok(Self { folder: folder.to_path_buf(), facts, files, places })
    }

    /// The model as keys of a run file, from `config.json`.
    pub fn facts(&self) -> BTreeMap<String, Value> {
        self.facts.clone()
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A tensor by its name with or without the family's prefix.
    fn find(&self, name: &str) -> Option<(&TensorFile, &TensorInfo)> {
        let bare = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        let found = self.places.get_key_value(name).or_else(|| self.places.get_key_value(bare?));
        let (name, &place) = found?;
        self.files[place].tensor(name).map(|info| (&self.files[place], info))
    }
}

impl Weights for HfFolder {
    fn read(&self, parameter: &Parameter, block: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        assert_eq!(out.len(), block.len(), "output of {block}");
        assert!(block.fits(&parameter.shape), "{block} of {} {:?}", parameter.name, parameter.shape);
        let source = &parameter.hf;
        let (file, info) = self.find(&source.name).ok_or_else(|| CheckpointError::NoTensor {
            file: self.folder.clone(),
            tensor: source.name.clone(),
            fix: "its weights do not belong to its config.json".to_string(),
        })?;
        let expected = stored_shape(parameter);
        if info.shape != expected {
            let (file, tensor, found) = (file.file.path.clone(), source.name.clone(), info.shape.clone());
            return Err(CheckpointError::Shape { file, tensor, found, expected });
        }
        let element = Element::of_safetensors(info.dtype).ok_or_else(|| CheckpointError::Unsupported {
            file: file.file.path.clone(),
            what: format!("tensor `{}` has element type {:?}", source.name, info.dtype),
            fix: "convert the folder to F32, F16 or BF16".to_string(),
        })?;
        let first = source.fused.map_or(0, |(first, _)| first);
        let (row, rows) = (first + block.row, block.rows);
        if let [rows_there, columns_there] = expected[..] {
            let stored = file.stored(info, element, rows_there, columns_there);
            if source.transposed {
                let turned = Block { row: block.column, rows: block.columns, column: row, columns: rows };
                return Ok(stored.read_transposed(turned, out)?);
            }
            return Ok(stored.read(Block { row, ..block }, out, block.columns)?);
        }
        // A vector lies as one row.
        let stored = file.stored(info, element, 1, expected[0]);
        Ok(stored.read(Block { row: 0, rows: 1, column: row, columns: rows }, out, rows)?)
    }
}

/// The shape of the tensor that a parameter is a part of, as stored.
pub(crate) fn stored_shape(parameter: &Parameter) -> Vec<usize> {
    let mut shape = parameter.shape.clone();
    shape[0] = parameter.hf.fused.map_or(shape[0], |(_, all)| all);
    if parameter.hf.transposed {
        shape.reverse();
    }
    shape
}

fn file_names(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    if folder.join(SINGLE).is_file() {
        return Ok(vec![SINGLE.to_string()]);
    }
    let path = folder.join(INDEX);
    if !path.is_file() {
        return Err(CheckpointError::NotFound {
            path: folder.to_path_buf(),
            problem: format!("there is neither {SINGLE} nor {INDEX} in it"),
            fix: "give a folder with weights as safetensors".to_string(),
        });
    }
    let text = std::fs::read(&path).with_path(&path, Operation::Read)?;
    let damaged = |problem: String| CheckpointError::Damaged {
        file: path.clone(),
        place: "`weight_map`".to_string(),
        problem,
        fix: "download or export the folder again".to_string(),
    };
    let index: serde_json::Value = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    let map = index.get("weight_map").and_then(serde_json::Value::as_object);
    let names = map.and_then(|map| map.values().map(serde_json::Value::as_str).collect::<Option<BTreeSet<_>>>());
    let names = names.ok_or_else(|| damaged("not a table from tensor to file".to_string()))?;
    match names.iter().find(|name| name.contains(['/', '\\'])) {
        Some(name) => Err(damaged(format!("`{name}` is not a file of this folder"))),
        None => Ok(names.into_iter().map(str::to_string).collect()),
    }
}
