//! The legacy form: one file for each tensor and pipeline rank, cut as the rank held the model.

use super::torch_file::{TorchFile, TorchTensor};
use super::{Global, Piece, Tables, facts::Arguments, names::split_axis};
use crate::pickle::Value;
use crate::stored::PositionedFile;
use crate::{Block, CheckpointError};
use henge_files::{Operation, WithPath};
use std::path::{Path, PathBuf};

const FILE: &str = "model_optim_rng.pt";

/// Whether a folder holds ranks' folders.
pub(super) fn is_at(folder: &Path) -> bool {
    folder.join("mp_rank_00").join(FILE).is_file() || folder.join("mp_rank_00_000").join(FILE).is_file()
}

/// Opens an iteration's folder: its tables, and the arguments of the run if they are there.
///
/// Layers are numbered from 0 on each pipeline rank; the ranks are read in order and each goes
/// on where the one before ended. Virtual chunks (`model0`, `model1`) come round by round.
pub(super) fn open(folder: &Path) -> Result<(Tables, Arguments), CheckpointError> {
    let ranks = ranks(folder)?;
    let mut tables = Tables::default();
    let mut archives = Vec::new();
    for rank in &ranks {
        let file = PositionedFile::open(&rank.path)?;
        archives.push(TorchFile::open(&file, 0, file.bytes)?);
        tables.files.push(file);
    }
    let tensor = 1 + ranks.iter().map(|rank| rank.tensor).max().unwrap_or(0);
    let pipeline = 1 + ranks.iter().map(|rank| rank.pipeline).max().unwrap_or(0);
    if tensor.checked_mul(pipeline) != Some(ranks.len()) {
        return Err(CheckpointError::NotFound {
            path: folder.to_path_buf(),
            problem: format!("{} ranks are there of {tensor} tensor by {pipeline} pipeline ranks", ranks.len()),
            fix: "copy the folders of all ranks".to_string(),
        });
    }
    let root = archives[0].pickle.root();
    let mut chunks: Vec<String> =
        (0..).map(|chunk| format!("model{chunk}")).take_while(|key| root.get(key).is_some()).collect();
    if chunks.is_empty() {
        chunks.push("model".to_string());
    }
    let mut first_layer = 0;
    for chunk in &chunks {
        for stage in 0..pipeline {
            let mut layers = 0;
            let of_stage = ranks.iter().enumerate().filter(|(_, rank)| rank.pipeline == stage);
            for (place, rank) in of_stage {
                let Some(model) = archives[place].pickle.root().get(chunk) else { continue };
                let reader =
                    Reader { archive: &archives[place], path: &rank.path, file: place, rank: rank.tensor, tensor };
                layers = layers.max(reader.model(model, first_layer, &mut tables)?);
            }
            first_layer += layers;
        }
    }
    Ok((tables, Arguments::of_pickle(&archives[0].pickle)))
}

struct Rank {
    path: PathBuf,
    tensor: usize,
    pipeline: usize,
}

/// The ranks' files, by `mp_rank_TT` or `mp_rank_TT_PPP`.
fn ranks(folder: &Path) -> Result<Vec<Rank>, CheckpointError> {
    let mut ranks = Vec::new();
    for entry in std::fs::read_dir(folder).with_path(folder, Operation::List)? {
        let path = entry.with_path(folder, Operation::List)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("mp_rank_"));
        let Some(name) = name else { continue };
        let numbers: Vec<usize> = name.split('_').filter_map(|part| part.parse().ok()).collect();
        let path = path.join(FILE);
        match numbers[..] {
            [tensor] => ranks.push(Rank { path, tensor, pipeline: 0 }),
            [tensor, pipeline] => ranks.push(Rank { path, tensor, pipeline }),
            _ => {
                let what = format!("folder mp_rank_{name} is of expert or other ranks");
                let fix = "checkpoints of tensor and pipeline ranks are read".to_string();
                return Err(CheckpointError::Unsupported { file: folder.to_path_buf(), what, fix });
            }
        }
    }
    ranks.sort_by_key(|rank| (rank.pipeline, rank.tensor));
    Ok(ranks)
}

