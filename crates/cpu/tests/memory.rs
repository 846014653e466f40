//! What a backend takes from the system, and that it gives everything back to its pool.

use henge_cpu::{Fast, Rounding};
use henge_tensor::conformance::{flat, normals};
use henge_tensor::{AttentionCall, AttentionShape, Backend, Kind, Mask, Matrix, NonLinearity, VocabularyShard};

/// A small step that uses every operation with scratch of its own.
fn step(b: &Fast, tokens: usize) {
    let (hidden, vocabulary) = (64, 300);
    let parameters = flat(b, &normals("parameters", 3 * hidden * vocabulary));
    let qkv = b.prepare(&parameters, 0, 3 * hidden, hidden);
    let table = b.prepare(&parameters, 0, vocabulary, hidden);
    let bias = b.prepare_vector(&parameters, 0, 3 * hidden);
    let gain = b.prepare_vector(&parameters, 0, hidden);
    let mut grads = b.zeros(3 * hidden * vocabulary, Kind::Gradient);
    let x = b.upload(tokens, hidden, &vec![0.5; tokens * hidden]);
    let (normed, stats) = b.layer_norm(&x, &gain, &gain, 1e-5);
    let (fused, _) = b.linear_activated(&normed, &qkv, Some(&bias), NonLinearity::GeluTanh);
    let shape = AttentionShape { batch: 2, seq: tokens / 2, heads: 4, kv_heads: 4, head_dim: hidden / 4 };
    let call = AttentionCall { shape, mask: Mask::Causal, scale: 0.25, dropout: None };
    let (y, logs) = b.attention(&fused, &call);
    let targets = vec![7; tokens];
    let shard = VocabularyShard { first_row: 0, rows: (0, tokens), targets: &targets };
    let (logits, numbers) = b.vocabulary_sweep(&y, &table, None, &shard);
    let mut dy = b.blank(y.rows(), y.columns());
    b.vocabulary_gradient(logits, &numbers, &y, &table, &shard, 1.0, &mut dy, &mut grads, 0, None);
    let dfused = b.attention_backward(&dy, &fused, &y, &logs, &call);
    b.linear_weight_gradient(&normed, &dfused, &mut grads, 0);
    let mut dx = b.linear_input_gradient(&dfused, &qkv);
    b.layer_norm_backward(&dy, &x, &stats, &gain, &mut dx, &mut grads, 0, hidden);
}

#[test]
fn nothing_new_is_taken_after_the_first_step_of_a_shape() {
    for threads in [1, 3] {
        let b = Fast::new(threads, Rounding::Exact);
        step(&b, 200);
        let taken = b.pool().system_bytes();
        assert!(taken > 0);
        for _ in 0..3 {
            step(&b, 200);
        }
        assert_eq!(b.pool().system_bytes(), taken, "{threads} threads");
        assert_eq!(b.held().total(), 0, "every buffer went home");
        let peak = b.held();
        assert!(Kind::ALL.iter().all(|&kind| kind == Kind::Optimizer || peak.peak(kind) > 0));
    }
}
