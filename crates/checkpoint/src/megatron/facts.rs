//! The shape of a Megatron model: from the arguments that its run saved, else from a
//! `config.json` with Megatron's names in the checkpoint's folder or one above it.

use super::Global;
use super::torch_file::TorchFile;
use crate::CheckpointError;
use crate::pickle::{Pickle, Value as Pickled};
use crate::stored::PositionedFile;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Value;

type Facts = BTreeMap<String, Value>;

/// The arguments of the run that saved a checkpoint, by name; none where it saved none.
#[derive(Debug, Default)]
pub(super) struct Arguments(serde_json::Map<String, Json>);

impl Arguments {
    /// Of a file that `torch.save` wrote.
    pub fn of_file(path: &Path) -> Result<Self, CheckpointError> {
        let file = PositionedFile::open(path)?;
        Ok(Self::of_pickle(&TorchFile::open(&file, 0, file.bytes)?.pickle))
    }

    /// The attributes of `args` in a state dictionary.
    pub fn of_pickle(pickle: &Pickle) -> Self {
        let items = pickle.root().get("args").map(Pickled::attributes).unwrap_or_default();
        let entry = |(key, value): (Pickled, Pickled)| Some((key.text()?.to_string(), json(value)?));
        Self(items.into_iter().filter_map(entry).collect())
    }
}

fn json(value: Pickled) -> Option<Json> {
    let number = value.int().map(Json::from).or_else(|| value.float().map(Json::from));
    number.or_else(|| value.bool().map(Json::from)).or_else(|| value.text().map(Json::from))
}

/// The model as keys of a run file.
pub(super) fn facts(
    arguments: &Arguments,
    iteration: &Path,
    tensors: &BTreeMap<String, Global>,
) -> Result<Facts, CheckpointError> {
    let near: Vec<PathBuf> = iteration.ancestors().take(3).map(|folder| folder.join("config.json")).collect();
    let config = near.iter().find(|path| path.is_file()).filter(|_| arguments.0.is_empty());
    let known = match config {
        None => arguments.0.clone(),
        Some(path) => read(path)?,
    };
    let place = config.cloned().unwrap_or_else(|| iteration.to_path_buf());
    Reader { known, place, tensors }.facts()
}

fn read(path: &Path) -> Result<serde_json::Map<String, Json>, CheckpointError> {
    let damaged = |problem: String| CheckpointError::Damaged {
        file: path.to_path_buf(),
        place: "the configuration".to_string(),
        problem,
        fix: "copy it again".to_string(),
    };
    let text = std::fs::read(path).map_err(|error| damaged(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))
}

struct Reader<'a> {
    known: serde_json::Map<String, Json>,
    place: PathBuf,
    tensors: &'a BTreeMap<String, Global>,
}

