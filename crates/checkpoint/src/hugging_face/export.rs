//! Writing a Hugging Face folder.

use super::{INDEX, SINGLE, stored_shape};
use crate::tensor_file::header;
use crate::tools::write_folder;
use crate::{Block, CheckpointError, Source, TokenizerFile, model_of};
use half::{bf16, f16};
use henge_files::{Operation, WithPath};
use henge_spec::{DType, Model, Parameter, parameters};
use safetensors::{Dtype, tensor::TensorInfo};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Elements converted at a time.
const PANEL: usize = 1 << 20;

/// How to write a Hugging Face folder.
#[derive(Clone, Debug)]
pub struct Export {
    /// Element type: F32, F16 or BF16.
    pub dtype: DType,
    /// Largest size of a file in bytes; one tensor may exceed it.
    pub shard_bytes: u64,
    /// Tokenizer file or folder, in place of the one that the source knows.
    pub tokenizer: Option<PathBuf>,
}

impl Export {
    /// float32, in files of 5 GB, with the source's own tokenizer.
    pub fn float32() -> Self {
        Self { dtype: DType::F32, shard_bytes: 5_000_000_000, tokenizer: None }
    }
}

/// What an export wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Files of weights.
    pub weights: Vec<String>,
    /// Tensors in them.
    pub tensors: usize,
    /// Their bytes without headers.
    pub bytes: u64,
    /// Files of the tokenizer that were copied.
    pub tokenizer: Vec<String>,
}

/// Writes the weights of any source as a Hugging Face folder that the transformers library
/// loads: `config.json`, weights, and the tokenizer where it is known.
pub fn export(source: &dyn Source, options: &Export, out: &Path) -> Result<Exported, CheckpointError> {
    let unsupported = |what: String, fix: &str| {
        let file = source.path().to_path_buf();
        CheckpointError::Unsupported { file, what, fix: fix.to_string() }
    };
    let dtype = match options.dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F64 => return Err(unsupported("weights are held in f32".to_string(), "export as f32, f16 or bf16")),
    };
    let model = model_of(&source.facts(), source.path())?;
    let config = super::config::render(&model, options.dtype);
    let parts = partition(stored_tensors(&model, dtype), options.shard_bytes);
    write_folder(out, |folder| {
        write_file(&folder.join("config.json"), config.as_bytes())?;
        let mut done = Exported { weights: Vec::new(), tensors: 0, bytes: 0, tokenizer: Vec::new() };
        for (place, part) in parts.iter().enumerate() {
            let name = file_name(place, parts.len());
            write_weights(source, &folder.join(&name), part, dtype)?;
            done.weights.push(name);
            done.tensors += part.len();
            done.bytes += part.iter().map(|tensor| tensor.bytes as u64).sum::<u64>();
        }
        if parts.len() > 1 {
            write_file(&folder.join(INDEX), index(&parts, done.bytes).as_bytes())?;
        }
        done.tokenizer = copy_tokenizer(source, options, folder)?;
        Ok(done)
    })
}

/// A tensor of the folder and the parameters that it consists of, in order of their rows.
struct StoredTensor {
    name: String,
    shape: Vec<usize>,
    bytes: usize,
    members: Vec<Parameter>,
}

fn stored_tensors(model: &Model, dtype: Dtype) -> Vec<StoredTensor> {
    let mut tensors: Vec<StoredTensor> = Vec::new();
    for p in parameters(model) {
        if let Some(tensor) = tensors.iter_mut().rev().find(|tensor| tensor.name == p.hf.name) {
            tensor.members.push(p);
            continue;
        }
        let shape = stored_shape(&p);
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        tensors.push(StoredTensor { name: p.hf.name.clone(), shape, bytes, members: vec![p] });
    }
    tensors
}

/// Files in order, each as full as the limit allows.
fn partition(tensors: Vec<StoredTensor>, limit: u64) -> Vec<Vec<StoredTensor>> {
    let mut parts: Vec<Vec<StoredTensor>> = Vec::new();
    let mut room = 0;
    for tensor in tensors {
        let bytes = tensor.bytes as u64;
        match parts.last_mut() {
            Some(part) if bytes <= room => part.push(tensor),
            _ => {
                room = limit;
                parts.push(vec![tensor]);
            }
        }
        room = room.saturating_sub(bytes);
    }
    parts
}

