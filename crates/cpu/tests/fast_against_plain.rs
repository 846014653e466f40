//! Every fast operation against the plain reference in double precision, over awkward
//! shapes, for every instruction set of this machine, and with the same bits for 1, 2 and
//! 3 threads.

mod common;

use common::{activation, flat, normals, wide};
use henge_cpu::{Activation, Fast, Flat, Level, Plain, Rounding};
use henge_random::{Dropout, Site};
use henge_tensor::{
    AdamStep, AttentionCall, AttentionShape, Backend, DropoutAt, Kind, Mask, Matrix, NonLinearity, Real, RotaryTable,
    Rotation, Turn, VocabularyShard, VocabularyStats,
};

/// A CPU backend over `R`, as both of them are.
trait Cpu<R: Real>: Backend<Real = R, Activation = Activation<R>, Buffer = Flat<R>> {}
impl<R: Real, B: Backend<Real = R, Activation = Activation<R>, Buffer = Flat<R>>> Cpu<R> for B {}

/// One operation as a function of a backend to all its numbers.
trait Operation {
    fn on<R: Real, B: Cpu<R>>(&self, backend: &B) -> Vec<f64>;
}

/// Compares the fast forms with the reference: errors relative to the largest number.
fn check(what: &str, tolerance: f64, operation: &impl Operation) {
    let truth = operation.on(&Plain::<f64>::new());
    let largest = truth.iter().filter(|x| x.is_finite()).fold(1e-30f64, |most, x| most.max(x.abs()));
    for level in Level::available() {
        let mut first: Option<Vec<f64>> = None;
        for threads in [1, 2, 3] {
            let got = operation.on(&Fast::with_level(level, threads, Rounding::Exact));
            assert_eq!(got.len(), truth.len(), "{what} {level:?}");
            for (i, (&got, &truth)) in got.iter().zip(&truth).enumerate() {
                let equal = got == truth || (got - truth).abs() <= tolerance * largest;
                assert!(equal, "{what} {level:?}[{i}]: {got}, truly {truth}");
            }
            let same = first.get_or_insert_with(|| got.clone()) == &got;
            assert!(same, "{what} {level:?}: {threads} threads give other bits");
        }
    }
}

/// Sizes of matrices: one row, one column, multiples of nothing.
const SHAPES: [(usize, usize); 7] = [(1, 1), (1, 50), (37, 1), (14, 32), (3, 17), (70, 129), (131, 600)];

struct Linear {
    rows: usize,
    inputs: usize,
    outputs: usize,
    f: NonLinearity,
}

impl Operation for Linear {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
        let Self { rows, inputs, outputs, f } = *self;
        let x = activation(b, rows, inputs, &normals("x", rows * inputs));
        let parameters = flat(b, &normals("parameters", 3 + outputs * inputs + outputs));
        let weight = b.prepare(&parameters, 3, outputs, inputs);
        let bias = b.prepare_vector(&parameters, 3 + outputs * inputs, outputs);
        let (y, pre) = b.linear_activated(&x, &weight, Some(&bias), f);
        let dy = activation(b, y.rows(), y.columns(), &normals("dy", y.rows() * y.columns()));
        let mut all = wide(y.values());
        let dpre = b.activation_backward(dy, &pre, f);
        let mut grads = flat(b, &normals("grads", outputs * inputs + outputs + 1));
        b.linear_weight_gradient(&x, &dpre, &mut grads, 1);
        b.bias_gradient(&dpre, &mut grads, 1 + outputs * inputs);
        let dx = b.linear_input_gradient(&dpre, &weight);
        for values in [pre.values(), dpre.values(), grads.values(), dx.values()] {
            all.extend(wide(values));
        }
        all.extend(wide(b.linear(&x, &weight, None).values()));
        all
    }
}

#[test]
fn linear() {
    for (rows, inputs) in SHAPES {
        for (outputs, f) in [
            (2, NonLinearity::SwiGlu),
            (45, NonLinearity::Gelu),
            (64, NonLinearity::GeluTanh),
            (19, NonLinearity::Tanh),
        ] {
            check(&format!("{rows} x {inputs} x {outputs} {f:?}"), 2e-6, &Linear { rows, inputs, outputs, f });
        }
    }
    check("deep", 3e-6, &Linear { rows: 530, inputs: 1030, outputs: 40, f: NonLinearity::GeluTanh });
}

struct Norm {
    rows: usize,
    columns: usize,
}

impl Operation for Norm {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
        let Self { rows, columns } = *self;
        let x: Vec<f64> = normals("x", rows * columns).iter().map(|x| 3.0 + x).collect();
        let x = activation(b, rows, columns, &x);
        let parameters = flat(b, &normals("parameters", 2 * columns));
        let gain = b.prepare_vector(&parameters, 0, columns);
        let bias = b.prepare_vector(&parameters, columns, columns);
        let (y, stats) = b.layer_norm(&x, &gain, &bias, 1e-5);
        let dy = activation(b, rows, columns, &normals("dy", rows * columns));
        let mut dx = activation(b, rows, columns, &normals("dx", rows * columns));
        let mut grads = flat(b, &normals("grads", 2 * columns));
        b.layer_norm_backward(&dy, &x, &stats, &gain, &mut dx, &mut grads, columns, 0);
        [y.values(), dx.values(), grads.values()].map(wide).concat()
    }
}

