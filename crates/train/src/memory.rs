//! What a rank holds, by kind, beside what the formulas say.

use henge_model::Place;
use henge_spec::{Activation, MemoryForecast, Recompute, Run};
use henge_tensor::{ElementBytes, Held, Kind};
use serde::Serialize;

/// Bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KindReport {
    /// What is held.
    pub kind: &'static str,
    /// The most bytes held at once so far.
    pub held: u64,
    /// What the formula says; absent where none does.
    pub forecast: Option<u64>,
}

/// The bytes of rank 0 after its first step, by kind. `copy` are those of the copy which saves
/// are written from while training goes on: weights and moments that this rank writes.
pub(crate) fn report(held: &Held, forecast: &MemoryForecast, copy: u64) -> Vec<KindReport> {
    let said = |kind| match kind {
        Kind::Weight => Some(forecast.weights),
        Kind::Gradient => Some(forecast.gradients),
        Kind::Optimizer => Some(forecast.optimizer),
        Kind::Activation => Some(forecast.activations),
        Kind::Buffer => None,
    };
    let kinds = Kind::ALL.iter();
    let kinds = kinds.map(|&kind| KindReport { kind: kind.name(), held: held.peak(kind), forecast: said(kind) });
    kinds.chain([KindReport { kind: "save_copy", held: copy, forecast: Some(copy) }]).collect()
}

/// Bytes of what is never rounded.
const WIDE: u64 = 4;

/// What a rank should hold: in float32 master weights, gradients and two moments, in `bytes`
/// the two packed forms of weights that products read, and the tensors kept from forward to
/// backward of the chunk passes in flight. Activation gradients on their way come on top, a
/// few `[b s, h]`.
pub(crate) fn forecast(
    run: &Run,
    bytes: ElementBytes,
    elements: usize,
    in_flight: usize,
    place: &Place,
) -> MemoryForecast {
    let elements = elements as u64;
    MemoryForecast {
        weights: (WIDE + 2 * bytes.weight as u64) * elements,
        gradients: WIDE * elements,
        optimizer: 2 * WIDE * elements,
        activations: kept_bytes(run, bytes.activation as u64, in_flight as u64, place),
    }
}

/// Per token and layer: the residual stream before both norms (2 h in float32), both norms'
/// outputs (2 h), and over t ranks the fused q, k, v, the heads' output (4 a d) and the MLP before and
/// after its non-linearity (2 f; gated 3 f); a block of logits. With recomputation: each group's input, and one group in full.
fn kept_bytes(run: &Run, narrow: u64, in_flight: u64, place: &Place) -> u64 {
    let m = &run.model;
    let tokens = (run.train.batching.micro * m.seq_len) as u64;
    let (hidden, layers) = (m.hidden as u64, (m.layers / place.stages) as u64);
    let inner = match m.activation {
        Activation::SwiGlu => 3 * m.ffn_hidden,
        Activation::GeluTanh | Activation::Gelu => 2 * m.ffn_hidden,
    };
    let split = (2 * (m.heads + m.kv_heads) * m.head_dim + inner) as u64 / place.tensors as u64;
    let layer = tokens * (2 * hidden * WIDE + (2 * hidden + split) * narrow);
    // On the last stage one block of logits over the shard, in float32, made and used at once,
    // and what is rounded of it.
    let logits = match place.is_last() && m.task.is_none() {
        true => tokens.min(henge_model::LOSS_BLOCK as u64) * (m.padded_vocab(place.tensors) / place.tensors) as u64,
        false => 0,
    };
    (if narrow < WIDE { WIDE + narrow } else { WIDE }) * logits
        + match run.layout.recompute {
            Recompute::Every(every) => {
                let every = every as u64;
                in_flight * (layers / every) * tokens * hidden * WIDE + every * layer
            }
            Recompute::None | Recompute::Selective => in_flight * layers * layer,
        }
}
