//! Every backward of the reference against central differences of its forward, in
//! double precision.

mod common;

use common::{activation, wide};
use henge_cpu::Plain;
use henge_random::{Dropout, Site};
use henge_tensor::conformance::{flat, normals};
use henge_tensor::{
    AttentionCall, AttentionShape, Backend, DropoutAt, Mask, NonLinearity, RotaryTable, Rotation, Turn,
    VocabularyShard, VocabularyStats,
};

type Reference = Plain<f64>;

/// Compares `gradient` with differences of `loss` around `at`.
fn check(what: &str, at: &[f64], gradient: &[f64], loss: impl Fn(&[f64]) -> f64) {
    assert_eq!(at.len(), gradient.len(), "{what}");
    let (step, mut point) = (1e-5, at.to_vec());
    for (i, &analytic) in gradient.iter().enumerate() {
        point[i] = at[i] + step;
        let above = loss(&point);
        point[i] = at[i] - step;
        let below = loss(&point);
        point[i] = at[i];
        let numeric = (above - below) / (2.0 * step);
        let error = (numeric - analytic).abs() / (1.0 + analytic.abs());
        assert!(error < 1e-8, "{what}[{i}]: {analytic} by backward, {numeric} by differences");
    }
}

/// The scalar whose gradient with respect to `y` is `weights`.
fn weighted(y: &[f64], weights: &[f64]) -> f64 {
    y.iter().zip(weights).map(|(y, w)| y * w).sum()
}

#[test]
fn layer_norm() {
    let (b, rows, columns) = (Reference::new(), 3, 7);
    let (x, gain, bias) = (normals("x", rows * columns), normals("gain", columns), normals("bias", columns));
    let weights = normals("weights", rows * columns);
    let forward = |x: &[f64], gain: &[f64], bias: &[f64]| {
        let (gain, bias) = (gain.to_vec(), bias.to_vec());
        b.layer_norm(&activation(&b, rows, columns, x), &gain, &bias, 1e-5)
    };
    let loss = |x: &[f64], gain: &[f64], bias: &[f64]| weighted(forward(x, gain, bias).0.values(), &weights);
    let (_, stats) = forward(&x, &gain, &bias);
    // The input gradient adds to the stream's, the parameters' to the buffer's.
    let mut dx = activation(&b, rows, columns, &vec![10.0; rows * columns]);
    let mut grads = flat(&b, &vec![1.0; 2 * columns]);
    let dy = activation(&b, rows, columns, &weights);
    b.layer_norm_backward(&dy, &activation(&b, rows, columns, &x), &stats, &gain, &mut dx, &mut grads, 0, columns);
    let dx: Vec<f64> = dx.values().iter().map(|d| d - 10.0).collect();
    let grads: Vec<f64> = grads.values().iter().map(|d| d - 1.0).collect();
    check("x", &x, &dx, |x| loss(x, &gain, &bias));
    check("gain", &gain, &grads[..columns], |gain| loss(&x, gain, &bias));
    check("bias", &bias, &grads[columns..], |bias| loss(&x, &gain, bias));
}

#[test]
fn rms_norm() {
    let (b, rows, columns) = (Reference::new(), 3, 7);
    let (x, gain) = (normals("x", rows * columns), normals("gain", columns));
    let weights = normals("weights", rows * columns);
    let forward = |x: &[f64], gain: &[f64]| b.rms_norm(&activation(&b, rows, columns, x), &gain.to_vec(), 1e-5);
    let loss = |x: &[f64], gain: &[f64]| weighted(forward(x, gain).0.values(), &weights);
    let (_, stats) = forward(&x, &gain);
    let mut dx = activation(&b, rows, columns, &vec![10.0; rows * columns]);
    let mut grads = flat(&b, &vec![1.0; columns]);
    let dy = activation(&b, rows, columns, &weights);
    b.rms_norm_backward(&dy, &activation(&b, rows, columns, &x), &stats, &gain, &mut dx, &mut grads, 0);
    let dx: Vec<f64> = dx.values().iter().map(|d| d - 10.0).collect();
    let grads: Vec<f64> = grads.values().iter().map(|d| d - 1.0).collect();
    check("x", &x, &dx, |x| loss(x, &gain));
    check("gain", &gain, &grads, |gain| loss(&x, gain));
}

