//! Attention over a cache, in pieces, against attention over the whole sequence at once.

mod common;

use common::{activation, wide};
use henge_cpu::{Activation, Fast, Flat, Level, Plain, Rounding};
use henge_tensor::conformance::normals;
use henge_tensor::{AttentionCall, AttentionShape, Backend, CachedAttention, CachedRun, Kind, Mask};

const SHAPE: AttentionShape = AttentionShape { batch: 3, seq: 41, heads: 4, kv_heads: 2, head_dim: 20 };
const SLOTS: [usize; 3] = [2, 0, 3];

/// New tokens of each sequence in each step; some steps leave a sequence out.
const STEPS: [[usize; 3]; 6] = [[13, 1, 0], [1, 1, 30], [0, 20, 1], [1, 1, 1], [25, 1, 8], [1, 17, 1]];

/// `[b s, heads d]`, gathered from the steps.
fn in_pieces<B>(backend: &B, qkv: &[f64]) -> Vec<f64>
where
    B: Backend<Real = f32, Activation = Activation<f32>, Buffer = Flat<f32>>,
{
    let (width, out_width) = (SHAPE.qkv_columns(), SHAPE.heads * SHAPE.head_dim);
    let seq = SHAPE.seq;
    let mut cache = backend.zeros(4 * call(&[]).slot_len(), Kind::Activation);
    let (mut past, mut y) = ([0; 3], vec![f64::NAN; SHAPE.batch * seq * out_width]);
    for step in STEPS {
        let (mut runs, mut rows, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (sample, new) in step.into_iter().enumerate().filter(|(_, new)| *new > 0) {
            runs.push(CachedRun { slot: SLOTS[sample], past: past[sample], new });
            let first = sample * seq + past[sample];
            rows.extend_from_slice(&qkv[first * width..(first + new) * width]);
            places.extend(first..first + new);
            past[sample] += new;
        }
        let input = activation(backend, places.len(), width, &rows);
        let out = backend.attention_cached(&input, &mut cache, &call(&runs));
        for (out, place) in wide(out.values()).chunks_exact(out_width).zip(places) {
            y[place * out_width..][..out_width].copy_from_slice(out);
        }
    }
    assert_eq!(past, [seq; 3], "the steps cover the sequences");
    y
}

fn call(runs: &[CachedRun]) -> CachedAttention<'_> {
    let AttentionShape { heads, kv_heads, head_dim, seq, .. } = SHAPE;
    CachedAttention { heads, kv_heads, head_dim, capacity: seq + 3, scale: 0.3, runs }
}

fn at_once(qkv: &[f64]) -> Vec<f64> {
    let plain = Plain::<f64>::new();
    let input = activation(&plain, SHAPE.batch * SHAPE.seq, SHAPE.qkv_columns(), qkv);
    let call = AttentionCall { shape: SHAPE, mask: Mask::Causal, scale: 0.3, dropout: None };
    wide(plain.attention(&input, &call).0.values())
}

fn assert_near(found: &[f64], expected: &[f64], what: &str) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 2e-6 * (1.0 + expected.abs()), "{what}, {i}: {found}, not {expected}");
    }
}

#[test]
fn pieces_of_any_length_give_what_the_whole_gives() {
    let qkv = normals("qkv", SHAPE.batch * SHAPE.seq * SHAPE.qkv_columns());
    let expected = at_once(&qkv);
    assert_near(&in_pieces(&Plain::<f32>::new(), &qkv), &expected, "plain");
    for level in Level::available() {
        for threads in [1, 3] {
            let fast = Fast::with_level(level, threads, Rounding::Exact);
            assert_near(&in_pieces(&fast, &qkv), &expected, &format!("{level:?}, {threads} threads"));
        }
    }
}
