//! Parameters, FLOP, bytes and times in closed form, each with its source.
//!
//! Legend: a heads, b microbatch (sequences), B global batch (sequences), d, t, p data,
//! tensor and pipeline ranks, h hidden, l layers, m microbatches a pipeline, n GPUs,
//! s sequence length, v chunks a rank, V vocabulary, P parameters, X FLOP/s of one GPU.
//! Sources: SC21 is arXiv 2104.04473, ACT is arXiv 2205.05198, MEG is arXiv 1909.08053.

use crate::{Activation, Arch, Model, Recompute};

/// Whether the regions between the tensor parallel products are split along the
/// sequence (ACT, section 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SequenceParallel {
    /// Every tensor rank keeps the whole sequence.
    Off,
    /// Every tensor rank keeps s/t positions.
    On,
}

/// How the scores of attention are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attention {
    /// The `[a, s, s]` matrices exist and are kept for the backward.
    Plain,
    /// One fused kernel; the scores never exist.
    Flash,
}

/// How weights, gradients and moments are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateFormat {
    /// Everything in float32: weights, gradients, two moments.
    F32,
    /// float16 weights and gradients; float32 master weights, gradient copy and moments.
    F16,
    /// bfloat16 weights; float32 gradients, master weights and moments.
    BF16,
}

impl StateFormat {
    /// Bytes of one weight as the products read it.
    pub fn weight_bytes(self) -> f64 {
        match self {
            Self::F32 => 4.0,
            Self::F16 | Self::BF16 => 2.0,
        }
    }

    /// Bytes of one gradient accumulator.
    pub fn gradient_bytes(self) -> f64 {
        match self {
            Self::F16 => 2.0,
            Self::F32 | Self::BF16 => 4.0,
        }
    }

    /// Bytes of the optimizer's share of one parameter: the rest of Megatron's
    /// 16, 20 and 18 bytes (Megatron-Core, `dist_optimizer.md`).
    pub fn optimizer_bytes(self) -> f64 {
        match self {
            Self::F32 => 8.0,
            Self::F16 => 16.0,
            Self::BF16 => 12.0,
        }
    }

    /// All bytes of one parameter where only the optimizer is sharded over `data`
    /// ranks: 20 becomes 4 + 16/d, 18 becomes 6 + 12/d, 16 becomes 8 + 8/d.
    pub fn bytes_with_sharded_optimizer(self, data: usize) -> f64 {
        self.weight_bytes() + self.gradient_bytes() + self.optimizer_bytes() / data as f64
    }
}

fn attention_width(model: &Model) -> f64 {
    (model.heads * model.head_dim) as f64
}

fn kv_width(model: &Model) -> f64 {
    (model.kv_heads * model.head_dim) as f64
}

/// Matrices of `[h, ffn]` shape in the MLP: two, or three where a gate is used.
pub fn mlp_matrices(model: &Model) -> f64 {
    match model.activation {
        Activation::SwiGlu => 3.0,
        Activation::GeluTanh | Activation::Gelu => 2.0,
    }
}

/// P = 12 l h^2 (1 + 13/(12h) + (V+s)/(12 l h)) (SC21, equation 2), V unpadded.
///
/// Holds for GPT with `ffn = 4h`; final norm and head are not in it.
pub fn published_parameters(layers: f64, hidden: f64, sequence: f64, vocabulary: f64) -> f64 {
    let body = 12.0 * layers * hidden * hidden;
    body * (1.0 + 13.0 / (12.0 * hidden) + (vocabulary + sequence) / (12.0 * layers * hidden))
}

/// Parameters of one transformer layer that tensor parallelism splits: the matrices.
pub fn layer_matrix_parameters(model: &Model) -> f64 {
    let h = model.hidden as f64;
    let attention = h * (2.0 * attention_width(model) + 2.0 * kv_width(model));
    attention + mlp_matrices(model) * h * model.ffn_hidden as f64
}

/// Parameters of one transformer layer: matrices, biases and norms.
pub fn layer_parameters(model: &Model) -> f64 {
    let h = model.hidden as f64;
    let small = match model.arch {
        Arch::Llama if model.qkv_bias => 2.0 * h + attention_width(model) + 2.0 * kv_width(model),
        Arch::Llama => 2.0 * h,
        Arch::Gpt | Arch::Bert => {
            let biases = attention_width(model) + 2.0 * kv_width(model) + h + model.ffn_hidden as f64 + h;
            biases + 4.0 * h
        }
    };
    layer_matrix_parameters(model) + small
}

/// Parameters of one vocabulary table of `vocabulary` rows.
pub fn table_parameters(model: &Model, vocabulary: usize) -> f64 {
    (vocabulary * model.hidden) as f64
}