/// Turned queries and keys: their products depend on the distance of their positions alone
/// (2104.09864, equation 16), and turning back is the gradient of turning.
#[test]
fn rotary_positions() {
    let (b, pairs, amplitude) = (Reference::new(), 4, 1.25);
    let frequencies: Vec<f64> = (0..pairs).map(|pair| 10_f64.powf(-(pair as f64) / 2.0)).collect();
    let table = RotaryTable::new(64, &frequencies, amplitude);
    let turned = |x: &[f64], position: u32, turn| {
        let mut x = activation(&b, 1, 2 * pairs, x);
        b.rotate(&mut x, &Rotation { table: &table, positions: &[position], heads: 1, turn });
        x.values().to_vec()
    };
    let (q, k, weights) = (normals("q", 2 * pairs), normals("k", 2 * pairs), normals("weights", 2 * pairs));
    let product = |i, j| weighted(&turned(&q, i, Turn::Forward), &turned(&k, j, Turn::Forward));
    for (i, j) in [(9, 4), (25, 20), (63, 58)] {
        assert!((product(i, j) - product(5, 0)).abs() < 1e-5, "positions {i} and {j}"); // a table of f32
    }
    assert!((product(0, 0) - amplitude * amplitude * weighted(&q, &k)).abs() < 1e-12);
    check("q", &q, &turned(&weights, 17, Turn::Back), |q| weighted(&turned(q, 17, Turn::Forward), &weights));
}

#[test]
fn linear() {
    let (b, rows, inputs, outputs) = (Reference::new(), 4, 3, 5);
    let (x, w) = (normals("x", rows * inputs), normals("w", outputs * inputs));
    let (bias, weights) = (normals("bias", outputs), normals("weights", rows * outputs));
    let loss = |x: &[f64], w: &[f64], bias: &[f64]| {
        let w = b.prepare(&flat(&b, w), 0, outputs, inputs);
        weighted(b.linear(&activation(&b, rows, inputs, x), &w, Some(&bias.to_vec())).values(), &weights)
    };
    let (xs, dy) = (activation(&b, rows, inputs, &x), activation(&b, rows, outputs, &weights));
    let dx = b.linear_input_gradient(&dy, &b.prepare(&flat(&b, &w), 0, outputs, inputs));
    let mut grads = flat(&b, &vec![0.0; outputs * inputs + outputs]);
    b.linear_weight_gradient(&xs, &dy, &mut grads, 0);
    b.bias_gradient(&dy, &mut grads, outputs * inputs);
    check("x", &x, dx.values(), |x| loss(x, &w, &bias));
    check("w", &w, &grads.values()[..outputs * inputs], |w| loss(&x, w, &bias));
    check("bias", &bias, &grads.values()[outputs * inputs..], |bias| loss(&x, &w, bias));
}

#[test]
fn non_linearities() {
    for f in [NonLinearity::GeluTanh, NonLinearity::Gelu, NonLinearity::SwiGlu, NonLinearity::Tanh] {
        let (b, rows, width) = (Reference::new(), 5, 6);
        let columns = if f == NonLinearity::SwiGlu { width / 2 } else { width };
        let pre: Vec<f64> = normals("pre", rows * width).iter().map(|x| 2.0 * x).collect();
        let (weights, no_bias) = (normals("weights", rows * columns), vec![0.0; width]);
        let identity: Vec<f64> = (0..width * width).map(|i| f64::from(i % (width + 1) == 0)).collect();
        let identity = b.prepare(&flat(&b, &identity), 0, width, width);
        let loss = |pre: &[f64]| {
            let (y, _) = b.linear_activated(&activation(&b, rows, width, pre), &identity, Some(&no_bias), f);
            weighted(y.values(), &weights)
        };
        let dy = activation(&b, rows, columns, &weights);
        let dpre = b.activation_backward(dy, &activation(&b, rows, width, &pre), f);
        check(&format!("{f:?}"), &pre, dpre.values(), loss);
    }
}