#[test]
fn layer_norm() {
    for (rows, columns) in SHAPES {
        // One column has no variance: its norm is its bias, and gradients meet 1 / sqrt(eps).
        let tolerance = if columns == 1 { 1e-4 } else { 3e-6 };
        check(&format!("{rows} x {columns}"), tolerance, &Norm { rows, columns });
    }
}

struct RmsNorm {
    rows: usize,
    columns: usize,
}

impl Operation for RmsNorm {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
        let Self { rows, columns } = *self;
        let x = activation(b, rows, columns, &normals("x", rows * columns));
        let gain = b.prepare_vector(&flat(b, &normals("gain", columns)), 0, columns);
        let (y, stats) = b.rms_norm(&x, &gain, 1e-5);
        let dy = activation(b, rows, columns, &normals("dy", rows * columns));
        let mut dx = activation(b, rows, columns, &normals("dx", rows * columns));
        let mut grads = flat(b, &normals("grads", columns + 3));
        b.rms_norm_backward(&dy, &x, &stats, &gain, &mut dx, &mut grads, 3);
        [y.values(), dx.values(), grads.values()].map(wide).concat()
    }
}

#[test]
fn rms_norm() {
    for (rows, columns) in SHAPES {
        // One column is its own root mean square: gradients meet 1 / x.
        let tolerance = if columns == 1 { 1e-4 } else { 3e-6 };
        check(&format!("{rows} x {columns}"), tolerance, &RmsNorm { rows, columns });
    }
}

struct Rotate {
    heads: usize,
    pairs: usize,
    turn: Turn,
}

impl Operation for Rotate {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
        let (positions, columns) = ([5, 0, 3, 3, 8], self.heads * 2 * self.pairs + 7);
        let frequencies: Vec<f64> = (0..self.pairs).map(|pair| 0.7_f64.powi(pair as i32)).collect();
        let table = RotaryTable::new(9, &frequencies, 1.1);
        let mut qkv = activation(b, positions.len(), columns, &normals("qkv", positions.len() * columns));
        let rotation = Rotation { table: &table, positions: &positions, heads: self.heads, turn: self.turn };
        b.rotate(&mut qkv, &rotation);
        wide(qkv.values())
    }
}

#[test]
fn rotate() {
    for (heads, pairs) in [(1, 1), (3, 8), (2, 19), (4, 32)] {
        for turn in [Turn::Forward, Turn::Back] {
            check(&format!("{heads} heads of {pairs} pairs"), 1e-6, &Rotate { heads, pairs, turn });
        }
    }
}

struct Rows;

impl Operation for Rows {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
        let mut x = activation(b, 40, 21, &normals("x", 40 * 21));
        let rows: Vec<usize> = (0..33).map(|i| i * 7 % 40).collect();
        let taken = b.take_rows(&x, &rows);
        b.add_rows(&mut x, &rows, &taken);
        [taken.values(), x.values()].map(wide).concat()
    }
}

#[test]
fn rows_taken_and_added() {
    check("33 of 40", 0.0, &Rows);
}

struct Attention<'a> {
    shape: AttentionShape,
    mask: Mask<'a>,
    dropout: Option<DropoutAt<'a>>,
}

impl Operation for Attention<'_> {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
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
        [y.values(), dqkv.values()].map(wide).concat()
    }
}

#[test]
fn attention() {
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
                check(&what, 2e-6, &Attention { shape, mask, dropout });
            }
        }
    }
}

struct Streams<'a> {
    columns: usize,
    at: DropoutAt<'a>,
}

impl Operation for Streams<'_> {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
        let (columns, rows) = (self.columns, self.at.samples.len() * 9);
        let matrix = |name| activation(b, rows, columns, &normals(name, rows * columns));
        let bias = b.prepare_vector(&flat(b, &normals("bias", columns)), 0, columns);
        let (residual, mut x) = (matrix("residual"), matrix("x"));
        let mut all = wide(b.add_branch(&residual, matrix("branch"), Some(&bias), Some(&self.at)).values());
        all.extend(wide(b.add_branch(&residual, matrix("branch"), None, None).values()));
        b.dropout(&mut x, &self.at);
        all.extend(wide(x.values()));
        b.add(&mut x, &residual);
        all.extend(wide(b.duplicate(&x).values()));
        all.extend(wide(b.zeroed(rows, columns).values()));
        all
    }
}

#[test]
fn residual_stream() {
    let dropout = Dropout::new(3, Site::AttentionResidual, 0.5);
    let at = DropoutAt { dropout, samples: &[1, 1 << 50, 3], layer: 7, first_head: 0 };
    for columns in [1, 17, 64, 301] {
        check(&format!("{columns} columns"), 2e-7, &Streams { columns, at });
    }
}