/// Parameters outside the layers and the vocabulary tables: positions, token types, last
/// norm; for BERT also the head's dense layer, norm and bias, the pooler and the two-way
/// sentence-order head.
pub fn other_parameters(model: &Model) -> f64 {
    let h = model.hidden as f64;
    match model.arch {
        Arch::Llama => h,
        Arch::Gpt => model.seq_len as f64 * h + 2.0 * h,
        Arch::Bert => {
            let linear = |outputs: f64| outputs * (h + 1.0);
            let head = match model.task {
                None => 2.0 * linear(h) + 2.0 * h + model.vocab_size as f64 + linear(2.0),
                Some(task) if task.is_pooled() => linear(h) + linear(task.outputs() as f64),
                Some(task) => linear(task.outputs() as f64),
            };
            (model.seq_len + model.token_types) as f64 * h + 2.0 * h + head
        }
    }
}

/// All parameters, with the vocabulary unpadded.
pub fn parameters(model: &Model) -> f64 {
    let tables = if model.tie_embeddings || model.task.is_some() { 1.0 } else { 2.0 };
    model.layers as f64 * layer_parameters(model)
        + tables * table_parameters(model, model.vocab_size)
        + other_parameters(model)
}

/// FLOP of one layer's forward over `tokens` tokens: matrices and attention.
pub fn layer_forward_flops(model: &Model, tokens: f64) -> f64 {
    2.0 * tokens * layer_matrix_parameters(model) + attention_forward_flops(model, tokens)
}

/// FLOP of the two products with the scores, the whole square counted: 4 b s^2 h.
pub fn attention_forward_flops(model: &Model, tokens: f64) -> f64 {
    4.0 * tokens * model.seq_len as f64 * attention_width(model)
}

/// FLOP of the head's forward, 2 b s h V, counted over every token as the papers do although
/// an encoder scores its masked tokens alone; none for a fine-tuning task.
pub fn head_forward_flops(model: &Model, tokens: f64) -> f64 {
    if model.task.is_some() {
        return 0.0;
    }
    2.0 * tokens * table_parameters(model, model.vocab_size)
}

/// FLOP of one step without recomputation: 72 B s l h^2 (1 + s/(6h) + V/(12 l h))
/// for GPT (ACT, equation 7); in general Megatron-Core's form with grouped queries and gates.
pub fn model_flops(model: &Model, batch: f64) -> f64 {
    let tokens = batch * model.seq_len as f64;
    3.0 * (model.layers as f64 * layer_forward_flops(model, tokens) + head_forward_flops(model, tokens))
}

/// FLOP of one step with the recomputation counted.
///
/// Full recomputation: 96 B s l h^2 (1 + s/(6h) + V/(16 l h)) (SC21, equation 3).
/// Selective: s/(6h) of [`model_flops`] becomes s/(3h) (ACT, equation 8), which counts
/// forward and backward of the scores although only the forward is run twice; kept as
/// published, because published utilisations use it.
pub fn hardware_flops(model: &Model, batch: f64, recompute: Recompute) -> f64 {
    let tokens = batch * model.seq_len as f64;
    let layers = model.layers as f64;
    let again = match recompute {
        Recompute::None => 0.0,
        Recompute::Selective => 3.0 * layers * attention_forward_flops(model, tokens),
        Recompute::Every(_) => layers * layer_forward_flops(model, tokens),
    };
    model_flops(model, batch) + again
}

/// Seconds to train on `tokens` tokens: steps x FLOP of a step / (n X) (SC21, section 5.1).
pub fn training_seconds(model: &Model, tokens: f64, batch: f64, flops_of_step: f64, gpus: f64, rate: f64) -> f64 {
    let steps = tokens / (batch * model.seq_len as f64);
    steps * flops_of_step / (gpus * rate)
}

/// Seconds by the rule of thumb 8 T P / (n X), recomputation counted in X (SC21, equation 4).
pub fn training_seconds_estimate(parameters: f64, tokens: f64, gpus: f64, rate: f64) -> f64 {
    8.0 * tokens * parameters / (gpus * rate)
}

/// What one layer keeps between forward and backward, bytes of one microbatch on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerActivations {
    /// Tensors outside the tensor parallel region: norms, inputs, dropout masks.
    pub replicated: f64,
    /// Tensors inside it, already divided by t.
    pub split: f64,
    /// Scores, probabilities and their dropout, already divided by t.
    pub scores: f64,
}

impl LayerActivations {
    /// Sum over all.
    pub fn total(&self) -> f64 {
        self.replicated + self.split + self.scores
    }
}

