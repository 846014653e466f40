//! Writing a Hugging Face folder.

use super::{INDEX, SINGLE, stored_shape};
use crate::export::{Export, Exported, PANEL, write_file};
use crate::stored::Element;
use crate::tensor_file::header;
use crate::tools::write_folder;
use crate::{Block, CheckpointError, Source, model_of};
use henge_files::{Operation, WithPath};
use henge_spec::{Model, Parameter, parameters};
use safetensors::{Dtype, tensor::TensorInfo};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Writes the weights of any source as a Hugging Face folder that the transformers library
/// loads: `config.json`, weights, and the tokenizer where it is known.
pub fn export(source: &dyn Source, options: &Export, out: &Path) -> Result<Exported, CheckpointError> {
    let dtype = match options.element(source)? {
        Element::F16 => Dtype::F16,
        Element::BF16 => Dtype::BF16,
        _ => Dtype::F32,
    };
    let model = model_of(&source.facts(), source.path())?;
    let config = super::config::render(&model, options.dtype);
    let parts = partition(stored_tensors(&model, dtype), options.shard_bytes);
    write_folder(out, |folder| {
        write_file(&folder.join("config.json"), config.as_bytes())?;
        let mut done = Exported::default();
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
        done.tokenizer = options.lay_tokenizer(source, folder)?;
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
    let element = Element::of_safetensors(dtype).expect("weights are written as floats");
    let mut bytes = Vec::new();
    for tensor in part {
        tensor.visit(source, &mut |values| {
            element.encode(values, &mut bytes);
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
