//! A timed backend computes the same bits as the one inside it, and what it writes down is
//! what the sizes say.

use henge_cpu::{Fast, Rounding};
use henge_tensor::{
    AttentionCall, AttentionShape, Backend, Buffer, ElementBytes, Entry, Kind, Ledger, Mask, Operation, Timed,
};

const TOKENS: usize = 6;
const INPUTS: usize = 8;
const OUTPUTS: usize = 24;

/// One linear forward and backward, and an attention over its output.
fn numbers<B: Backend<Real = f32>>(backend: &B) -> Vec<f32> {
    let ramp = |len: usize| (0..len).map(|i| (i % 7) as f32 - 3.0).collect::<Vec<_>>();
    let mut parameters = backend.zeros(INPUTS * OUTPUTS, Kind::Weight);
    parameters.write(0, &ramp(INPUTS * OUTPUTS));
    let weight = backend.prepare(&parameters, 0, OUTPUTS, INPUTS);
    let mut grads = backend.zeros(INPUTS * OUTPUTS, Kind::Gradient);
    let x = backend.upload(TOKENS, INPUTS, &ramp(TOKENS * INPUTS));
    let qkv = backend.linear(&x, &weight, None);
    let shape = AttentionShape { batch: 2, seq: 3, heads: 2, kv_heads: 2, head_dim: 4 };
    let call = AttentionCall { shape, mask: Mask::Causal, scale: 0.5, dropout: None };
    let (y, _) = backend.attention(&qkv, &call);
    backend.linear_weight_gradient(&x, &qkv, &mut grads, 0);
    let dx = backend.linear_input_gradient(&qkv, &weight);
    [backend.download(&y), backend.download(&dx), grads.read_f32(0, INPUTS * OUTPUTS)].concat()
}

#[test]
fn timing_changes_no_bit_and_counts_by_the_sizes() {
    let ledger = Ledger::default();
    let bytes = ElementBytes { activation: 4, weight: 2 };
    let timed = numbers(&Timed::new(Fast::new(1, Rounding::Exact), ledger.clone(), bytes));
    assert_eq!(timed, numbers(&Fast::new(1, Rounding::Exact)));
    let entries = ledger.take();
    let of = |operation| entries[&operation];
    let (inputs, outputs) = (INPUTS, OUTPUTS);
    // 2 x 6 tokens x 8 x 24; 6 x (8 + 24) activations of 4 bytes, 8 x 24 weights of 2.
    let forward = of(Operation::Forward { inputs, outputs });
    assert_eq!((forward.calls, forward.flops, forward.bytes), (1, 2304.0, 1152.0));
    let backward = of(Operation::InputGradient { inputs, outputs });
    assert_eq!((backward.flops, backward.bytes), (forward.flops, forward.bytes));
    // The same activations, and 8 x 24 gradients of 4 bytes read and written.
    let weight = of(Operation::WeightGradient { inputs, outputs });
    assert_eq!((weight.flops, weight.bytes), (2304.0, 2304.0));
    // 2 products x 2 FLOP x 2 sequences of 1 + 2 + 3 pairs x 2 heads x 4 channels.
    assert_eq!(of(Operation::Attention).flops, 384.0);
    assert!(entries.values().all(|&Entry { seconds, .. }| seconds > 0.0));
}