struct Embedding {
    table_rows: usize,
    columns: usize,
}

impl Operation for Embedding {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
        let Self { table_rows, columns } = *self;
        let ids: Vec<u32> = (0..100).map(|i| i * i % 1200).collect();
        let table = b.prepare(&flat(b, &normals("table", table_rows * columns)), 0, table_rows, columns);
        let dy = activation(b, ids.len(), columns, &normals("dy", ids.len() * columns));
        let mut grads = flat(b, &normals("grads", 5 + table_rows * columns));
        b.lookup_gradient(&dy, 100, table_rows, &ids, &mut grads, 5);
        [b.lookup(&table, 100, &ids).values(), grads.values()].map(wide).concat()
    }
}

#[test]
fn embedding() {
    for (table_rows, columns) in [(0, 8), (1, 1), (700, 37), (1100, 130)] {
        check(&format!("{table_rows} x {columns}"), 1e-6, &Embedding { table_rows, columns });
    }
}

struct Vocabulary {
    shards: Vec<usize>,
    inputs: usize,
    tokens: usize,
}

impl Operation for Vocabulary {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
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
            all.extend(wide(dx.values()));
        }
        all.extend(wide(grads.values()));
        all
    }
}

/// The reductions of a tensor group over the shards' statistics.
fn reduce<R: Real, B: Cpu<R>>(b: &B, mut parts: Vec<&mut VocabularyStats<Flat<R>>>) -> VocabularyStats<Flat<R>> {
    let n = parts[0].max.values().len();
    let fold = |start: f64, of: &dyn Fn(f64, usize) -> f64| (0..n).map(|i| of(start, i)).collect::<Vec<f64>>();
    let max = fold(f64::NEG_INFINITY, &|start, i| {
        parts.iter().fold(start, |most, part| most.max(part.max.values()[i].wide()))
    });
    for part in &mut parts {
        let local = std::mem::replace(&mut part.max, flat(b, &max));
        b.vocabulary_rescale(part, &local);
    }
    let sum = fold(0.0, &|_, i| parts.iter().map(|part| part.sum.values()[i].wide()).sum());
    let target = fold(0.0, &|_, i| parts.iter().map(|part| part.target.values()[i].wide()).sum());
    VocabularyStats { max: flat(b, &max), sum: flat(b, &sum), target: flat(b, &target) }
}

#[test]
fn vocabulary_loss() {
    for (shards, inputs, tokens) in [(vec![1], 1, 1), (vec![40, 0, 33], 24, 21), (vec![700, 2500], 33, 35)] {
        check(&format!("{shards:?} {inputs} {tokens}"), 3e-6, &Vocabulary { shards, inputs, tokens });
    }
}

struct Optimizer {
    len: usize,
}

impl Operation for Optimizer {
    fn on<R: Real, B: Cpu<R>>(&self, b: &B) -> Vec<f64> {
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
        let mut all = [values.values(), first.values(), second.values()].map(wide).concat();
        all.push(b.sum_of_squares(&grads, range) / len as f64);
        all
    }
}

#[test]
fn optimizer() {
    for len in [1, 31, 100_003] {
        check(&format!("{len} numbers"), 1e-6, &Optimizer { len });
    }
}

/// Without gradients the moments shrink to zero and do not stay at the smallest subnormal
/// number, where each operation on them would be slow for ever.
#[test]
fn moments_without_gradients_end_at_zero() {
    let b = Fast::new(1, Rounding::Exact);
    let (mut values, grads) = (flat(&b, &normals("values", 40)), b.zeros(40, Kind::Gradient));
    let (mut first, mut second) = (flat(&b, &normals("first", 40)), flat(&b, &[0.5; 40]));
    for update in 1..2500 {
        let step =
            AdamStep { lr: 0.0, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.0, update, gradient_scale: 1.0 };
        b.adam(&mut values, &grads, &mut first, &mut second, 0..40, &step);
    }
    assert!(first.values().iter().chain(second.values()).all(|&moment| moment == 0.0));
}

/// With rounded operands both forms agree to a unit in the last place of the precision,
/// and differ from the exact form by about that much.
#[test]
fn rounded_operands() {
    for (rounding, ulp) in [(Rounding::Bf16, 1.0 / 128.0), (Rounding::F16, 1.0 / 1024.0)] {
        let operation = Linear { rows: 20, inputs: 70, outputs: 30, f: NonLinearity::GeluTanh };
        let exact = operation.on(&Plain::<f32>::new());
        let plain = operation.on(&Plain::<f32>::rounded(rounding));
        let fast = operation.on(&Fast::new(2, rounding));
        let largest = plain.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let worst = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst(&plain, &fast) <= ulp * largest, "{rounding:?}: {}", worst(&plain, &fast));
        assert!(worst(&plain, &exact) >= ulp / 16.0, "{rounding:?} rounds nothing");
        // Products' outputs are numbers of the precision.
        let mut again: Vec<f64> = fast[..20 * 30].to_vec();
        rounding.apply(&mut again);
        assert_eq!(again, fast[..20 * 30], "{rounding:?}");
    }
}