struct Reader<'a> {
    archive: &'a TorchFile,
    path: &'a Path,
    file: usize,
    rank: usize,
    tensor: usize,
}

impl Reader<'_> {
    /// Enters a rank's tensors; returns how many layers it has.
    fn model(&self, model: Value, first_layer: usize, tables: &mut Tables) -> Result<usize, CheckpointError> {
        let version = self.archive.pickle.root().get("checkpoint_version").and_then(Value::float);
        if version.is_some_and(|version| version < 3.0) {
            return Err(CheckpointError::Unsupported {
                file: self.path.to_path_buf(),
                what: format!(
                    "checkpoint_version is {}, with another order inside the attention matrix",
                    version.unwrap_or(0.0)
                ),
                fix: "save it again with a Megatron that writes version 3.0".to_string(),
            });
        }
        let mut layers = 0;
        for (name, value) in model.items() {
            let Some(name) = name.text() else { continue };
            if value.call().is_none() || name.ends_with("_extra_state") {
                continue;
            }
            let tensor = self.archive.tensor(value).map_err(|problem| CheckpointError::Unsupported {
                file: self.path.to_path_buf(),
                what: format!("tensor `{name}`: {problem}"),
                fix: "save it as a contiguous tensor of floats".to_string(),
            })?;
            let (name, layer) = renumber(name, first_layer);
            layers = layers.max(layer);
            self.enter(name, tensor, tables);
        }
        Ok(layers)
    }

    /// Enters this rank's part of a global tensor. What every rank has is taken from the first.
    fn enter(&self, name: String, tensor: TorchTensor, tables: &mut Tables) {
        let axis = split_axis(&name);
        if axis.is_none() && self.rank > 0 {
            return;
        }
        let (file, offset, element) = (self.file, tensor.offset, tensor.element);
        let mut block = Block::of_shape(&tensor.shape);
        let mut shape = tensor.shape;
        if let Some(axis) = axis {
            match axis {
                0 => block.row = self.rank * block.rows,
                _ => block.column = self.rank * block.columns,
            }
            shape[axis] *= self.tensor;
        }
        let global = tables.tensors.entry(name).or_insert_with(|| Global { shape, pieces: Vec::new() });
        // Both ends of a pipeline have the tied table: the first is taken.
        if global.pieces.iter().all(|piece| piece.block != block) {
            global.pieces.push(Piece { block, file, offset, element });
        }
    }
}

/// The name with the layer's number in the whole model, and how many layers that number shows
/// the rank to have.
fn renumber(name: &str, first: usize) -> (String, usize) {
    let parts = name.strip_prefix("decoder.layers.").and_then(|rest| rest.split_once('.'));
    match parts.and_then(|(layer, rest)| Some((layer.parse::<usize>().ok()?, rest))) {
        Some((layer, rest)) => (format!("decoder.layers.{}.{rest}", layer + first), layer + 1),
        None => (name.to_string(), 0),
    }
}

/// Brings the halves of a gated MLP together: each tensor rank holds its part of the gate above
/// its part of the other half.
pub(super) fn join_gates(tables: &mut Tables) {
    let fused = tables.tensors.iter_mut().filter(|(name, _)| name.contains(".mlp.linear_fc1."));
    for (_, global) in fused.filter(|(_, global)| global.pieces.len() > 1) {
        let half = global.shape[0] / 2;
        let halves = |piece: &Piece| {
            let (row, rows) = (piece.block.row / 2, piece.block.rows / 2);
            let gate = Block { row, rows, ..piece.block };
            let offset = piece.offset + piece.element.bytes(gate.len()) as u64;
            let below = Piece { block: Block { row: half + row, ..gate }, offset, ..piece.clone() };
            [Piece { block: gate, ..piece.clone() }, below]
        };
        global.pieces = global.pieces.iter().flat_map(halves).collect();
    }
}
