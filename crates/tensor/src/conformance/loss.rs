//! The vocabulary loss over shards, and the optimizer.

use super::{Check, Operation, activation, flat, normals, numbers, values};
use crate::{AdamStep, Backend, Kind, VocabularyShard, VocabularyStats};

struct Vocabulary {
    shards: Vec<usize>,
    inputs: usize,
    tokens: usize,
}

impl Operation for Vocabulary {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let (inputs, tokens, vocabulary) = (self.inputs, self.tokens, self.shards.iter().sum::<usize>());
        let targets: Vec<i64> =
            (0..tokens as i64).map(|i| if i % 5 == 4 { -1 } else { i * 31 % vocabulary as i64 }).collect();
        let rows = (2, 2 + tokens);
        let x = activation(b, tokens + 3, inputs, &normals("x", (tokens + 3) * inputs));
        let parameters = flat(b, &normals("parameters", vocabulary * (inputs + 1)));
        let mut first_row = 0;
        let mut parts = Vec::new();
        for &size in &self.shards {
            let shard = VocabularyShard { first_row, rows, targets: &targets };
            let table = b.prepare(&parameters, first_row * inputs, size, inputs);
            let bias = b.prepare_vector(&parameters, vocabulary * inputs + first_row, size);
            let (logits, stats) = b.vocabulary_sweep(&x, &table, Some(&bias), &shard);
            parts.push((shard, table, logits, stats));
            first_row += size;
        }
        let logits: Vec<f64> = parts.iter().flat_map(|part| b.logits_values(&part.2)).map(f64::from).collect();
        let stats = reduce(b, parts.iter_mut().map(|part| &mut part.3).collect());
        let mut all = [logits, b.vocabulary_losses(&stats, &targets)].concat();
        let mut grads = flat(b, &normals("grads", vocabulary * (inputs + 1)));
        for (shard, table, logits, _) in parts {
            let mut dx = b.zeroed(tokens + 3, inputs);
            let (at, bias_at) = (shard.first_row * inputs, vocabulary * inputs + shard.first_row);
            b.vocabulary_gradient(logits, &stats, &x, &table, &shard, 0.4, &mut dx, &mut grads, at, Some(bias_at));
            all.extend(values(b, &dx));
        }
        all.extend(numbers(&grads));
        all
    }
}

/// The reductions of a tensor group over the shards' statistics.
fn reduce<B: Backend>(b: &B, mut parts: Vec<&mut VocabularyStats<B::Buffer>>) -> VocabularyStats<B::Buffer> {
    let of_parts = |parts: &[&mut VocabularyStats<B::Buffer>], of: fn(&VocabularyStats<B::Buffer>) -> &B::Buffer| {
        parts.iter().map(|part| numbers(of(part))).collect::<Vec<_>>()
    };
    let fold = |lists: Vec<Vec<f64>>, start: f64, f: fn(f64, f64) -> f64| {
        let of = |i| lists.iter().map(|list: &Vec<f64>| list[i]).fold(start, f);
        (0..lists[0].len()).map(of).collect::<Vec<f64>>()
    };
    let max = fold(of_parts(&parts, |part| &part.max), f64::NEG_INFINITY, f64::max);
    for part in &mut parts {
        let local = std::mem::replace(&mut part.max, flat(b, &max));
        b.vocabulary_rescale(part, &local);
    }
    let sum = fold(of_parts(&parts, |part| &part.sum), 0.0, |a, b| a + b);
    let target = fold(of_parts(&parts, |part| &part.target), 0.0, |a, b| a + b);
    VocabularyStats { max: flat(b, &max), sum: flat(b, &sum), target: flat(b, &target) }
}

/// Losses and gradients over one shard, over three of which one is empty, and over two.
pub fn vocabulary_loss(check: &mut impl Check) {
    for (shards, inputs, tokens) in [(vec![1], 1, 1), (vec![40, 0, 33], 24, 21), (vec![700, 2500], 33, 35)] {
        check.check(&format!("{shards:?} {inputs} {tokens}"), 3e-6, &Vocabulary { shards, inputs, tokens });
    }
}

struct Optimizer {
    len: usize,
}

impl Operation for Optimizer {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let len = self.len;
        let (mut values, mut grads) = (flat(b, &normals("values", len)), flat(b, &normals("grads", len)));
        let (mut first, mut second) = (b.zeros(len, Kind::Optimizer), b.zeros(len, Kind::Optimizer));
        let range = len / 3..len;
        b.scale(&mut grads, range.clone(), 0.3);
        for update in 1..4 {
            let step = AdamStep {
                lr: 0.1,
                beta1: 0.9,
                beta2: 0.95,
                eps: 1e-8,
                weight_decay: 0.1,
                update,
                gradient_scale: 0.5,
            };
            b.adam(&mut values, &grads, &mut first, &mut second, range.clone(), &step);
        }
        let mut all = [&values, &first, &second, &grads].map(numbers).concat();
        all.push(b.sum_of_squares(&grads, range) / len as f64);
        all
    }
}

/// AdamW over a range, the sum of squares, and a scale.
pub fn optimizer(check: &mut impl Check) {
    for len in [1, 31, 100_003] {
        check.check(&format!("{len} numbers"), 1e-6, &Optimizer { len });
    }
}
