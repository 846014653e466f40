//! The shape of a Megatron model: from the arguments that its run saved, else from a
//! `config.json` with Megatron's names in the checkpoint's folder or one above it.

use super::Global;
use super::torch_file::TorchFile;
use crate::CheckpointError;
use crate::pickle::{Pickle, Value as Pickled};
use crate::stored::PositionedFile;
use henge_spec::{Activation, Arch, Model, RopeScaling};
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

/// What a model is in the arguments of a Megatron run.
///
/// # Errors
/// What of it no argument says.
pub(super) fn arguments(m: &Model) -> Result<Vec<(&'static str, Value)>, String> {
    let (position, norm) = match m.arch {
        Arch::Gpt => ("learned_absolute", "LayerNorm"),
        Arch::Llama => ("rope", "RMSNorm"),
        Arch::Bert => return Err("it is a BERT, whose heads are not written for Megatron".to_string()),
    };
    let size = |n: usize| Value::Integer(n as i64);
    let text = |text: &str| Value::String(text.to_string());
    // Rates as they were given: 0.1 and not its nearest float32 in full.
    let rate = |rate: f32| Value::Float((f64::from(rate) * 1e7).round() / 1e7);
    let mut arguments = vec![
        ("num_layers", size(m.layers)),
        ("hidden_size", size(m.hidden)),
        ("num_attention_heads", size(m.heads)),
        ("group_query_attention", Value::Boolean(m.kv_heads != m.heads)),
        ("num_query_groups", size(m.kv_heads)),
        ("kv_channels", size(m.head_dim)),
        ("ffn_hidden_size", size(m.ffn_hidden)),
        ("seq_length", size(m.seq_len)),
        ("max_position_embeddings", size(m.seq_len)),
        ("vocab_size", size(m.vocab_size)),
        ("padded_vocab_size", size(m.vocab_size)),
        ("position_embedding_type", text(position)),
        ("normalization", text(norm)),
        ("norm_epsilon", Value::Float(m.norm_eps)),
        ("hidden_dropout", rate(m.dropout.hidden)),
        ("attention_dropout", rate(m.dropout.attention)),
        ("init_method_std", Value::Float(m.init_std)),
        ("swiglu", Value::Boolean(m.activation == Activation::SwiGlu)),
        ("bias_gelu_fusion", Value::Boolean(m.activation == Activation::GeluTanh)),
        ("add_bias_linear", Value::Boolean(m.arch == Arch::Gpt)),
        ("add_qkv_bias", Value::Boolean(m.arch == Arch::Gpt || m.qkv_bias)),
        ("untie_embeddings_and_output_weights", Value::Boolean(!m.tie_embeddings)),
    ];
    if let Some(rope) = m.rope {
        // A whole number among Megatron's arguments.
        let whole = rope.theta.fract() == 0.0 && rope.theta < 1e15;
        let theta = if whole { Value::Integer(rope.theta as i64) } else { Value::Float(rope.theta) };
        arguments.push(("rotary_base", theta));
        arguments.extend(scaling(rope.scaling)?);
    }
    Ok(arguments)
}

/// Megatron knows two scalings of rotary positions, the second with fixed numbers.
fn scaling(scaling: RopeScaling) -> Result<Vec<(&'static str, Value)>, String> {
    match scaling {
        RopeScaling::None => Ok(vec![]),
        RopeScaling::Linear { factor } => Ok(vec![("rotary_seq_len_interpolation_factor", Value::Float(factor))]),
        RopeScaling::Llama3 { factor, low, high, original } if (low, high, original) == LLAMA3 => {
            Ok(vec![("use_rope_scaling", Value::Boolean(true)), ("rope_scaling_factor", Value::Float(factor))])
        }
        other => Err(format!("its rotary positions are scaled by {other:?}, which no argument of Megatron's says")),
    }
}

