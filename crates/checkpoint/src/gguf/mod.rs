//! GGUF files of the Llama family, as llama.cpp and its kin exchange them: weights in floats or
//! in blocks of small integers, the model's shape and the tokenizer in one file.
//!
//! Read here and not by a library: those at hand bring a tensor library or a runtime with them,
//! and the frame is small. Every number of it is checked where it enters.

mod facts;
mod reader;
mod tokenizer;

use crate::stored::{PositionedFile, Stored};
use crate::{Block, CheckpointError, Source, TokenizerFile, Weights};
use henge_spec::Parameter;
use reader::{Frame, Tensor};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Value;

/// A GGUF file, open for reading.
#[derive(Debug)]
pub struct GgufFile {
    file: PositionedFile,
    tensors: BTreeMap<String, Tensor>,
    facts: BTreeMap<String, Value>,
    tokenizer: Option<Result<String, (String, String)>>,
    /// Channels of a head where rows of queries and keys are in pairs of neighbours: converters
    /// store Llama's so, while Qwen2's stay as they were.
    paired: Option<usize>,
}

impl GgufFile {
    /// Whether a path is such a file, by its first bytes.
    pub fn is_at(path: &Path) -> bool {
        reader::is_at(path)
    }

    /// Opens a file: checks its metadata, and that every tensor lies in it.
    ///
    /// # Errors
    /// Where the file is damaged, or asks for something that is not done.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let file = PositionedFile::open(path)?;
        let Frame { metadata, tensors } = reader::read(&file)?;
        let shape = facts::Metadata { path, metadata: &metadata, tensors: &tensors };
        let (facts, paired) = (shape.facts()?, shape.paired()?);
        let tokenizer = tokenizer::json(&metadata);
        Ok(Self { file, tensors, facts, tokenizer, paired })
    }

    fn find(&self, parameter: &Parameter) -> Result<&Tensor, CheckpointError> {
        let name = stored_name(&parameter.name);
        let tensor = self.tensors.get(&name).ok_or_else(|| CheckpointError::NoTensor {
            file: self.file.path.clone(),
            tensor: name.clone(),
            fix: "its tensors do not belong to its metadata; convert the model again".to_string(),
        })?;
        if tensor.shape != parameter.shape {
            let (found, expected) = (tensor.shape.clone(), parameter.shape.clone());
            return Err(CheckpointError::Shape { file: self.file.path.clone(), tensor: name, found, expected });
        }
        Ok(tensor)
    }

    fn stored(&self, tensor: &Tensor, name: &str) -> Result<Stored<'_>, CheckpointError> {
        let element = tensor.element.map_err(|kind| CheckpointError::Unsupported {
            file: self.file.path.clone(),
            what: format!("tensor `{name}` is coded by type {kind}"),
            fix: "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K are read; convert it to one"
                .to_string(),
        })?;
        // A vector lies as one row.
        let (rows, columns) = match tensor.shape[..] {
            [rows, columns] => (rows, columns),
            _ => (1, tensor.shape.iter().product()),
        };
        Ok(Stored { file: &self.file, offset: tensor.offset, element, rows, columns })
    }
}

impl Weights for GgufFile {
    fn read(&self, parameter: &Parameter, block: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        assert_eq!(out.len(), block.len(), "output of {block}");
        assert!(block.fits(&parameter.shape), "{block} of {} {:?}", parameter.name, parameter.shape);
        let stored = self.stored(self.find(parameter)?, &stored_name(&parameter.name))?;
        let turned = [".attention.q.", ".attention.k."].iter().any(|part| parameter.name.contains(part));
        match self.paired.filter(|_| turned) {
            Some(head) => read_paired(&stored, parameter.shape.len(), head, block, out),
            None if parameter.shape.len() == 1 => {
                let row = Block { row: 0, rows: 1, column: block.row, columns: block.rows };
                Ok(stored.read(row, out, block.rows)?)
            }
            None => Ok(stored.read(block, out, block.columns)?),
        }
    }
}

impl Source for GgufFile {
    fn path(&self) -> &Path {
        &self.file.path
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        self.facts.clone()
    }

    fn tokenizer(&self) -> Result<Option<TokenizerFile>, CheckpointError> {
        match &self.tokenizer {
            None => Ok(None),
            Some(Ok(json)) => Ok(Some(TokenizerFile::Json(json.clone()))),
            Some(Err((what, fix))) => {
                Err(CheckpointError::Unsupported { file: self.file.path.clone(), what: what.clone(), fix: fix.clone() })
            }
        }
    }
}

/// Reads rows whose rotated channels are neighbours in the file and half a head apart in the
/// model: row `half (head / 2) + pair` of a head is row `2 pair + half` there.
fn read_paired(
    stored: &Stored,
    axes: usize,
    head: usize,
    block: Block,
    out: &mut [f32],
) -> Result<(), CheckpointError> {
    if block.is_empty() {
        return Ok(());
    }
    let first = block.row / head * head;
    let end = (block.row + block.rows).next_multiple_of(head);
    let mut place = |there: usize, values: &[f32]| {
        let (start, channel) = (there / head * head, there % head);
        let here = start + channel % 2 * (head / 2) + channel / 2;
        if let Some(row) = here.checked_sub(block.row).filter(|&row| row < block.rows) {
            out[row * block.columns..][..block.columns].copy_from_slice(values);
        }
    };
    if axes == 1 {
        let row = Block { row: 0, rows: 1, column: first, columns: end - first };
        return Ok(stored.panels(row, |panel| {
            panel.row(0).iter().enumerate().for_each(|(i, value)| place(first + i, std::slice::from_ref(value)));
        })?);
    }
    let heads = Block { row: first, rows: end - first, ..block };
    Ok(stored
        .panels(heads, |panel| (0..panel.rows).for_each(|row| place(first + panel.first + row, panel.row(row))))?)
}

/// The file's name of one of Henge's tensors.
fn stored_name(name: &str) -> String {
    const PARTS: [(&str, &str); 9] = [
        ("norm1.gain", "attn_norm.weight"),
        ("norm2.gain", "ffn_norm.weight"),
        ("attention.q", "attn_q"),
        ("attention.k", "attn_k"),
        ("attention.v", "attn_v"),
        ("attention.output", "attn_output"),
        ("mlp.gate", "ffn_gate"),
        ("mlp.up", "ffn_up"),
        ("mlp.down", "ffn_down"),
    ];
    match name {
        "embedding.token.weight" => return "token_embd.weight".to_string(),
        "final_norm.gain" => return "output_norm.weight".to_string(),
        "head.weight" => return "output.weight".to_string(),
        _ => {}
    }
    let Some((layer, part)) = name.strip_prefix("layer.").and_then(|rest| rest.split_once('.')) else {
        return name.to_string();
    };
    let known = PARTS.iter().find_map(|(ours, theirs)| Some(format!("{theirs}{}", part.strip_prefix(ours)?)));
    format!("blk.{layer}.{}", known.unwrap_or_else(|| part.to_string()))
}
