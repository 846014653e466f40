//! Where a logical tensor stands among Megatron's, whose attention and gated MLP fuse matrices.

use henge_spec::{Activation, Model, Parameter};

/// Where the rows of a parameter are.
pub(super) struct Rows {
    /// Names to look under: the plain one and the one of a fused norm.
    pub names: Vec<String>,
    /// Rows that the fused tensor has.
    pub rows: usize,
    /// Which of them are the parameter's.
    pub runs: Runs,
}

/// Equal runs of rows: run i of the parameter, `length` rows long, starts at row
/// `first + i * stride` of the stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Runs {
    pub length: usize,
    pub first: usize,
    pub stride: usize,
}

/// Rows `[row, row + rows)` of the parameter, stored from row `source` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub row: usize,
    pub rows: usize,
    pub source: usize,
}

impl Runs {
    /// The stored runs of rows `[row, row + rows)`.
    pub fn within(self, row: usize, rows: usize) -> impl Iterator<Item = Run> {
        let end = row + rows;
        let mut at = row;
        std::iter::from_fn(move || {
            let run = at / self.length;
            let rows = ((run + 1) * self.length).min(end).checked_sub(at).filter(|&rows| rows > 0)?;
            let found = Run { row: at, rows, source: self.first + run * self.stride + at % self.length };
            at += rows;
            Some(found)
        })
    }
}

/// Megatron's names of a parameter: plain, and inside the linear that follows a norm.
pub(super) fn candidates(name: &str) -> Vec<String> {
    let fixed = match name {
        "embedding.token.weight" => Some("embedding.word_embeddings.weight"),
        "embedding.position.weight" => Some("embedding.position_embeddings.weight"),
        "final_norm.gain" => Some("decoder.final_layernorm.weight"),
        "final_norm.bias" => Some("decoder.final_layernorm.bias"),
        "head.weight" => Some("output_layer.weight"),
        _ => None,
    };
    if let Some(fixed) = fixed {
        return vec![fixed.to_string()];
    }
    let (layer, part) = name.strip_prefix("layer.").and_then(|rest| rest.split_once('.')).unwrap_or(("", name));
    let (module, kind) = part.rsplit_once('.').unwrap_or((part, ""));
    let kind = if kind == "gain" { "weight" } else { kind };
    let modules: &[&str] = match module {
        "norm1" => &["input_layernorm.", "self_attention.linear_qkv.layer_norm_"],
        "norm2" => &["pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"],
        "attention.q" | "attention.k" | "attention.v" => &["self_attention.linear_qkv."],
        "attention.output" => &["self_attention.linear_proj."],
        "mlp.gate" | "mlp.up" => &["mlp.linear_fc1."],
        "mlp.down" => &["mlp.linear_fc2."],
        _ => &[],
    };
    modules.iter().map(|module| format!("decoder.layers.{layer}.{module}{kind}")).collect()
}

/// Where a parameter of a model is. Megatron keeps, for each group of query heads, its queries,
/// then its key, then its value; and the gate above the other half of a gated MLP.
pub(super) fn locate(model: &Model, parameter: &Parameter) -> Rows {
    let own = parameter.matrix().0;
    let head = model.head_dim;
    let queries = model.heads / model.kv_heads * head;
    let group = queries + 2 * head;
    let fused = model.kv_heads * group;
    let gated = model.activation == Activation::SwiGlu;
    let (rows, runs) = match part(&parameter.name) {
        "attention.q" => (fused, Runs { length: queries, first: 0, stride: group }),
        "attention.k" => (fused, Runs { length: head, first: queries, stride: group }),
        "attention.v" => (fused, Runs { length: head, first: queries + head, stride: group }),
        "mlp.up" if gated => (2 * own, Runs { length: own, first: own, stride: own }),
        "mlp.gate" => (2 * own, Runs { length: own, first: 0, stride: own }),
        _ => (own, Runs { length: own.max(1), first: 0, stride: own }),
    };
    Rows { names: candidates(&parameter.name), rows, runs }
}

/// `attention.q` of `layer.3.attention.q.weight`.
fn part(name: &str) -> &str {
    let inner = name.strip_prefix("layer.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, rest)| rest);
    inner.rsplit_once('.').map_or(inner, |(part, _)| part)
}

/// The axis along which Megatron's tensor ranks cut a tensor; `None` where each has the whole.
pub(super) fn split_axis(name: &str) -> Option<usize> {
    if name.contains("layer_norm_") || name.contains("layernorm") {
        return None;
    }
    let rows = ["linear_qkv.", "linear_fc1.", "word_embeddings.", "output_layer."];
    if rows.iter().any(|part| name.contains(part)) {
        return Some(0);
    }
    let columns = ["linear_proj.weight", "linear_fc2.weight"];
    columns.iter().any(|part| name.ends_with(part)).then_some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups of three query heads of two channels: q0 q1 q2 k v | q3 q4 q5 k v.
    #[test]
    fn runs_follow_the_groups_of_heads() {
        let queries = Runs { length: 6, first: 0, stride: 10 };
        let found: Vec<_> = queries.within(4, 5).collect();
        assert_eq!(found, [Run { row: 4, rows: 2, source: 4 }, Run { row: 6, rows: 3, source: 10 }]);
        let values = Runs { length: 2, first: 8, stride: 10 };
        let found: Vec<_> = values.within(0, 4).collect();
        assert_eq!(found, [Run { row: 0, rows: 2, source: 8 }, Run { row: 2, rows: 2, source: 18 }]);
        assert_eq!(values.within(3, 0).count(), 0);
    }

    #[test]
    fn norms_have_two_names() {
        assert_eq!(
            candidates("layer.3.norm2.gain"),
            ["decoder.layers.3.pre_mlp_layernorm.weight", "decoder.layers.3.mlp.linear_fc1.layer_norm_weight"]
        );
        assert_eq!(split_axis("decoder.layers.3.mlp.linear_fc1.layer_norm_weight"), None);
        assert_eq!(split_axis("decoder.layers.3.mlp.linear_fc2.weight"), Some(1));
        assert_eq!(split_axis("decoder.layers.3.mlp.linear_fc2.bias"), None);
    }
}
