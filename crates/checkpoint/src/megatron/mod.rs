//! Checkpoints of Megatron-LM (megatron-core names), read without Python, in both forms:
//!
//! - legacy: `iter_N/mp_rank_TT[_PPP]/model_optim_rng.pt`, one file for each tensor and
//!   pipeline rank, cut as those ranks held the model;
//! - distributed (`torch_dist`): `iter_N/.metadata` and `__*.distcp`, pieces of global tensors.
//!
//! Only weights are read, and written ([`export_megatron`]: the distributed form). Both forms become a table of global tensors and the pieces that they
//! lie in; from there on they are the same.

mod dist;
mod export;
mod facts;
mod legacy;
mod names;
mod torch_file;
mod torch_writer;

pub use export::export_megatron;

use crate::stored::{Element, PositionedFile, Stored};
use crate::{Block, CheckpointError, Source, Weights, model_of};
use henge_spec::{Activation, Model, Parameter, Split};
use names::{Rows, locate};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Value;

/// The file by which Megatron names the newest iteration.
const LATEST: &str = "latest_checkpointed_iteration.txt";

/// Megatron's name for weights of no step of its own, as of a conversion.
const RELEASE: &str = "release";

/// A Megatron checkpoint, open for reading.
#[derive(Debug)]
pub struct MegatronCheckpoint {
    folder: PathBuf,
    facts: BTreeMap<String, Value>,
    model: Model,
    tables: Tables,
}

/// The files and what lies in them.
#[derive(Debug, Default)]
struct Tables {
    files: Vec<PositionedFile>,
    tensors: BTreeMap<String, Global>,
}

/// A tensor of the whole model and its pieces.
#[derive(Debug, Default)]
struct Global {
    /// Its shape where the checkpoint says it; else what the pieces reach.
    shape: Vec<usize>,
    pieces: Vec<Piece>,
}

/// A block of a global tensor in a file.
#[derive(Clone, Debug)]
struct Piece {
    block: Block,
    file: usize,
    offset: u64,
    element: Element,
}

impl MegatronCheckpoint {
    /// Whether a folder looks like one: it names a latest iteration or is an iteration.
    pub fn is_at(folder: &Path) -> bool {
        folder.join(LATEST).is_file() || is_iteration(folder)
    }

    /// Opens an iteration's folder, or the newest of a folder of iterations.
    ///
    /// The model's shape is read from the arguments saved in the checkpoint or, where there are
    /// none, from a `config.json` with Megatron's names beside it.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let iteration = iteration(folder)?;
        let distributed = iteration.join(".metadata").is_file();
        let (mut tables, arguments) = if distributed { dist::open(&iteration)? } else { legacy::open(&iteration)? };
        let facts = facts::facts(&arguments, &iteration, &tables.tensors)?;
        let model = model_of(&facts, &iteration)?;
        if !distributed && model.activation == Activation::SwiGlu {
            legacy::join_gates(&mut tables);
        }
        Ok(Self { folder: iteration, facts, model, tables })
    }

    fn no_tensor(&self, parameter: &Parameter) -> CheckpointError {
        CheckpointError::NoTensor {
            file: self.folder.clone(),
            tensor: parameter.name.clone(),
            fix: format!("looked for {}", names::candidates(&parameter.name).join(" and ")),
        }
    }

    /// Reads rows `[row, row + rows)` of a global tensor by columns of a block.
    fn read_rows(&self, name: &str, global: &Global, wanted: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        let mut held = 0;
        for piece in &global.pieces {
            let Some(part) = piece.block.intersection(&wanted) else { continue };
            held += part.len();
            let vector = global.shape.len() < 2;
            let (rows, columns) = if vector { (1, piece.block.rows) } else { (piece.block.rows, piece.block.columns) };
            let file = &self.tables.files[piece.file];
            let stored = Stored { file, offset: piece.offset, element: piece.element, rows, columns };
            let (row, column) = (part.row - piece.block.row, part.column - piece.block.column);
            let start = (part.row - wanted.row) * wanted.columns + part.column - wanted.column;
            let local = match vector {
                true => Block { row: 0, rows: 1, column: row, columns: part.rows },
                false => Block { row, column, ..part },
            };
            stored.read(local, &mut out[start..], if vector { wanted.rows } else { wanted.columns })?;
        }
        if held == wanted.len() {
            return Ok(());
        }
        Err(CheckpointError::Uncovered {
            file: self.folder.clone(),
            tensor: name.to_string(),
            problem: format!("{held} of the {} elements of {wanted} are there", wanted.len()),
            fix: "a rank's file is missing, or a replica was saved twice; copy the checkpoint again".to_string(),
        })
    }
}

impl Weights for MegatronCheckpoint {
    fn read(&self, parameter: &Parameter, block: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        assert_eq!(out.len(), block.len(), "output of {block}");
        assert!(block.fits(&parameter.shape), "{block} of {} {:?}", parameter.name, parameter.shape);
        let Rows { names, rows, runs } = locate(&self.model, parameter);
        let found = names.iter().find_map(|name| self.tables.tensors.get_key_value(name));
        let (name, global) = found.ok_or_else(|| self.no_tensor(parameter))?;
        let expected = [&[rows][..], &parameter.shape[1..]].concat();
        // The table of tokens is padded for the ranks that trained it.
        let padded = parameter.split == Split::Vocabulary && global.shape.first() >= expected.first();
        if global.shape != expected && !(padded && global.shape.get(1) == expected.get(1)) {
            return Err(CheckpointError::Shape {
                file: self.folder.clone(),
                tensor: name.clone(),
                found: global.shape.clone(),
                expected,
            });
        }
        for run in runs.within(block.row, block.rows) {
            let wanted = Block { row: run.source, rows: run.rows, ..block };
            let out = &mut out[(run.row - block.row) * block.columns..][..run.rows * block.columns];
            self.read_rows(name, global, wanted, out)?;
        }
        Ok(())
    }
}

impl Source for MegatronCheckpoint {
    fn path(&self) -> &Path {
        &self.folder
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        self.facts.clone()
    }
}

fn is_iteration(folder: &Path) -> bool {
    folder.join(".metadata").is_file() || legacy::is_at(folder)
}

fn iteration_folder(iteration: u64) -> String {
    format!("iter_{iteration:07}")
}

/// How the tracker and the folder of a step are called.
fn iteration_name(step: u64) -> (String, String) {
    match step {
        0 => (RELEASE.to_string(), RELEASE.to_string()),
        step => (step.to_string(), iteration_folder(step)),
    }
}

/// The folder of the iteration to read.
fn iteration(folder: &Path) -> Result<PathBuf, CheckpointError> {
    if is_iteration(folder) {
        return Ok(folder.to_path_buf());
    }
    let latest = std::fs::read_to_string(folder.join(LATEST)).unwrap_or_default();
    let name = match latest.trim().parse::<u64>() {
        Ok(iteration) => iteration_folder(iteration),
        Err(_) => RELEASE.to_string(),
    };
    let found = folder.join(&name);
    if is_iteration(&found) {
        return Ok(found);
    }
    Err(CheckpointError::NotFound {
        path: folder.to_path_buf(),
        problem: format!("{LATEST} says `{}`, and {name} holds no Megatron checkpoint", latest.trim()),
        fix: "give the folder of an iteration that is there".to_string(),
    })
}