#[test]
fn branch_and_dropout() {
    let (b, samples, seq, columns) = (Reference::new(), [3u64, 1 << 40], 3, 11);
    let rows = samples.len() * seq;
    let dropout = Dropout::new(9, Site::MlpResidual, 0.4);
    let at = DropoutAt { dropout, samples: &samples, layer: 2, first_head: 0 };
    let (x, bias) = (normals("x", rows * columns), normals("bias", columns));
    let (residual, weights) = (normals("residual", rows * columns), normals("weights", rows * columns));
    let loss = |x: &[f64], bias: &[f64], residual: &[f64]| {
        let residual = activation(&b, rows, columns, residual);
        let y = b.add_branch(&residual, activation(&b, rows, columns, x), Some(&bias.to_vec()), Some(&at));
        weighted(y.values(), &weights)
    };
    let mut dx = activation(&b, rows, columns, &weights);
    b.dropout(&mut dx, &at);
    assert!(dx.values().contains(&0.0), "a rate of 0.4 drops something");
    let mut dbias = flat(&b, &vec![0.0; columns]);
    b.bias_gradient(&dx, &mut dbias, 0);
    check("x", &x, dx.values(), |x| loss(x, &bias, &residual));
    check("bias", &bias, dbias.values(), |bias| loss(&x, bias, &residual));
    check("residual", &residual, &weights, |residual| loss(&x, &bias, residual));
}

#[test]
fn embedding() {
    let (b, columns, ids) = (Reference::new(), 3, [4u32, 6, 2, 4, 9]);
    // The shard holds rows 4..7: two of the ids are another rank's.
    let (first, rows) = (4, 3);
    let (table, weights) = (normals("table", rows * columns), normals("weights", ids.len() * columns));
    let loss = |table: &[f64]| {
        let table = b.prepare(&flat(&b, table), 0, rows, columns);
        weighted(b.lookup(&table, first, &ids).values(), &weights)
    };
    let mut grads = flat(&b, &vec![0.0; rows * columns]);
    b.lookup_gradient(&activation(&b, ids.len(), columns, &weights), first, rows, &ids, &mut grads, 0);
    check("table", &table, grads.values(), loss);
}

fn attention(mask: Mask, shape: AttentionShape, dropout: Option<DropoutAt>) {
    let b = Reference::new();
    let call = AttentionCall { shape, mask, scale: 0.6, dropout };
    let (rows, width) = (shape.batch * shape.seq, shape.heads * shape.head_dim);
    let (qkv, weights) = (normals("qkv", rows * shape.qkv_columns()), normals("weights", rows * width));
    let forward = |qkv: &[f64]| b.attention(&activation(&b, rows, shape.qkv_columns(), qkv), &call);
    let (y, stats) = forward(&qkv);
    let inputs = activation(&b, rows, shape.qkv_columns(), &qkv);
    let dqkv = b.attention_backward(&activation(&b, rows, width, &weights), &inputs, &y, &stats, &call);
    check("qkv", &qkv, dqkv.values(), |qkv| weighted(forward(qkv).0.values(), &weights));
}

#[test]
fn attention_causal_with_grouped_heads() {
    let shape = AttentionShape { batch: 2, seq: 5, heads: 4, kv_heads: 2, head_dim: 3 };
    attention(Mask::Causal, shape, None);
}

#[test]
fn attention_over_lengths_with_dropout() {
    let shape = AttentionShape { batch: 3, seq: 6, heads: 2, kv_heads: 2, head_dim: 2 };
    let dropout = Dropout::new(1, Site::AttentionProbability, 0.3);
    let at = DropoutAt { dropout, samples: &[8, 9, 1 << 33], layer: 1, first_head: 3 };
    attention(Mask::Lengths(&[4, 6, 0]), shape, Some(at));
}

/// The reductions of a tensor group over the shards' statistics.
fn reduce(b: &Reference, parts: &mut [VocabularyStats<henge_cpu::Flat<f64>>]) {
    let n = parts[0].max.values().len();
    let most = |i: usize| parts.iter().map(|part| part.max.values()[i]).fold(f64::NEG_INFINITY, f64::max);
    let max: Vec<f64> = (0..n).map(most).collect();
    for part in parts.iter_mut() {
        let local = std::mem::replace(&mut part.max, flat(b, &max));
        b.vocabulary_rescale(part, &local);
    }
    let total = |of: &dyn Fn(&VocabularyStats<henge_cpu::Flat<f64>>) -> Vec<f64>| {
        let parts: Vec<_> = parts.iter().map(of).collect();
        (0..n).map(|i| parts.iter().map(|part| part[i]).sum()).collect::<Vec<f64>>()
    };
    let (sum, target) = (total(&|part| wide(part.sum.values())), total(&|part| wide(part.target.values())));
    for part in parts {
        part.sum = flat(b, &sum);
        part.target = flat(b, &target);
    }
}

