//! Attention with its masks, and rotary positions.

use super::{Check, Operation, activation, normals, values};
use crate::{AttentionCall, AttentionShape, Backend, DropoutAt, Mask, RotaryTable, Rotation, Turn};
use henge_random::{Dropout, Site};

struct Rotate {
    heads: usize,
    pairs: usize,
    turn: Turn,
}

impl Operation for Rotate {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let (positions, columns) = ([5, 0, 3, 3, 8], self.heads * 2 * self.pairs + 7);
        let frequencies: Vec<f64> = (0..self.pairs).map(|pair| 0.7_f64.powi(pair as i32)).collect();
        let table = RotaryTable::new(9, &frequencies, 1.1);
        let mut qkv = activation(b, positions.len(), columns, &normals("qkv", positions.len() * columns));
        let rotation = Rotation { table: &table, positions: &positions, heads: self.heads, turn: self.turn };
        b.rotate(&mut qkv, &rotation);
        values(b, &qkv)
    }
}

/// Turns by the position and back.
pub fn rotate(check: &mut impl Check) {
    for (heads, pairs) in [(1, 1), (3, 8), (2, 19), (4, 32)] {
        for turn in [Turn::Forward, Turn::Back] {
            check.check(&format!("{heads} heads of {pairs} pairs"), 1e-6, &Rotate { heads, pairs, turn });
        }
    }
}

struct Attention<'a> {
    shape: AttentionShape,
    mask: Mask<'a>,
    dropout: Option<DropoutAt<'a>>,
}

impl Operation for Attention<'_> {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let shape = self.shape;
        let scale = 1.0 / (shape.head_dim as f64).sqrt();
        let call = AttentionCall { shape, mask: self.mask, scale, dropout: self.dropout };
        let (rows, width) = (shape.batch * shape.seq, shape.heads * shape.head_dim);
        let columns = shape.qkv_columns();
        let qkv: Vec<f64> = normals("qkv", rows * columns).iter().map(|x| 1.5 * x).collect();
        let qkv = activation(b, rows, columns, &qkv);
        let (y, stats) = b.attention(&qkv, &call);
        let dy = activation(b, rows, width, &normals("dy", rows * width));
        let dqkv = b.attention_backward(&dy, &qkv, &y, &stats, &call);
        [values(b, &y), values(b, &dqkv)].concat()
    }
}

/// Causal attention and attention over lengths, one of them zero; grouped heads; with and
/// without dropout.
pub fn attention(check: &mut impl Check) {
    let samples = [5, 1 << 35, 77];
    let dropout = Dropout::new(3, Site::AttentionProbability, 0.2);
    let at = DropoutAt { dropout, samples: &samples, layer: 4, first_head: 2 };
    for (seq, heads, kv_heads, head_dim) in
        [(1, 1, 1, 1), (33, 2, 2, 64), (130, 4, 2, 20), (260, 1, 1, 32), (70, 3, 1, 100)]
    {
        let shape = AttentionShape { batch: 3, seq, heads, kv_heads, head_dim };
        let lengths = [seq, seq.div_ceil(2), 0];
        for mask in [Mask::Causal, Mask::Lengths(&lengths)] {
            for dropout in [None, Some(at)] {
                let what = format!("{shape:?} {mask:?} dropout {}", dropout.is_some());
                check.check(&what, 2e-6, &Attention { shape, mask, dropout });
            }
        }
    }
}
