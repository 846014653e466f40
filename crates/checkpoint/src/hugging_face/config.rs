//! `config.json`: what it says as keys of a run file, and what it asks for that Henge does not do.

use crate::CheckpointError;
use henge_files::{Operation, WithPath};
use henge_spec::{Activation, Arch, DType, Model, NormPlacement, Rope, RopeScaling};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Value;

/// The family of Llama's shape with biases on queries, keys and values.
const QWEN2: &str = "qwen2";

/// A `config.json`.
pub(super) struct Config {
    path: PathBuf,
    json: Json,
}

type Facts = BTreeMap<String, Value>;

impl Config {
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        if !path.is_file() {
            return Err(CheckpointError::NotFound {
                path: path.to_path_buf(),
                problem: "there is no such file, so its folder is no Hugging Face folder".to_string(),
                fix: "give the folder that holds config.json".to_string(),
            });
        }
        let text = std::fs::read(path).with_path(path, Operation::Read)?;
        let json = serde_json::from_slice(&text).map_err(|error| CheckpointError::Damaged {
            file: path.to_path_buf(),
            place: format!("line {}", error.line()),
            problem: error.to_string(),
            fix: "download or export the folder again".to_string(),
        })?;
        Ok(Self { path: path.to_path_buf(), json })
    }

    /// The model. Sizes must be given: guessing a missing width makes another model. Other
    /// absent keys have the defaults of the transformers library.
    pub fn facts(&self) -> Result<Facts, CheckpointError> {
        match self.json.get("model_type").and_then(Json::as_str) {
            Some("gpt2") => self.gpt2(),
            Some("llama" | "mistral" | QWEN2) => self.llama(),
            Some("bert") => self.bert("post"),
            Some("megatron-bert") => self.bert("pre"),
            other => Err(self.unsupported(
                format!("model_type is {}", other.map_or("absent".to_string(), |name| format!("`{name}`"))),
                "give a folder whose model_type is gpt2, llama, mistral, qwen2, bert or megatron-bert",
            )),
        }
    }

    fn gpt2(&self) -> Result<Facts, CheckpointError> {
        self.demand("scale_attn_weights", &[Json::Bool(true)])?;
        self.demand("scale_attn_by_inverse_layer_idx", &[Json::Bool(false)])?;
        self.demand("add_cross_attention", &[Json::Bool(false)])?;
        let (hidden, heads) = (self.size("n_embd")?, self.size("n_head")?);
        let activation = match self.text("activation_function", "gelu_new").as_str() {
            "gelu_new" | "gelu_pytorch_tanh" => "gelu_tanh",
            "gelu" => "gelu",
            other => return Err(self.unknown_activation("activation_function", other)),
        };
        let ffn = self.optional_size("n_inner")?.unwrap_or(4 * hidden);
        let sizes = [
            ("layers", self.size("n_layer")?),
            ("hidden", hidden),
            ("heads", heads),
            ("kv_heads", heads),
            ("head_dim", self.divide(hidden, heads)?),
            ("ffn_hidden", ffn),
            ("seq_len", self.size("n_positions")?),
            ("vocab_size", self.size("vocab_size")?),
        ];
        let numbers = [
            ("embedding_dropout", self.number("embd_pdrop", 0.1)?),
            ("attention_dropout", self.number("attn_pdrop", 0.1)?),
            ("hidden_dropout", self.number("resid_pdrop", 0.1)?),
            ("init_std", self.number("initializer_range", 0.02)?),
            ("norm_eps", self.number("layer_norm_epsilon", 1e-5)?),
        ];
        self.collect("gpt", activation, true, &sizes, &numbers)
    }

    fn llama(&self) -> Result<Facts, CheckpointError> {
        self.demand("attention_bias", &[Json::Bool(false)])?;
        self.demand("mlp_bias", &[Json::Bool(false)])?;
        self.demand("hidden_act", &["silu".into(), "swish".into()])?;
        self.refuse_window()?;
        let (hidden, heads) = (self.size("hidden_size")?, self.size("num_attention_heads")?);
        let head_dim = match self.optional_size("head_dim")? {
            Some(size) => size,
            None => self.divide(hidden, heads)?,
        };
        let sizes = [
            ("layers", self.size("num_hidden_layers")?),
            ("hidden", hidden),
            ("heads", heads),
            ("kv_heads", self.optional_size("num_key_value_heads")?.unwrap_or(heads)),
            ("head_dim", head_dim),
            ("ffn_hidden", self.size("intermediate_size")?),
            ("seq_len", self.size("max_position_embeddings")?),
            ("vocab_size", self.size("vocab_size")?),
        ];
        let numbers = [
            ("embedding_dropout", 0.0),
            ("attention_dropout", self.number("attention_dropout", 0.0)?),
            ("hidden_dropout", 0.0),
            ("init_std", self.number("initializer_range", 0.02)?),
            ("norm_eps", self.number("rms_norm_eps", 1e-6)?),
        ];
        let mut facts = self.collect("llama", "swiglu", false, &sizes, &numbers)?;
        if self.text("model_type", "") == QWEN2 {
            facts.insert("model.qkv_bias".to_string(), Value::Boolean(true));
        }
        facts.extend(self.positions()?.into_iter().map(|(key, value)| (format!("model.rope.{key}"), value)));
        Ok(facts)
    }

    /// The library's `bert` norms after each branch, its `megatron-bert` before.
    fn bert(&self, norm: &str) -> Result<Facts, CheckpointError> {
        self.demand("position_embedding_type", &["absolute".into()])?;
        self.demand("is_decoder", &[Json::Bool(false)])?;
        self.demand("add_cross_attention", &[Json::Bool(false)])?;
        let (hidden, heads) = (self.size("hidden_size")?, self.size("num_attention_heads")?);
        let activation = match self.text("hidden_act", "gelu").as_str() {
            "gelu" => "gelu",
            "gelu_new" | "gelu_pytorch_tanh" => "gelu_tanh",
            other => return Err(self.unknown_activation("hidden_act", other)),
        };
        let sizes = [
            ("layers", self.size("num_hidden_layers")?),
            ("hidden", hidden),
            ("heads", heads),
            ("kv_heads", heads),
            ("head_dim", self.divide(hidden, heads)?),
            ("ffn_hidden", self.size("intermediate_size")?),
            ("seq_len", self.size("max_position_embeddings")?),
            ("vocab_size", self.size("vocab_size")?),
            ("token_types", self.optional_size("type_vocab_size")?.unwrap_or(2)),
        ];
        let dropout = self.number("hidden_dropout_prob", 0.1)?;
        let numbers = [
            ("embedding_dropout", dropout),
            ("attention_dropout", self.number("attention_probs_dropout_prob", 0.1)?),
            ("hidden_dropout", dropout),
            ("init_std", self.number("initializer_range", 0.02)?),
            ("norm_eps", self.number("layer_norm_eps", 1e-12)?),
        ];
        let mut facts = self.collect("bert", activation, true, &sizes, &numbers)?;
        facts.insert("model.norm".to_string(), Value::String(norm.to_string()));
        Ok(facts)
    }

    /// Mistral's window: attention that sees fewer tokens than a sequence has.
    fn refuse_window(&self) -> Result<(), CheckpointError> {
        let by_default = self.text("model_type", "") == "mistral";
        let layers = self.json.get("layer_types").and_then(Json::as_array);
        let used = self.json.get("use_sliding_window").and_then(Json::as_bool).unwrap_or(by_default)
            || layers.is_some_and(|kinds| kinds.iter().any(|kind| kind == "sliding_attention"));
        match self.optional_size("sliding_window")? {
            Some(window) if used && window < self.size("max_position_embeddings")? => Err(self.unsupported(
                format!("attention sees a window of {window} tokens only (`sliding_window`)"),
                "windows are not built; give a model without one",
            )),
            _ => Ok(()),
        }
    }

    /// Rotary positions below `model.rope`: `rope_theta` and `rope_scaling`, or both inside
    /// `rope_parameters` in newer folders.
    fn positions(&self) -> Result<Vec<(&'static str, Value)>, CheckpointError> {
        let table = |key: &str| self.json.get(key).filter(|table| table.is_object());
        let nested = table("rope_parameters");
        let theta = nested.and_then(|table| table.get("rope_theta")).and_then(Json::as_f64);
        let theta = ("theta", Value::Float(theta.map_or_else(|| self.number("rope_theta", 10000.0), Ok)?));
        self.refuse_partly_turned(nested)?;
        let Some(scaling) = nested.or_else(|| table("rope_scaling")) else { return Ok(vec![theta]) };
        let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Json::as_str);
        let kind = kind.unwrap_or("default");
        let names: &[(&str, &'static str, Option<f64>)] = match kind {
            "default" => return Ok(vec![theta]),
            "linear" | "dynamic" => &[("factor", "factor", None)],
            "llama3" => &[
                ("factor", "factor", None),
                ("low_freq_factor", "low_freq_factor", None),
                ("high_freq_factor", "high_freq_factor", None),
            ],
            "yarn" => {
                self.refuse_other_yarns(scaling)?;
                &[
                    ("factor", "factor", None),
                    ("beta_fast", "beta_fast", Some(32.0)),
                    ("beta_slow", "beta_slow", Some(1.0)),
                ]
            }
            other => {
                let what = format!("rotary positions are scaled by `{other}`");
                return Err(
                    self.unsupported(what, "linear, dynamic, llama3 and yarn are built; give a model of one of them")
                );
            }
        };
        let mut facts = vec![theta, ("scaling", Value::String(kind.to_string()))];
        for &(theirs, ours, default) in names {
            let found = scaling.get(theirs).and_then(Json::as_f64).or(default);
            let missing = || self.unsupported(format!("`{kind}` positions without a number `{theirs}`"), "give it");
            facts.push((ours, Value::Float(found.ok_or_else(missing)?)));
        }
        if kind == "dynamic" {
            // The base grows from the longest sequence on, whatever else the folder calls original.
            facts.push(("original_len", Value::Integer(self.size("max_position_embeddings")? as i64)));
        } else if kind != "linear" {
            facts.push(("original_len", Value::Integer(self.original_length(scaling)? as i64)));
        }
        Ok(facts)
    }

    /// Heads of which only the first channels turn.
    fn refuse_partly_turned(&self, nested: Option<&Json>) -> Result<(), CheckpointError> {
        let key = "partial_rotary_factor";
        let share = nested.and_then(|table| table.get(key)).or_else(|| self.json.get(key)).and_then(Json::as_f64);
        match share.filter(|&share| share != 1.0) {
            Some(share) => Err(self.unsupported(format!("`{key}` is {share}"), "that variant is not built")),
            None => Ok(()),
        }
    }

    fn original_length(&self, scaling: &Json) -> Result<usize, CheckpointError> {
        let key = "original_max_position_embeddings";
        match scaling.get(key).or_else(|| self.json.get(key)) {
            None | Some(Json::Null) => self.size("max_position_embeddings"),
            Some(value) => {
                let length = value.as_u64().filter(|length| (1..1 << 40).contains(length));
                length.map(|length| length as usize).ok_or_else(|| self.wrong(key, "a whole number of 1 or more"))
            }
        }
    }

    /// Variants of yarn with an amplitude or a ramp of their own.
    fn refuse_other_yarns(&self, scaling: &Json) -> Result<(), CheckpointError> {
        let plain = |key: &str| match scaling.get(key) {
            None | Some(Json::Null) => true,
            Some(value) => key == "truncate" && value == true,
        };
        match ["attention_factor", "mscale", "mscale_all_dim", "truncate"].iter().find(|key| !plain(key)) {
            None => Ok(()),
            Some(key) => Err(self.unsupported(format!("`yarn` positions with `{key}`"), "that variant is not built")),
        }
    }

    fn collect(
        &self,
        arch: &str,
        activation: &str,
        tied: bool,
        sizes: &[(&str, usize)],
        numbers: &[(&str, f64)],
    ) -> Result<Facts, CheckpointError> {
        let tied = match self.json.get("tie_word_embeddings") {
            None | Some(Json::Null) => tied,
            Some(value) => value.as_bool().ok_or_else(|| self.wrong("tie_word_embeddings", "true or false"))?,
        };
        let mut facts = Facts::from([
            ("model.arch".to_string(), Value::String(arch.to_string())),
            ("model.norm".to_string(), Value::String("pre".to_string())),
            ("model.activation".to_string(), Value::String(activation.to_string())),
            ("model.tie_embeddings".to_string(), Value::Boolean(tied)),
        ]);
        facts.extend(sizes.iter().map(|&(key, size)| (format!("model.{key}"), Value::Integer(size as i64))));
        facts.extend(numbers.iter().map(|&(key, number)| (format!("model.{key}"), Value::Float(number))));
        Ok(facts)
    }

    fn size(&self, key: &str) -> Result<usize, CheckpointError> {
        self.optional_size(key)?.ok_or_else(|| self.wrong(key, "given, as a whole number of 1 or more"))
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>, CheckpointError> {
        match self.json.get(key) {
            None | Some(Json::Null) => Ok(None),
            Some(value) => {
                // The same bound as in a run file: products of sizes stay inside 64 bits.
                let size = value.as_u64().filter(|&size| (1..1 << 40).contains(&size));
                size.map(|size| Some(size as usize)).ok_or_else(|| self.wrong(key, "a whole number of 1 or more"))
            }
        }
    }

    fn divide(&self, hidden: usize, heads: usize) -> Result<usize, CheckpointError> {
        if hidden.is_multiple_of(heads) {
            return Ok(hidden / heads);
        }
        let what = format!("a width of {hidden} is not divisible by {heads} heads");
        Err(self.unsupported(what, "give `head_dim` or another folder"))
    }

    fn number(&self, key: &str, default: f64) -> Result<f64, CheckpointError> {
        match self.json.get(key) {
            None | Some(Json::Null) => Ok(default),
            Some(value) => value.as_f64().ok_or_else(|| self.wrong(key, "a number")),
        }
    }

    fn text(&self, key: &str, default: &str) -> String {
        self.json.get(key).and_then(Json::as_str).unwrap_or(default).to_string()
    }

    /// Refuses a key that is there with a value other than those Henge implements.
    fn demand(&self, key: &str, values: &[Json]) -> Result<(), CheckpointError> {
        match self.json.get(key) {
            None | Some(Json::Null) => Ok(()),
            Some(value) if values.contains(value) => Ok(()),
            Some(value) => Err(self.unsupported(format!("`{key}` is {value}"), "that variant is not built")),
        }
    }

    fn unknown_activation(&self, key: &str, name: &str) -> CheckpointError {
        self.unsupported(format!("`{key}` is `{name}`"), "gelu_new, gelu_pytorch_tanh and gelu are read")
    }

    fn wrong(&self, key: &str, expected: &str) -> CheckpointError {
        let found = self.json.get(key).map_or("absent".to_string(), Json::to_string);
        self.unsupported(format!("`{key}` is {found}"), &format!("it must be {expected}"))
    }

    fn unsupported(&self, what: String, fix: &str) -> CheckpointError {
        CheckpointError::Unsupported { file: self.path.clone(), what, fix: fix.to_string() }
    }
}