/// Shards of the vocabulary as `(first row, rows)`, one of them empty.
const SHARDS: [(usize, usize); 3] = [(0, 4), (4, 3), (7, 0)];

#[test]
fn vocabulary_loss_over_shards() {
    let (b, inputs, vocabulary, tokens) = (Reference::new(), 3, 7, 5);
    // Tokens 1..5 of an activation of 6 are scored by this call, one of them not at all.
    let (rows, targets) = ((1, 1 + tokens), [0i64, 6, -1, 4, 3]);
    let (x, table) = (normals("x", (tokens + 1) * inputs), normals("table", vocabulary * inputs));
    let (bias, scale) = (normals("head bias", vocabulary), 0.7);
    let shard = |first_row| VocabularyShard { first_row, rows, targets: &targets };
    let sweep = |x: &[f64], table: &[f64], bias: &[f64]| {
        let x = activation(&b, tokens + 1, inputs, x);
        let parts = SHARDS.map(|(first, size)| {
            let part = b.prepare(&flat(&b, table), first * inputs, size, inputs);
            let bias = bias[first..first + size].to_vec();
            let (logits, stats) = b.vocabulary_sweep(&x, &part, Some(&bias), &shard(first));
            (part, logits, stats)
        });
        let mut weights = Vec::new();
        let (mut logits, mut stats) = (Vec::new(), Vec::new());
        for (weight, logit, stat) in parts {
            weights.push(weight);
            logits.push(logit);
            stats.push(stat);
        }
        reduce(&b, &mut stats);
        (weights, logits, stats)
    };
    let losses = |x: &[f64], table: &[f64], bias: &[f64]| {
        let (_, _, stats) = sweep(x, table, bias);
        b.vocabulary_losses(&stats[2], &targets)
    };
    let by_definition = |token: usize, target: usize| {
        let x = &x[(token + 1) * inputs..][..inputs];
        let logit = |row: usize| bias[row] + weighted(x, &table[row * inputs..][..inputs]);
        (0..vocabulary).map(|row| logit(row).exp()).sum::<f64>().ln() - logit(target)
    };
    for (token, (loss, &target)) in losses(&x, &table, &bias).iter().zip(&targets).enumerate() {
        let expected = usize::try_from(target).map_or(0.0, |target| by_definition(token, target));
        assert!((loss - expected).abs() < 1e-12, "token {token}: {loss}, by definition {expected}");
    }

    let (weights, logits, stats) = sweep(&x, &table, &bias);
    let mut grads = flat(&b, &vec![0.0; vocabulary * inputs + vocabulary]);
    let mut dx_sum = vec![0.0; (tokens + 1) * inputs];
    for (i, logits) in logits.into_iter().enumerate() {
        let (first, xs) = (SHARDS[i].0, activation(&b, tokens + 1, inputs, &x));
        let mut dx = activation(&b, tokens + 1, inputs, &vec![0.0; (tokens + 1) * inputs]);
        let (at, bias_at) = (first * inputs, vocabulary * inputs + first);
        let shard = shard(first);
        b.vocabulary_gradient(
            logits,
            &stats[i],
            &xs,
            &weights[i],
            &shard,
            scale,
            &mut dx,
            &mut grads,
            at,
            Some(bias_at),
        );
        dx_sum.iter_mut().zip(dx.values()).for_each(|(sum, dx)| *sum += dx);
    }
    let loss = |x: &[f64], table: &[f64], bias: &[f64]| scale * losses(x, table, bias).iter().sum::<f64>();
    check("x", &x, &dx_sum, |x| loss(x, &table, &bias));
    check("table", &table, &grads.values()[..vocabulary * inputs], |table| loss(&x, table, &bias));
    check("bias", &bias, &grads.values()[vocabulary * inputs..], |bias| loss(&x, &table, bias));
}
