//! A model as a person types it: `layers=32,hidden=3840,heads=32,seq_len=2048,vocab_size=51200`.

use crate::PlanError;
use henge_spec::{Activation, Arch, DropoutRates, Model, Rope};

const KEYS: [&str; 9] =
    ["layers", "hidden", "heads", "seq_len", "vocab_size", "kv_heads", "ffn_hidden", "arch", "tie_embeddings"];

/// Reads a shape. `kv_heads`, `ffn_hidden`, `arch` and `tie_embeddings` may be left out.
///
/// # Errors
/// [`PlanError::ModelText`] for an unknown, doubled, missing or impossible key.
pub fn parse_shape(text: &str) -> Result<Model, PlanError> {
    let pairs = pairs(text)?;
    let get = |key: &str| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
    let size = |key: &'static str| match get(key) {
        Some(value) => positive(text, key, value).map(Some),
        None => Ok(None),
    };
    let need = |key: &'static str| size(key)?.ok_or_else(|| wrong(text, format!("`{key}` is missing")));
    let (hidden, heads) = (need("hidden")?, need("heads")?);
    if !hidden.is_multiple_of(heads) {
        return Err(wrong(text, format!("hidden = {hidden} is not divisible by heads = {heads}")));
    }
    let mut model = Model::gpt(need("layers")?, hidden, heads, need("seq_len")?, need("vocab_size")?);
    let arch: Arch = get("arch").unwrap_or("gpt").parse().map_err(|problem| wrong(text, problem))?;
    if arch == Arch::Llama {
        model = as_llama(model);
    }
    model.arch = arch;
    model.token_types = if arch == Arch::Bert { 2 } else { 0 };
    model.kv_heads = size("kv_heads")?.unwrap_or(model.kv_heads);
    model.ffn_hidden = size("ffn_hidden")?.unwrap_or(model.ffn_hidden);
    if !heads.is_multiple_of(model.kv_heads) {
        return Err(wrong(text, format!("heads = {heads} is not divisible by kv_heads = {}", model.kv_heads)));
    }
    if let Some(value) = get("tie_embeddings") {
        model.tie_embeddings =
            value.parse().map_err(|_| wrong(text, format!("`tie_embeddings = {value}` is not true or false")))?;
    }
    Ok(model)
}

/// Gated MLP of 8/3 h rounded up to 256, rotary positions, no dropout, a head of its own.
fn as_llama(model: Model) -> Model {
    Model {
        ffn_hidden: (8 * model.hidden / 3).next_multiple_of(256),
        dropout: DropoutRates::all(0.0),
        activation: Activation::SwiGlu,
        rope: Some(Rope::plain(10_000.0)),
        tie_embeddings: false,
        ..model
    }
}

fn pairs(text: &str) -> Result<Vec<(&str, &str)>, PlanError> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| wrong(text, format!("`{part}` has no `=`")))?;
        let (key, value) = (key.trim(), value.trim());
        if !KEYS.contains(&key) {
            return Err(wrong(text, format!("there is no `{key}`; {}", nearest(key))));
        }
        if pairs.iter().any(|(name, _)| *name == key) {
            return Err(wrong(text, format!("`{key}` is given twice")));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

fn nearest(key: &str) -> String {
    let closest = KEYS.iter().map(|known| (strsim::jaro_winkler(key, known), known));
    match closest.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, known)) if likeness > 0.75 => format!("did you mean `{known}`?"),
        _ => format!("there are {}", KEYS.join(", ")),
    }
}

fn positive(text: &str, key: &str, value: &str) -> Result<usize, PlanError> {
    match value.parse::<usize>() {
        Ok(size) if (1..=1 << 24).contains(&size) => Ok(size),
        _ => Err(wrong(text, format!("`{key} = {value}` is not a whole number from 1 to {}", 1 << 24))),
    }
}

fn wrong(text: &str, problem: String) -> PlanError {
    PlanError::ModelText { text: text.to_string(), problem }
}