/// `config.json` of a model, with the keys that the transformers library reads.
pub(super) fn render(model: &Model, dtype: DType) -> String {
    let mut json = match model.arch {
        Arch::Gpt => gpt2_json(model),
        Arch::Llama => llama_json(model),
        Arch::Bert => bert_json(model),
    };
    json["dtype"] = match dtype {
        DType::BF16 => "bfloat16",
        DType::F16 => "float16",
        DType::F32 | DType::F64 => "float32",
    }
    .into();
    json["torch_dtype"] = json["dtype"].clone(); // the key before version 5
    json["tie_word_embeddings"] = model.tie_embeddings.into();
    json["vocab_size"] = model.vocab_size.into();
    json["initializer_range"] = model.init_std.into();
    format!("{json:#}\n")
}

fn gpt2_json(m: &Model) -> Json {
    // The library's default ends a document at 50256, which a smaller vocabulary has not.
    let end_of_text = (m.vocab_size == 50257).then_some(50256);
    serde_json::json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": if m.activation == Activation::Gelu { "gelu" } else { "gelu_new" },
        "n_layer": m.layers,
        "n_embd": m.hidden,
        "n_head": m.heads,
        "n_inner": m.ffn_hidden,
        "n_positions": m.seq_len,
        "layer_norm_epsilon": m.norm_eps,
        "embd_pdrop": plain(m.dropout.embedding),
        "attn_pdrop": plain(m.dropout.attention),
        "resid_pdrop": plain(m.dropout.hidden),
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
    })
}