/// The numbers of Llama 3's scaling that Megatron has inside.
const LLAMA3: (f64, f64, usize) = (1.0, 4.0, 8192);

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
        self.refuse_variants()?;
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
        if arch == "llama" {
            let biased = self.has("decoder.layers.0.self_attention.linear_qkv.bias");
            facts.insert("qkv_bias".to_string(), Value::Boolean(biased));
            facts.extend(self.scaling().into_iter().map(|(key, value)| (format!("rope.{key}"), value)));
        }
        Ok(facts.into_iter().map(|(key, value)| (format!("model.{key}"), value)).collect())
    }

    /// Arguments that change what the weights mean and that nothing here does.
    fn refuse_variants(&self) -> Result<(), CheckpointError> {
        let changed = Some("rotary_percent").filter(|key| self.number(&[key], 1.0) != 1.0);
        let flags = ["rotary_interleaved", "apply_layernorm_1p", "qk_layernorm", "multi_latent_attention"];
        let set = flags.into_iter().find(|key| self.flag(key, false));
        let experts = Some("num_experts").filter(|key| self.optional_size(&[key]).is_some());
        match changed.or(set).or(experts) {
            Some(key) => {
                let value = self.find(&[key]).map_or_else(String::new, Json::to_string);
                Err(self.unsupported(format!("`{key}` is {value}"), "that variant is not built"))
            }
            None => Ok(()),
        }
    }

    /// The scaling of rotary positions.
    fn scaling(&self) -> Vec<(&'static str, Value)> {
        let name = |name: &str| ("scaling", Value::String(name.to_string()));
        if self.flag("use_rope_scaling", false) {
            let (low, high, original) = LLAMA3;
            return vec![
                name("llama3"),
                ("factor", Value::Float(self.number(&["rope_scaling_factor"], 8.0))),
                ("low_freq_factor", Value::Float(low)),
                ("high_freq_factor", Value::Float(high)),
                ("original_len", Value::Integer(original as i64)),
            ];
        }
        match self.number(&["rotary_seq_len_interpolation_factor"], 1.0) {
            1.0 => Vec::new(),
            factor => vec![name("linear"), ("factor", Value::Float(factor))],
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_of;
    use henge_spec::{DropoutRates, Rope};

    fn llama(scaling: RopeScaling) -> Model {
        let (arch, activation, rope) = (Arch::Llama, Activation::SwiGlu, Some(Rope { theta: 5e5, scaling }));
        let dropout = DropoutRates::all(0.0);
        Model { arch, activation, rope, dropout, kv_heads: 2, qkv_bias: true, ..Model::gpt(2, 16, 4, 64, 50) }
    }

    fn read(arguments: Vec<(&str, Json)>, biased: bool) -> Result<Facts, CheckpointError> {
        let global = |shape: &[usize]| Global { shape: shape.to_vec(), pieces: Vec::new() };
        let mut tensors = BTreeMap::from([
            ("embedding.word_embeddings.weight".to_string(), global(&[128, 16])),
            ("decoder.layers.0.mlp.linear_fc1.weight".to_string(), global(&[128, 16])),
            ("decoder.layers.0.mlp.linear_fc2.weight".to_string(), global(&[16, 64])),
        ]);
        if biased {
            tensors.insert("decoder.layers.0.self_attention.linear_qkv.bias".to_string(), global(&[32]));
        }
        let known = arguments.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        Reader { known, place: PathBuf::from("there"), tensors: &tensors }.facts()
    }

    fn said(model: &Model) -> Vec<(&'static str, Json)> {
        let json = |value: Value| serde_json::to_value(value).unwrap();
        arguments(model).unwrap().into_iter().map(|(key, value)| (key, json(value))).collect()
    }

    #[test]
    fn a_model_is_known_again_by_its_arguments() {
        let scalings = [
            RopeScaling::None,
            RopeScaling::Linear { factor: 4.0 },
            RopeScaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, original: 8192 },
        ];
        for model in scalings.map(llama) {
            let facts = read(said(&model), true).unwrap();
            assert_eq!(model_of(&facts, Path::new("there")).unwrap(), model);
        }
        let other = RopeScaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, original: 4096 };
        assert!(arguments(&llama(other)).unwrap_err().contains("original: 4096"));
        let yarn = RopeScaling::Yarn { factor: 2.0, fast: 32.0, slow: 1.0, original: 32 };
        assert!(arguments(&llama(yarn)).unwrap_err().contains("Yarn"));
    }

    #[test]
    fn arguments_that_change_what_weights_mean_are_refused() {
        let changes = [
            ("rotary_percent", 0.5.into()),
            ("rotary_interleaved", true.into()),
            ("apply_layernorm_1p", true.into()),
            ("qk_layernorm", true.into()),
            ("num_experts", 8.into()),
        ];
        for (key, value) in changes {
            let mut arguments = said(&llama(RopeScaling::None));
            arguments.push((key, value));
            let error = read(arguments, true).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}` is")), "{error}");
        }
        let mut harmless = said(&llama(RopeScaling::None));
        harmless.extend([("rotary_percent", 1.0.into()), ("num_experts", Json::Null)]);
        assert!(read(harmless, true).is_ok());
    }
}
