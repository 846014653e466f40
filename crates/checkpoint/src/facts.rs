//! The model of a checkpoint or folder, from its keys of a run file.

use crate::CheckpointError;
use henge_spec::{Activation, Arch, DropoutRates, Model, NormPlacement, Rope};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use toml::Value;

/// The model that facts describe. `file` names their source in errors.
///
/// # Errors
/// [`CheckpointError::Unsupported`] where a key is absent or is no value of its kind.
pub fn model_of(facts: &BTreeMap<String, Value>, file: &Path) -> Result<Model, CheckpointError> {
    let facts = Facts { facts, file };
    let arch: Arch = facts.choice("arch")?;
    Ok(Model {
        arch,
        layers: facts.size("layers")?,
        hidden: facts.size("hidden")?,
        heads: facts.size("heads")?,
        kv_heads: facts.size("kv_heads")?,
        head_dim: facts.size("head_dim")?,
        ffn_hidden: facts.size("ffn_hidden")?,
        seq_len: facts.size("seq_len")?,
        vocab_size: facts.size("vocab_size")?,
        dropout: DropoutRates {
            embedding: facts.number("embedding_dropout")? as f32,
            attention: facts.number("attention_dropout")? as f32,
            hidden: facts.number("hidden_dropout")? as f32,
        },
        init_std: facts.number("init_std")?,
        tie_embeddings: facts.flag("tie_embeddings")?,
        norm: facts.choice::<NormPlacement>("norm")?,
        activation: facts.choice::<Activation>("activation")?,
        norm_eps: facts.number("norm_eps")?,
        rope: match facts.get("rope.theta") {
            None => None,
            Some(_) => Some(Rope::plain(facts.number("rope.theta")?)),
        },
        token_types: if facts.get("token_types").is_some() { facts.size("token_types")? } else { 0 },
        qkv_bias: false,
    })
}

struct Facts<'a> {
    facts: &'a BTreeMap<String, Value>,
    file: &'a Path,
}

impl Facts<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.facts.get(&format!("model.{key}"))
    }

    fn size(&self, key: &str) -> Result<usize, CheckpointError> {
        let size = self.get(key).and_then(Value::as_integer).filter(|size| (1..1 << 40).contains(size));
        size.map(|size| size as usize).ok_or_else(|| self.wrong(key, "a whole number of 1 or more"))
    }

    fn number(&self, key: &str) -> Result<f64, CheckpointError> {
        let value = self.get(key);
        let number = value.and_then(|v| v.as_float().or_else(|| v.as_integer().map(|n| n as f64)));
        number.ok_or_else(|| self.wrong(key, "a number"))
    }

    fn flag(&self, key: &str) -> Result<bool, CheckpointError> {
        self.get(key).and_then(Value::as_bool).ok_or_else(|| self.wrong(key, "true or false"))
    }

    fn choice<T: FromStr<Err = String>>(&self, key: &str) -> Result<T, CheckpointError> {
        let text = self.get(key).and_then(Value::as_str).ok_or_else(|| self.wrong(key, "a string"))?;
        text.parse().map_err(|problem| self.unsupported(format!("`model.{key}`"), problem))
    }

    fn wrong(&self, key: &str, expected: &str) -> CheckpointError {
        let found = self.get(key).map_or("absent".to_string(), Value::to_string);
        self.unsupported(format!("`model.{key}` is {found}"), format!("it must be {expected}"))
    }

    fn unsupported(&self, what: String, fix: impl Into<String>) -> CheckpointError {
        CheckpointError::Unsupported { file: self.file.to_path_buf(), what, fix: fix.into() }
    }
}
