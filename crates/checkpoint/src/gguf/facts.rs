//! The model of a GGUF file, from its metadata and its table of tensors.

use super::reader::{Tensor, Value};
use crate::CheckpointError;
use std::collections::BTreeMap;
use std::path::Path;
use toml::Value as Fact;

/// Families of Llama's shape.
const FAMILIES: [&str; 2] = ["llama", "qwen2"];

pub(super) struct Metadata<'a> {
    pub path: &'a Path,
    pub metadata: &'a BTreeMap<String, Value>,
    pub tensors: &'a BTreeMap<String, Tensor>,
}

impl Metadata<'_> {
    /// The model as keys of a run file.
    pub fn facts(&self) -> Result<BTreeMap<String, Fact>, CheckpointError> {
        self.refuse_what_is_not_built()?;
        let vocab_size = match self.tensors.get("token_embd.weight").map(|table| &table.shape[..]) {
            Some(&[rows, _]) => rows,
            _ => return Err(self.unsupported("it has no table of tokens".to_string(), "give a whole model")),
        };
        let (layers, heads) = (self.size("block_count")?, self.size("attention.head_count")?);
        if layers > self.tensors.len() {
            // Lists of that many layers would ask for the machine's memory.
            return Err(
                self.wrong("block_count", &format!("a number that its {} tensors bear out", self.tensors.len()))
            );
        }
        let sizes = [
            ("layers", layers),
            ("hidden", self.size("embedding_length")?),
            ("heads", heads),
            ("kv_heads", self.optional_size("attention.head_count_kv")?.unwrap_or(heads)),
            ("head_dim", self.head_dim()?),
            ("ffn_hidden", self.size("feed_forward_length")?),
            ("seq_len", self.size("context_length")?),
            ("vocab_size", vocab_size),
        ];
        let numbers = [
            ("embedding_dropout", 0.0),
            ("attention_dropout", 0.0),
            ("hidden_dropout", 0.0),
            ("init_std", 0.02),
            ("norm_eps", self.number("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5)),
            ("rope.theta", self.number("rope.freq_base")?.unwrap_or(10000.0)),
        ];
        let words = [("arch", "llama"), ("norm", "pre"), ("activation", "swiglu")];
        let flags = [
            ("tie_embeddings", !self.tensors.contains_key("output.weight")),
            ("qkv_bias", self.tensors.contains_key("blk.0.attn_q.bias")),
        ];
        let facts = words.map(|(key, word)| (key, Fact::String(word.to_string()))).into_iter();
        let facts = facts.chain(sizes.map(|(key, size)| (key, Fact::Integer(size as i64))));
        let facts = facts.chain(numbers.map(|(key, number)| (key, Fact::Float(number))));
        let facts = facts.chain(flags.map(|(key, flag)| (key, Fact::Boolean(flag)))).chain(self.scaling()?);
        Ok(facts.map(|(key, fact)| (format!("model.{key}"), fact)).collect())
    }

    /// Channels of a head where the file keeps rotated ones as neighbours.
    pub fn paired(&self) -> Result<Option<usize>, CheckpointError> {
        if self.family()? == "llama" { self.head_dim().map(Some) } else { Ok(None) }
    }

    fn family(&self) -> Result<&str, CheckpointError> {
        match self.metadata.get("general.architecture") {
            Some(Value::Text(name)) if FAMILIES.contains(&name.as_str()) => Ok(name),
            Some(Value::Text(name)) => Err(self.unsupported(
                format!("`general.architecture` is `{name}`"),
                &format!("give a file of one of {}", FAMILIES.join(", ")),
            )),
            _ => Err(self.unsupported("it names no `general.architecture`".to_string(), "give a model's file")),
        }
    }

    fn refuse_what_is_not_built(&self) -> Result<(), CheckpointError> {
        if let Some(parts) = self.whole("split.count")?.filter(|&parts| parts > 1) {
            let what = format!("it is one of {parts} parts of a model");
            return Err(self.unsupported(what, "join them first (llama-gguf-split --merge)"));
        }
        if self.optional_size("expert_count")?.is_some() {
            return Err(self.unsupported("it is a mixture of experts".to_string(), "give a dense model"));
        }
        let context = self.size("context_length")?;
        if let Some(window) = self.optional_size("attention.sliding_window")?.filter(|&window| window < context) {
            let what = format!("attention sees a window of {window} tokens only");
            return Err(self.unsupported(what, "windows are not built; give a model without one"));
        }
        if self.tensors.contains_key("rope_freqs.weight") {
            let what = "its rotary positions are scaled by a table, `rope_freqs.weight`".to_string();
            return Err(self.unsupported(what, "give the model's Hugging Face folder, whose config.json says how"));
        }
        Ok(())
    }

    /// Width of a head, all of whose channels are rotated.
    fn head_dim(&self) -> Result<usize, CheckpointError> {
        let (hidden, heads) = (self.size("embedding_length")?, self.size("attention.head_count")?);
        let head = match self.optional_size("attention.key_length")? {
            Some(length) => length,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                return Err(self.unsupported(format!("{hidden} is not divisible by {heads} heads"), "convert it again"));
            }
        };
        for key in ["attention.value_length", "rope.dimension_count"] {
            if let Some(other) = self.optional_size(key)?.filter(|&other| other != head) {
                let what = format!("`{}` is {other} where a head has {head} channels", self.key(key)?);
                return Err(self.unsupported(what, "that variant is not built"));
            }
        }
        match head.is_multiple_of(2) {
            true => Ok(head),
            false => Err(self.unsupported(format!("a head of {head} channels cannot be rotated"), "convert it again")),
        }
    }

    fn scaling(&self) -> Result<Vec<(&'static str, Fact)>, CheckpointError> {
        let kind = match self.find("rope.scaling.type")? {
            Some(Value::Text(kind)) => kind.as_str(),
            Some(_) => return Err(self.unsupported("`rope.scaling.type` is no word".to_string(), "convert it again")),
            // What the format's own reader takes; older files give the factor alone.
            None => "linear",
        };
        let number = |key: &str| self.number(&format!("rope.scaling.{key}"));
        let factor = number("factor")?.or(self.number("rope.scale_linear")?).unwrap_or(1.0);
        let words = |kind: &str| ("rope.scaling", Fact::String(kind.to_string()));
        match kind {
            "none" => Ok(Vec::new()),
            "linear" | "yarn" if factor == 1.0 => Ok(Vec::new()),
            "linear" => Ok(vec![words("linear"), ("rope.factor", Fact::Float(factor))]),
            "yarn" if number("attn_factor")?.is_some_and(|factor| factor != 1.0) => {
                Err(self
                    .unsupported("`yarn` positions with an amplitude of their own".to_string(), "give another model"))
            }
            "yarn" => {
                let original = self.size("rope.scaling.original_context_length")?;
                Ok(vec![
                    words("yarn"),
                    ("rope.factor", Fact::Float(factor)),
                    ("rope.beta_fast", Fact::Float(number("yarn_beta_fast")?.unwrap_or(32.0))),
                    ("rope.beta_slow", Fact::Float(number("yarn_beta_slow")?.unwrap_or(1.0))),
                    ("rope.original_len", Fact::Integer(original as i64)),
                ])
            }
            other => Err(self.unsupported(
                format!("its rotary positions are scaled by `{other}`"),
                "linear and yarn are read; give another model",
            )),
        }
    }

    fn key(&self, key: &str) -> Result<String, CheckpointError> {
        if key == "split.count" { Ok(key.to_string()) } else { Ok(format!("{}.{key}", self.family()?)) }
    }

    fn find(&self, key: &str) -> Result<Option<&Value>, CheckpointError> {
        Ok(self.metadata.get(&self.key(key)?))
    }

    fn whole(&self, key: &str) -> Result<Option<u64>, CheckpointError> {
        match self.find(key)? {
            None => Ok(None),
            // Products of sizes stay inside 64 bits.
            Some(&Value::Whole(value)) if (0..1 << 40).contains(&value) => Ok(Some(value as u64)),
            Some(_) => Err(self.wrong(key, "a whole number below 2^40, the same for all layers")),
        }
    }

    /// A size where it is given and not 0.
    fn optional_size(&self, key: &str) -> Result<Option<usize>, CheckpointError> {
        Ok(self.whole(key)?.filter(|&size| size > 0).map(|size| size as usize))
    }

    fn size(&self, key: &str) -> Result<usize, CheckpointError> {
        self.optional_size(key)?.ok_or_else(|| self.wrong(key, "given, as a whole number of 1 or more"))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, CheckpointError> {
        match self.find(key)? {
            None => Ok(None),
            Some(&Value::Float(number)) if number.is_finite() && number > 0.0 => Ok(Some(number)),
            Some(&Value::Whole(number)) if number > 0 => Ok(Some(number as f64)),
            Some(_) => Err(self.wrong(key, "a number above 0")),
        }
    }

    fn wrong(&self, key: &str, expected: &str) -> CheckpointError {
        let key = self.key(key).unwrap_or_else(|_| key.to_string());
        let found = match self.metadata.get(&key) {
            None => "absent".to_string(),
            Some(Value::List(list)) => format!("a list of {}", list.len()),
            Some(value) => format!("{value:?}"),
        };
        self.unsupported(format!("`{key}` is {found}"), &format!("it must be {expected}"))
    }

    fn unsupported(&self, what: String, fix: &str) -> CheckpointError {
        CheckpointError::Unsupported { file: self.path.to_path_buf(), what, fix: fix.to_string() }
    }
}
