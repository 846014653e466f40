//! The shape of a transformer language model.

use crate::rope::Rope;
use crate::task::TaskHead;

/// The family of the model: which layers, which norm, which positions, which head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Decoder with learned positions, layer norm and biases (GPT-2, GPT-3).
    Gpt,
    /// Encoder with masked-token and sentence-order heads.
    Bert,
    /// Decoder with rotary positions, RMS norm, gated MLP and no biases.
    Llama,
}

/// Where the norm of a transformer layer sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormPlacement {
    /// On the branch, before attention and MLP; one more norm after the last layer.
    Pre,
    /// After the residual addition, as in the original BERT.
    Post,
}

/// The non-linearity of the MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// GeLU in its tanh form.
    GeluTanh,
    /// GeLU by the error function.
    Gelu,
    /// `silu(gate) * up`, two input matrices.
    SwiGlu,
}

/// Dropout rates, each in `[0, 1)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropoutRates {
    /// On the sum of token and position embedding.
    pub embedding: f32,
    /// On the attention probabilities.
    pub attention: f32,
    /// On both branches before they join the residual stream.
    pub hidden: f32,
}

impl DropoutRates {
    /// The same rate at every site.
    pub fn all(rate: f32) -> Self {
        Self { embedding: rate, attention: rate, hidden: rate }
    }
}

/// The shape of a model. [`crate::Run::resolve`] checks its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Family of the model.
    pub arch: Arch,
    /// Number of transformer layers (l).
    pub layers: usize,
    /// Width of the residual stream (h).
    pub hidden: usize,
    /// Number of attention heads (a).
    pub heads: usize,
    /// Number of key and value heads; equal to `heads` without grouped queries.
    pub kv_heads: usize,
    /// Width of one head; `hidden / heads` unless a model says otherwise.
    pub head_dim: usize,
    /// Inner width of the MLP.
    pub ffn_hidden: usize,
    /// Longest sequence in tokens (s).
    pub seq_len: usize,
    /// Number of real entries of the vocabulary, without padding (V).
    pub vocab_size: usize,
    /// Dropout rates.
    pub dropout: DropoutRates,
    /// Standard deviation of initial weights.
    pub init_std: f64,
    /// Whether the head shares the token embedding table.
    pub tie_embeddings: bool,
    /// Where the norms sit.
    pub norm: NormPlacement,
    /// Non-linearity of the MLP.
    pub activation: Activation,
    /// Added to the variance inside a norm.
    pub norm_eps: f64,
    /// Rotary positions; absent where positions are learned.
    pub rope: Option<Rope>,
    /// Number of token types (BERT); 0 without.
    pub token_types: usize,
    /// Whether queries, keys and values have biases in a model that has no others (Qwen2).
    pub qkv_bias: bool,
    /// An encoder's head for a fine-tuning task, in place of its pretraining heads.
    pub task: Option<TaskHead>,
}

impl Model {
    /// A GPT of the given shape with the papers' defaults: `ffn_hidden = 4 hidden`,
    /// tanh GeLU, pre-layer-norm, tied head, dropout 0.1, N(0, 0.02).
    pub fn gpt(layers: usize, hidden: usize, heads: usize, seq_len: usize, vocab_size: usize) -> Self {
        Self {
            arch: Arch::Gpt,
            layers,
            hidden,
            heads,
            kv_heads: heads,
            head_dim: hidden.checked_div(heads).unwrap_or(0),
            ffn_hidden: 4 * hidden,
            seq_len,
            vocab_size,
            dropout: DropoutRates::all(0.1),
            init_std: 0.02,
            tie_embeddings: true,
            norm: NormPlacement::Pre,
            activation: Activation::GeluTanh,
            norm_eps: 1e-5,
            rope: None,
            token_types: 0,
            qkv_bias: false,
            task: None,
        }
    }

    /// Whether a head reads the token embedding table: a task's head reads none.
    pub const fn head_is_tied(&self) -> bool {
        self.tie_embeddings && self.task.is_none()
    }

    /// Rows of the vocabulary table that tensor rank `rank` of `tensor` holds:
    /// `[start, end)` in the unpadded table. The table is cut as if padded up to a
    /// multiple of `128 * tensor` (1909.08053, section 3), so trailing ranks of a small
    /// vocabulary may hold few rows or none; padding itself never exists.
    pub fn vocab_range(&self, rank: usize, tensor: usize) -> (usize, usize) {
        let share = self.padded_vocab(tensor) / tensor;
        let clip = |row: usize| row.min(self.vocab_size);
        (clip(rank * share), clip((rank + 1) * share))
    }

    /// Vocabulary padded up to a multiple of `128 * tensor`.
    pub fn padded_vocab(&self, tensor: usize) -> usize {
        self.vocab_size.next_multiple_of(128 * tensor)
    }
}

macro_rules! named {
    ($type:ident, $what:literal, $($text:literal => $variant:ident),+) => {
        impl std::str::FromStr for $type {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    other => Err(format!(
                        "`{other}` is not {}; choose one of {}", $what, [$($text),+].join(", ")
                    )),
                }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
}
pub(crate) use named;

named!(Arch, "an architecture", "gpt" => Gpt, "bert" => Bert, "llama" => Llama);
named!(NormPlacement, "a placement of the norm", "pre" => Pre, "post" => Post);
named!(Activation, "an activation", "gelu_tanh" => GeluTanh, "gelu" => Gelu, "swiglu" => SwiGlu);