impl Reader<'_> {
    fn facts(&self) -> Result<Facts, CheckpointError> {
        let position = self.text(&["position_embedding_type", "position"], "learned_absolute");
        let norm = self.text(&["normalization"], "LayerNorm");
        let biases = self.has("decoder.layers.0.self_attention.linear_proj.bias");
        let gated = self.is_gated();
        let arch = match (position.as_str(), norm.as_str(), biases, gated) {
            ("learned_absolute", "LayerNorm", true, false) => "gpt",
            ("rope", "RMSNorm", false, true) => "llama",
            _ => {
                let what = format!(
                    "it has positions `{position}`, norms `{norm}`, {} biases and {} MLP",
                    if biases { "" } else { "no" },
                    if gated { "a gated" } else { "a plain" }
                );
                return Err(self.unsupported(what, "the shapes of GPT-2 and of Llama are read"));
            }
        };
        let (hidden, heads) = (self.size(&["hidden_size"])?, self.size(&["num_attention_heads"])?);
        let grouped = self.flag("group_query_attention", arch == "llama");
        let groups = self.optional_size(&["num_query_groups"]).filter(|_| grouped).unwrap_or(heads);
        let table = self.tensors.get("embedding.word_embeddings.weight").map_or(0, |table| table.shape[0]);
        let sizes = [
            ("layers", self.size(&["num_layers"])?),
            ("hidden", hidden),
            ("heads", heads),
            ("kv_heads", groups),
            ("head_dim", self.optional_size(&["kv_channels"]).unwrap_or(hidden / heads)),
            ("ffn_hidden", self.optional_size(&["ffn_hidden_size"]).unwrap_or(4 * hidden)),
            ("seq_len", self.size(&["max_position_embeddings", "max_sequence_length"])?),
            ("vocab_size", self.optional_size(&["vocab_size"]).unwrap_or(table)),
        ];
        let mut facts: Facts = sizes.into_iter().map(|(key, n)| (key.to_string(), Value::Integer(n as i64))).collect();
        facts.extend(self.numbers(arch).into_iter().map(|(key, n)| (key.to_string(), Value::Float(n))));
        let text = |text: &str| Value::String(text.to_string());
        facts.extend([
            ("arch".to_string(), text(arch)),
            ("norm".to_string(), text("pre")),
            ("activation".to_string(), text(self.activation(arch))),
            ("tie_embeddings".to_string(), Value::Boolean(!self.has("output_layer.weight"))),
        ]);
        Ok(facts.into_iter().map(|(key, value)| (format!("model.{key}"), value)).collect())
    }

    fn numbers(&self, arch: &str) -> Vec<(&'static str, f64)> {
        let hidden = self.number(&["hidden_dropout"], 0.1);
        let mut numbers = vec![
            ("embedding_dropout", hidden),
            ("attention_dropout", self.number(&["attention_dropout"], 0.1)),
            ("hidden_dropout", hidden),
            ("init_std", self.number(&["init_method_std"], 0.02)),
            ("norm_eps", self.number(&["norm_epsilon", "layernorm_epsilon"], 1e-5)),
        ];
        if arch == "llama" {
            numbers.push(("rope.theta", self.number(&["rotary_base"], 10000.0)));
        }
        numbers
    }

    /// Megatron's GeLU is by the error function, but its fused kernel for bias and GeLU, on by
    /// default in its arguments, is the tanh form.
    fn activation(&self, arch: &str) -> &'static str {
        let fused = self.flag("bias_gelu_fusion", self.flag("bias_activation_fusion", true));
        match (arch, fused) {
            ("llama", _) => "swiglu",
            (_, true) => "gelu_tanh",
            (_, false) => "gelu",
        }
    }

    /// A gated MLP has two rows of the first matrix for each column of the second.
    fn is_gated(&self) -> bool {
        let size =
            |part: &str, axis: usize| self.tensors.get(&format!("decoder.layers.0.mlp.{part}.weight"))?.shape.get(axis);
        match (size("linear_fc1", 0), size("linear_fc2", 1)) {
            (Some(&rows), Some(&columns)) => rows == 2 * columns,
            _ => false,
        }
    }

    fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(tensor)
    }

    fn find(&self, keys: &[&str]) -> Option<&Json> {
        keys.iter().find_map(|key| self.known.get(*key))
    }

    fn optional_size(&self, keys: &[&str]) -> Option<usize> {
        let size = self.find(keys)?.as_u64().filter(|size| (1..1 << 40).contains(size))?;
        usize::try_from(size).ok()
    }

    fn size(&self, keys: &[&str]) -> Result<usize, CheckpointError> {
        self.optional_size(keys).ok_or_else(|| {
            self.unsupported(
                format!("`{}` is not known", keys[0]),
                "put a config.json with Megatron's names (num_layers, hidden_size, num_attention_heads, \
                 max_position_embeddings, ...) beside the checkpoint",
            )
        })
    }

    fn number(&self, keys: &[&str], default: f64) -> f64 {
        self.find(keys).and_then(Json::as_f64).unwrap_or(default)
    }

    fn flag(&self, key: &str, default: bool) -> bool {
        self.find(&[key]).and_then(Json::as_bool).unwrap_or(default)
    }

    fn text(&self, keys: &[&str], default: &str) -> String {
        self.find(keys).and_then(Json::as_str).unwrap_or(default).to_string()
    }

    fn unsupported(&self, what: String, fix: &str) -> CheckpointError {
        CheckpointError::Unsupported { file: self.place.clone(), what, fix: fix.to_string() }
    }
}
