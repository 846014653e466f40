//! Attention, by the definition, one row of scores at a time.
//!
//! Query `i` of local head `h` sees keys `0..n`: `n = i + 1` under the causal mask, the
//! sequence's length otherwise. With `q`, `k`, `v` of the head (`k` and `v` shared by
//! `heads / kv_heads` query heads), mask factors `m` (0 or `1 / (1 - rate)`):
//!
//! ```text
//!   e_j = scale * q . k_j       L = log sum_j exp(e_j)      p_j = exp(e_j - L)
//!   y   = sum_j m_j p_j v_j
//!   u_j = m_j (dy . v_j)        D = sum_j p_j u_j           de_j = p_j (u_j - D)
//!   dv_j += m_j p_j dy          dq = scale sum_j de_j k_j   dk_j += scale de_j q
//! ```
//!
//! Columns of a row of the fused matrix: `[q of all heads | k of all | v of all]`.

use henge_tensor::{AttentionCall, AttentionShape, Mask, Real, Turn};

/// Where one query of one head stands.
#[derive(Clone, Copy)]
struct Place {
    sample: usize,
    head: usize,
    query: usize,
}

/// Outputs `y [b s, heads d]` and `logs [b s, heads]`, the `L` of each query.
pub fn forward<R: Real>(qkv: &[R], call: &AttentionCall, y: &mut [R], logs: &mut [R]) {
    let shape = call.shape;
    each_query(shape, |place| {
        let n = visible(call, place);
        let scores = scores(qkv, call, place, n);
        let log = log_sum_exp(&scores);
        let row = place.sample * shape.seq + place.query;
        logs[row * shape.heads + place.head] = R::of(log);
        let factors = factors(call, place, n);
        let out = &mut y[(row * shape.heads + place.head) * shape.head_dim..][..shape.head_dim];
        for (c, out) in out.iter_mut().enumerate() {
            let sum = (0..n).map(|j| {
                let v = qkv[value_at(shape, place, j) + c].wide();
                factors[j] * (scores[j] - log).exp() * v
            });
            *out = R::of(sum.sum());
        }
    });
}

/// Overwrites `dqkv` with the gradient of the fused input.
pub fn backward<R: Real>(dy: &[R], qkv: &[R], logs: &[R], call: &AttentionCall, dqkv: &mut [R]) {
    let (shape, mut sums) = (call.shape, vec![0.0f64; dqkv.len()]);
    let d = shape.head_dim;
    each_query(shape, |place| {
        let n = visible(call, place);
        let row = place.sample * shape.seq + place.query;
        let log = logs[row * shape.heads + place.head].wide();
        let dy = &dy[(row * shape.heads + place.head) * d..][..d];
        let factors = factors(call, place, n);
        let p: Vec<f64> = scores(qkv, call, place, n).iter().map(|e| (e - log).exp()).collect();
        let u: Vec<f64> = (0..n).map(|j| factors[j] * dot(dy, &qkv[value_at(shape, place, j)..][..d])).collect();
        let mean: f64 = (0..n).map(|j| p[j] * u[j]).sum();
        let query = query_at(shape, place);
        for j in 0..n {
            let de = call.scale * p[j] * (u[j] - mean);
            let (key, value) = (key_at(shape, place, j), value_at(shape, place, j));
            for c in 0..d {
                sums[query + c] += de * qkv[key + c].wide();
                sums[key + c] += de * qkv[query + c].wide();
                sums[value + c] += factors[j] * p[j] * dy[c].wide();
            }
        }
    });
    for (out, sum) in dqkv.iter_mut().zip(sums) {
        *out = R::of(sum);
    }
}

fn each_query(shape: AttentionShape, mut visit: impl FnMut(Place)) {
    for sample in 0..shape.batch {
        for head in 0..shape.heads {
            for query in 0..shape.seq {
                visit(Place { sample, head, query });
            }
        }
    }
}

fn visible(call: &AttentionCall, place: Place) -> usize {
    match call.mask {
        Mask::Causal => place.query + 1,
        Mask::Lengths(lengths) => lengths[place.sample],
    }
}

fn scores<R: Real>(qkv: &[R], call: &AttentionCall, place: Place, n: usize) -> Vec<f64> {
    let d = call.shape.head_dim;
    let q = &qkv[query_at(call.shape, place)..][..d];
    (0..n).map(|j| call.scale * dot(q, &qkv[key_at(call.shape, place, j)..][..d])).collect()
}

/// Negative infinity for no scores.
fn log_sum_exp(scores: &[f64]) -> f64 {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if scores.is_empty() { max } else { max + scores.iter().map(|e| (e - max).exp()).sum::<f64>().ln() }
}

/// The dropout factors of keys `0..n`.
fn factors(call: &AttentionCall, place: Place, n: usize) -> Vec<f64> {
    let Some(at) = call.dropout else { return vec![1.0; n] };
    let head = (at.first_head + place.head) as u32;
    let sample = at.samples[place.sample];
    let kept = |j: usize| at.dropout.keep(sample, at.layer as u32, head, place.query as u32, j as u32);
    (0..n).map(|j| if kept(j) { f64::from(at.dropout.scale()) } else { 0.0 }).collect()
}

fn query_at(shape: AttentionShape, place: Place) -> usize {
    (place.sample * shape.seq + place.query) * shape.qkv_columns() + place.head * shape.head_dim
}

fn key_at(shape: AttentionShape, place: Place, key: usize) -> usize {
    let kv_head = place.head / (shape.heads / shape.kv_heads);
    (place.sample * shape.seq + key) * shape.qkv_columns() + (shape.heads + kv_head) * shape.head_dim
}

fn value_at(shape: AttentionShape, place: Place, key: usize) -> usize {
    key_at(shape, place, key) + shape.kv_heads * shape.head_dim
}

fn dot<R: Real>(a: &[R], b: &[R]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.wide() * b.wide()).sum()
}

/// Turns the halves of each head of one token: `(a, b) -> (a cos - b sin, b cos + a sin)`.
pub fn rotate<R: Real>(heads: &mut [R], (cos, sin): (&[f32], &[f32]), turn: Turn) {
    let sign = if turn == Turn::Forward { 1.0 } else { -1.0 };
    for head in heads.chunks_exact_mut(2 * cos.len()) {
        let (first, second) = head.split_at_mut(cos.len());
        for pair in 0..cos.len() {
            let (a, b) = (first[pair].wide(), second[pair].wide());
            let (cos, sin) = (f64::from(cos[pair]), sign * f64::from(sin[pair]));
            first[pair] = R::of(a * cos - b * sin);
            second[pair] = R::of(b * cos + a * sin);
        }
    }
}