fn file_name(place: usize, parts: usize) -> String {
    if parts == 1 { SINGLE.to_string() } else { format!("model-{:05}-of-{parts:05}.safetensors", place + 1) }
}

fn index(parts: &[Vec<StoredTensor>], bytes: u64) -> String {
    let mut map = serde_json::Map::new();
    for (place, part) in parts.iter().enumerate() {
        map.extend(part.iter().map(|tensor| (tensor.name.clone(), file_name(place, parts.len()).into())));
    }
    let index = serde_json::json!({ "metadata": { "total_size": bytes }, "weight_map": map });
    format!("{index:#}\n")
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    Ok(std::fs::write(path, bytes).with_path(path, Operation::Write)?)
}

fn write_weights(source: &dyn Source, path: &Path, part: &[StoredTensor], dtype: Dtype) -> Result<(), CheckpointError> {
    let mut position = 0;
    let mut place = |tensor: &StoredTensor| {
        let start = position;
        position += tensor.bytes;
        let info = TensorInfo { dtype, shape: tensor.shape.clone(), data_offsets: (start, position) };
        (tensor.name.clone(), info)
    };
    let layout = part.iter().map(&mut place).collect();
    let mut file = File::create(path).with_path(path, Operation::Create)?;
    let mut write = |bytes: &[u8]| file.write_all(bytes).with_path(path, Operation::Write);
    write(&header(("format", "pt"), layout))?;
    let mut bytes = Vec::new();
    for tensor in part {
        tensor.visit(source, &mut |values| {
            encode(dtype, values, &mut bytes);
            Ok(write(&bytes)?)
        })?;
    }
    Ok(())
}

type Visitor<'a> = dyn FnMut(&[f32]) -> Result<(), CheckpointError> + 'a;

impl StoredTensor {
    /// Hands out the stored tensor from its first element to its last. Untransposed, its
    /// parameters follow each other and pass through some rows at a time; transposed, each row
    /// has a part of all of them, and the tensor is assembled whole.
    fn visit(&self, source: &dyn Source, take: &mut Visitor) -> Result<(), CheckpointError> {
        if self.members[0].hf.transposed {
            return self.transposed(source, take);
        }
        for p in &self.members {
            let (rows, columns) = p.matrix();
            let at_once = (PANEL / columns.max(1)).max(1);
            for row in (0..rows).step_by(at_once) {
                let block = Block { row, rows: at_once.min(rows - row), column: 0, columns };
                let mut values = vec![0.0; block.len()];
                source.read(p, block, &mut values)?;
                take(&values)?;
            }
        }
        Ok(())
    }

    fn transposed(&self, source: &dyn Source, take: &mut Visitor) -> Result<(), CheckpointError> {
        let width = self.shape[1];
        let mut whole = vec![0.0; self.shape[0] * width];
        for p in &self.members {
            let (rows, columns) = p.matrix();
            let first = p.hf.fused.map_or(0, |(first, _)| first);
            let at_once = (PANEL / columns.max(1)).max(1);
            for row in (0..rows).step_by(at_once) {
                let block = Block { row, rows: at_once.min(rows - row), column: 0, columns };
                let mut values = vec![0.0; block.len()];
                source.read(p, block, &mut values)?;
                for column in 0..columns {
                    let line = &mut whole[column * width + first + row..][..block.rows];
                    line.iter_mut().enumerate().for_each(|(row, out)| *out = values[row * columns + column]);
                }
            }
        }
        whole.chunks(PANEL).try_for_each(take)
    }
}

fn encode(dtype: Dtype, values: &[f32], bytes: &mut Vec<u8>) {
    bytes.clear();
    match dtype {
        Dtype::F16 => bytes.extend(values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes())),
        Dtype::BF16 => bytes.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes())),
        _ => bytes.extend_from_slice(bytemuck::cast_slice(values)),
    }
}

/// Copies the tokenizer that was asked for, else the one that the source knows.
fn copy_tokenizer(source: &dyn Source, options: &Export, folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let known = match &options.tokenizer {
        Some(path) => Some(TokenizerFile::Path(path.clone())),
        None => source.tokenizer()?,
    };
    known.map_or_else(|| Ok(Vec::new()), |tokenizer| tokenizer.lay(folder))
}