/// Bytes one layer makes for its backward with 16-bit activations and one-byte masks.
///
/// For GPT: `sbh (10 + 24/t + 5as/(ht))`, with sequence parallelism `sbh/t (34 + 5as/h)`
/// (ACT, table 2). A rate of zero keeps no mask; flash attention keeps one float32 a row
/// in place of the scores.
pub fn layer_activations(
    model: &Model,
    microbatch: usize,
    tensor: usize,
    sequence_parallel: SequenceParallel,
    attention: Attention,
) -> LayerActivations {
    let tokens = (microbatch * model.seq_len) as f64;
    let t = tensor as f64;
    let h = model.hidden as f64;
    let hidden_mask = if model.dropout.hidden > 0.0 { h } else { 0.0 };
    let outside = tokens * (4.0 * h + 2.0 * h + 2.0 * h + 2.0 * hidden_mask);
    let gated = mlp_matrices(model) * 2.0 * model.ffn_hidden as f64;
    let inside = tokens * (4.0 * attention_width(model) + 4.0 * kv_width(model) + gated);
    let score_elements = tokens * (model.heads * model.seq_len) as f64;
    let scores = match attention {
        Attention::Flash => tokens * model.heads as f64 * 4.0,
        Attention::Plain if model.dropout.attention > 0.0 => 5.0 * score_elements,
        Attention::Plain => 2.0 * score_elements,
    };
    let share = match sequence_parallel {
        SequenceParallel::Off => 1.0,
        SequenceParallel::On => t,
    };
    LayerActivations { replicated: outside / share, split: inside / t, scores: scores / t }
}

/// Bytes one layer keeps under a recomputation mode, per layer on average.
///
/// Selective drops the scores; full keeps the layer's input, `2sbh` a checkpoint
/// (ACT, table 2: the checkpoint is not sharded over t).
pub fn kept_activation_bytes(layer: &LayerActivations, input_bytes: f64, recompute: Recompute) -> f64 {
    match recompute {
        Recompute::None => layer.total(),
        Recompute::Selective => layer.replicated + layer.split,
        Recompute::Every(layers) => input_bytes / layers.max(1) as f64,
    }
}

/// Layers' worth of activations on the first pipeline rank: l (1 + (p-1)/(pv)) when
/// interleaved, l with 1F1B (ACT, section 4.2.3).
pub fn first_rank_layers(layers: f64, pipeline: usize, chunks: usize) -> f64 {
    if chunks == 1 {
        return layers;
    }
    layers * (1.0 + (pipeline as f64 - 1.0) / (pipeline * chunks) as f64)
}

/// Best number of checkpoints among l layers: sqrt(l A_mid / A_in) (SC21, section 3.5).
pub fn best_checkpoints(layers: f64, inner_bytes: f64, input_bytes: f64) -> f64 {
    (layers * inner_bytes / input_bytes).sqrt()
}

/// Bubble over ideal time of GPipe and 1F1B, (p-1)/m, and interleaved, (p-1)/(vm)
/// (SC21, section 2.2).
pub fn bubble_fraction(pipeline: usize, chunks: usize, microbatches: usize) -> f64 {
    (pipeline as f64 - 1.0) / (chunks * microbatches) as f64
}

/// Bubble of pipeline against data parallelism, (n-d)/b' with b' = B/b and t = 1 (SC21, section 3.3.1).
pub fn bubble_against_data(gpus: f64, data: f64, batch_in_microbatches: f64) -> f64 {
    (gpus - data) / batch_in_microbatches
}

/// Time of a batch by equation 1 of SC21: (b'/b + p - 1)(t_f + t_b).
pub fn batch_seconds(batch_of_replica: f64, microbatch: f64, pipeline: f64, microbatch_seconds: f64) -> f64 {
    (batch_of_replica / microbatch + pipeline - 1.0) * microbatch_seconds
}

/// Elements that tensor parallelism moves per layer, microbatch and device:
/// 8 b s h (t-1)/t, and 12 b s h (t-1)/t where the forward is run again (SC21, section 3.2).
pub fn tensor_parallel_volume(model: &Model, microbatch: usize, tensor: usize, recompute: Recompute) -> f64 {
    let all_reduces = match recompute {
        Recompute::None | Recompute::Selective => 4.0,
        Recompute::Every(_) => 6.0,
    };
    let elements = (microbatch * model.seq_len * model.hidden) as f64;
    all_reduces * 2.0 * elements * (tensor as f64 - 1.0) / tensor as f64
}

/// Elements between two consecutive stages per microbatch, direction and link:
/// b s h, with scatter/gather b s h / t (SC21, section 4.1).
pub fn pipeline_volume(model: &Model, microbatch: usize, slices: usize) -> f64 {
    (microbatch * model.seq_len * model.hidden) as f64 / slices as f64
}

/// Elements a device moves for the gradients of a batch: 2 (d-1)/d P/(tp), a ring.
pub fn data_parallel_volume(parameters_of_rank: f64, data: usize) -> f64 {
    2.0 * (data as f64 - 1.0) / data as f64 * parameters_of_rank
}

#[cfg(test)]
#[path = "formulas_test.rs"]
mod tests;