fn llama_json(m: &Model) -> Json {
    let rope = m.rope.unwrap_or(Rope::plain(10000.0));
    let mut scaling = scaling_json(rope.scaling);
    let longest = match rope.scaling {
        // From here on the library lets the base grow.
        RopeScaling::Dynamic { original, .. } => original,
        _ => m.seq_len,
    };
    let mut json = serde_json::json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": m.layers,
        "hidden_size": m.hidden,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.kv_heads,
        "head_dim": m.head_dim,
        "intermediate_size": m.ffn_hidden,
        "max_position_embeddings": longest,
        "rms_norm_eps": m.norm_eps,
        "rope_theta": rope.theta, // the keys before version 5
        "rope_scaling": if rope.scaling == RopeScaling::None { Json::Null } else { scaling.clone() },
        "attention_dropout": plain(m.dropout.attention),
    });
    scaling["rope_theta"] = rope.theta.into();
    json["rope_parameters"] = scaling;
    if m.qkv_bias {
        json["architectures"] = serde_json::json!(["Qwen2ForCausalLM"]);
        json["model_type"] = QWEN2.into();
        json["use_sliding_window"] = false.into();
    } else {
        json["attention_bias"] = false.into();
        json["mlp_bias"] = false.into();
    }
    json
}

fn scaling_json(scaling: RopeScaling) -> Json {
    match scaling {
        RopeScaling::None => serde_json::json!({ "rope_type": "default" }),
        RopeScaling::Linear { factor } => serde_json::json!({ "rope_type": "linear", "factor": factor }),
        RopeScaling::Dynamic { factor, .. } => serde_json::json!({ "rope_type": "dynamic", "factor": factor }),
        RopeScaling::Llama3 { factor, low, high, original } => serde_json::json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }),
        RopeScaling::Yarn { factor, fast, slow, original } => serde_json::json!({
            "rope_type": "yarn",
            "factor": factor,
            "beta_fast": fast,
            "beta_slow": slow,
            "original_max_position_embeddings": original,
        }),
    }
}

fn bert_json(m: &Model) -> Json {
    let (class, family) = match m.norm {
        NormPlacement::Post => ("BertForPreTraining", "bert"),
        NormPlacement::Pre => ("MegatronBertForPreTraining", "megatron-bert"),
    };
    serde_json::json!({
        "architectures": [class],
        "model_type": family,
        "hidden_act": if m.activation == Activation::Gelu { "gelu" } else { "gelu_new" },
        "num_hidden_layers": m.layers,
        "hidden_size": m.hidden,
        "num_attention_heads": m.heads,
        "intermediate_size": m.ffn_hidden,
        "max_position_embeddings": m.seq_len,
        "type_vocab_size": m.token_types,
        "layer_norm_eps": m.norm_eps,
        "hidden_dropout_prob": plain(m.dropout.hidden),
        "attention_probs_dropout_prob": plain(m.dropout.attention),
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
    })
}

/// A rate as it was written: 0.1 and not its nearest float32 in full.
fn plain(rate: f32) -> f64 {
    (f64::from(rate) * 1e7).round() / 1e7
}
