//! The plain reference: every operation by its definition, in simple loops.
//!
//! It never leaves the tree and is the truth for every faster form. Sums run in double
//! precision. `Plain<f64>` is what finite differences are taken with.

mod attention;
pub(crate) mod linear;
mod norm;
mod optimizer;
pub(crate) mod vocabulary;

use crate::memory::{Activation, Flat};
use crate::rounding::Rounding;
use henge_tensor::{
    AdamStep, AttentionCall, Backend, Buffer, DropoutAt, ElementBytes, Held, Kind, Matrix, NonLinearity, Pool, Pooled,
    Real, Rotation, VocabularyShard, VocabularyStats,
};
use std::marker::PhantomData;
use std::ops::Range;

/// The reference backend over element type `R`.
pub struct Plain<R> {
    pool: Pool,
    rounding: Rounding,
    element: PhantomData<R>,
}

/// A weight of the reference, `[rows, columns]` row-major, rounded.
pub struct PlainWeight<R> {
    rows: usize,
    columns: usize,
    data: Pooled,
    element: PhantomData<R>,
}

impl<R: Real> PlainWeight<R> {
    fn values(&self) -> &[R] {
        self.data.as_slice()
    }
}

/// Logits of a block of tokens, `[tokens, shard rows]`.
pub struct PlainLogits<R> {
    values: Activation<R>,
}

/// Mean and reciprocal standard deviation of each token.
pub struct PlainNormStats(Vec<(f64, f64)>);

impl<R: Real> Default for Plain<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Real> Plain<R> {
    /// A reference in exact arithmetic of `R`, with a pool of its own.
    pub fn new() -> Self {
        Self::rounded(Rounding::Exact)
    }

    /// A reference that emulates a lower compute precision.
    pub fn rounded(rounding: Rounding) -> Self {
        Self { pool: Pool::new(), rounding, element: PhantomData }
    }

    /// Where its buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn blank_like(&self, x: &Activation<R>) -> Activation<R> {
        Activation::blank(&self.pool, x.rows(), x.columns())
    }

    fn rounded_to_compute(&self, mut x: Activation<R>) -> Activation<R> {
        self.rounding.apply(x.values_mut());
        x
    }
}

/// Dropout factors of one row of an activation outside attention.
fn row_factors(at: &DropoutAt, rows: usize, row: usize, columns: usize) -> Vec<f32> {
    let seq = rows / at.samples.len();
    let mut factors = vec![0.0; columns];
    at.dropout.fill_row(
        at.samples[row / seq],
        at.layer as u32,
        at.first_head as u32,
        (row % seq) as u32,
        0,
        &mut factors,
    );
    factors
}

impl<R: Real> Backend for Plain<R> {
    type Real = R;
    type Buffer = Flat<R>;
    type Activation = Activation<R>;
    type Weight = PlainWeight<R>;
    type Vector = Vec<R>;
    type NormStats = PlainNormStats;
    type AttentionStats = Flat<R>;
    type Logits = PlainLogits<R>;

    fn describe(&self) -> String {
        format!("plain {}, {} operands, 1 thread", R::DTYPE, self.rounding.name())
    }

    fn element_bytes(&self) -> ElementBytes {
        ElementBytes { activation: size_of::<R>(), weight: size_of::<R>() }
    }

    fn held(&self) -> Held {
        self.pool.held()
    }

    fn zeros(&self, len: usize, kind: Kind) -> Flat<R> {
        Flat::zeros(&self.pool, len, kind)
    }

    fn prepare(&self, buffer: &Flat<R>, at: usize, rows: usize, columns: usize) -> PlainWeight<R> {
        let data = self.pool.take(rows * columns * size_of::<R>(), Kind::Weight);
        let mut weight = PlainWeight { rows, columns, data, element: PhantomData };
        self.refresh(&mut weight, buffer, at);
        weight
    }

    fn refresh(&self, weight: &mut PlainWeight<R>, buffer: &Flat<R>, at: usize) {
        let values = weight.data.as_mut_slice::<R>();
        buffer.read(at, values);
        self.rounding.apply(values);
    }

    fn prepare_vector(&self, buffer: &Flat<R>, at: usize, len: usize) -> Vec<R> {
        buffer.values()[at..][..len].to_vec()
    }

    fn refresh_vector(&self, vector: &mut Vec<R>, buffer: &Flat<R>, at: usize) {
        buffer.read(at, vector);
    }

    fn upload(&self, rows: usize, columns: usize, values: &[f32]) -> Activation<R> {
        assert_eq!(values.len(), rows * columns, "values of a {rows} x {columns} matrix");
        let mut x = self.blank(rows, columns);
        x.values_mut().iter_mut().zip(values).for_each(|(x, &value)| *x = R::of(f64::from(value)));
        x
    }

    fn download(&self, x: &Activation<R>) -> Vec<f32> {
        x.values().iter().map(|x| x.wide() as f32).collect()
    }

    fn duplicate(&self, x: &Activation<R>) -> Activation<R> {
        let mut copy = self.blank_like(x);
        copy.values_mut().copy_from_slice(x.values());
        copy
    }

    fn blank(&self, rows: usize, columns: usize) -> Activation<R> {
        Activation::blank(&self.pool, rows, columns)
    }

    fn add(&self, x: &mut Activation<R>, y: &Activation<R>) {
        assert_eq!((x.rows(), x.columns()), (y.rows(), y.columns()), "terms of a sum");
        x.values_mut().iter_mut().zip(y.values()).for_each(|(x, &y)| *x += y);
    }

    fn dropout(&self, x: &mut Activation<R>, at: &DropoutAt) {
        let (rows, columns) = (x.rows(), x.columns());
        for row in 0..rows {
            let factors = row_factors(at, rows, row, columns);
            x.row_mut(row).iter_mut().zip(factors).for_each(|(x, factor)| *x *= R::of(f64::from(factor)));
        }
    }

    fn add_branch(
        &self,
        residual: &Activation<R>,
        mut branch: Activation<R>,
        bias: Option<&Vec<R>>,
        dropout: Option<&DropoutAt>,
    ) -> Activation<R> {
        if let Some(bias) = bias {
            for row in 0..branch.rows() {
                branch.row_mut(row).iter_mut().zip(bias).for_each(|(x, &bias)| *x += bias);
            }
        }
        if let Some(at) = dropout {
            self.dropout(&mut branch, at);
        }
        self.add(&mut branch, residual);
        branch
    }

    fn take_rows(&self, x: &Activation<R>, rows: &[usize]) -> Activation<R> {
        let mut y = self.blank(rows.len(), x.columns());
        for (at, &row) in rows.iter().enumerate() {
            y.row_mut(at).copy_from_slice(x.row(row));
        }
        y
    }

    fn add_rows(&self, x: &mut Activation<R>, rows: &[usize], y: &Activation<R>) {
        assert_eq!((rows.len(), x.columns()), (y.rows(), y.columns()), "rows to add");
        for (at, &row) in rows.iter().enumerate() {
            x.row_mut(row).iter_mut().zip(y.row(at)).for_each(|(x, &y)| *x += y);
        }
    }

    fn lookup(&self, table: &PlainWeight<R>, first_row: usize, ids: &[u32]) -> Activation<R> {
        let mut x = self.blank(ids.len(), table.columns);
        for (row, &id) in ids.iter().enumerate() {
            match vocabulary::local(first_row, table.rows, i64::from(id)) {
                Some(at) => x.row_mut(row).copy_from_slice(&table.values()[at * table.columns..][..table.columns]),
                None => x.row_mut(row).fill(R::zero()),
            }
        }
        x
    }

    fn lookup_gradient(
        &self,
        dy: &Activation<R>,
        first_row: usize,
        table_rows: usize,
        ids: &[u32],
        grads: &mut Flat<R>,
        at: usize,
    ) {
        let columns = dy.columns();
        for (row, &id) in ids.iter().enumerate() {
            if let Some(place) = vocabulary::local(first_row, table_rows, i64::from(id)) {
                let grads = &mut grads.values_mut()[at + place * columns..][..columns];
                grads.iter_mut().zip(dy.row(row)).for_each(|(grad, &dy)| *grad += dy);
            }
        }
    }

    fn layer_norm(&self, x: &Activation<R>, gain: &Vec<R>, bias: &Vec<R>, eps: f64) -> (Activation<R>, PlainNormStats) {
        let stats: Vec<_> = (0..x.rows()).map(|row| norm::statistics(x.row(row), eps)).collect();
        let mut y = self.blank_like(x);
        for (row, &stats) in stats.iter().enumerate() {
            norm::forward(x.row(row), stats, gain, bias, y.row_mut(row));
        }
        (self.rounded_to_compute(y), PlainNormStats(stats))
    }

    fn layer_norm_backward(
        &self,
        dy: &Activation<R>,
        x: &Activation<R>,
        stats: &PlainNormStats,
        gain: &Vec<R>,
        dx: &mut Activation<R>,
        grads: &mut Flat<R>,
        gain_at: usize,
        bias_at: usize,
    ) {
        let mut sums = vec![(0.0, 0.0); x.columns()];
        for (row, &stats) in stats.0.iter().enumerate() {
            norm::backward(dy.row(row), x.row(row), stats, gain, dx.row_mut(row), &mut sums);
        }
        for (c, (gain, bias)) in sums.into_iter().enumerate() {
            grads.values_mut()[gain_at + c] += R::of(gain);
            grads.values_mut()[bias_at + c] += R::of(bias);
        }
    }

    fn rms_norm(&self, x: &Activation<R>, gain: &Vec<R>, eps: f64) -> (Activation<R>, PlainNormStats) {
        let stats: Vec<_> = (0..x.rows()).map(|row| norm::rms_statistics(x.row(row), eps)).collect();
        let mut y = self.blank_like(x);
        for (row, stats) in stats.iter().enumerate() {
            norm::rms_forward(x.row(row), stats.1, gain, y.row_mut(row));
        }
        (self.rounded_to_compute(y), PlainNormStats(stats))
    }

    fn rms_norm_backward(
        &self,
        dy: &Activation<R>,
        x: &Activation<R>,
        stats: &PlainNormStats,
        gain: &Vec<R>,
        dx: &mut Activation<R>,
        grads: &mut Flat<R>,
        gain_at: usize,
    ) {
        let mut sums = vec![0.0; x.columns()];
        for (row, stats) in stats.0.iter().enumerate() {
            norm::rms_backward(dy.row(row), x.row(row), stats.1, gain, dx.row_mut(row), &mut sums);
        }
        for (c, gain) in sums.into_iter().enumerate() {
            grads.values_mut()[gain_at + c] += R::of(gain);
        }
    }

    fn linear(&self, x: &Activation<R>, w: &PlainWeight<R>, bias: Option<&Vec<R>>) -> Activation<R> {
        assert_eq!(x.columns(), w.columns, "inputs of a linear");
        let mut y = self.blank(x.rows(), w.rows);
        linear::forward(x.values(), w.values(), bias.map(Vec::as_slice), (w.columns, w.rows), y.values_mut());
        self.rounded_to_compute(y)
    }

    fn linear_activated(
        &self,
        x: &Activation<R>,
        w: &PlainWeight<R>,
        bias: Option<&Vec<R>>,
        f: NonLinearity,
    ) -> (Activation<R>, Activation<R>) {
        let pre = self.linear(x, w, bias);
        let mut y = self.blank(pre.rows(), linear::activated_columns(f, pre.columns()));
        for row in 0..pre.rows() {
            linear::activate(pre.row(row), f, y.row_mut(row));
        }
        (self.rounded_to_compute(y), pre)
    }

    fn linear_input_gradient(&self, dy: &Activation<R>, w: &PlainWeight<R>) -> Activation<R> {
        assert_eq!(dy.columns(), w.rows, "outputs of a linear");
        let mut dx = self.blank(dy.rows(), w.columns);
        linear::input_gradient(dy.values(), w.values(), (w.columns, w.rows), dx.values_mut());
        self.rounded_to_compute(dx)
    }

    fn linear_weight_gradient(&self, x: &Activation<R>, dy: &Activation<R>, grads: &mut Flat<R>, at: usize) {
        assert_eq!(x.rows(), dy.rows(), "tokens of a linear");
        let sizes = (x.columns(), dy.columns());
        let dw = &mut grads.values_mut()[at..][..sizes.0 * sizes.1];
        linear::weight_gradient(x.values(), dy.values(), sizes, dw);
    }

    fn bias_gradient(&self, dy: &Activation<R>, grads: &mut Flat<R>, at: usize) {
        linear::bias_gradient(dy.values(), &mut grads.values_mut()[at..][..dy.columns()]);
    }

    fn activation_backward(&self, dy: Activation<R>, pre: &Activation<R>, f: NonLinearity) -> Activation<R> {
        let mut dpre = self.blank_like(pre);
        for row in 0..pre.rows() {
            linear::activate_backward(dy.row(row), pre.row(row), f, dpre.row_mut(row));
        }
        self.rounded_to_compute(dpre)
    }

    fn rotate(&self, qkv: &mut Activation<R>, rotation: &Rotation) {
        assert_eq!(qkv.rows(), rotation.positions.len(), "one position a token");
        for (row, &position) in rotation.positions.iter().enumerate() {
            let heads = &mut qkv.row_mut(row)[..rotation.heads * 2 * rotation.table.pairs];
            attention::rotate(heads, rotation.table.at(position as usize), rotation.turn);
        }
        self.rounding.apply(qkv.values_mut());
    }

    fn attention(&self, qkv: &Activation<R>, call: &AttentionCall) -> (Activation<R>, Flat<R>) {
        let shape = call.shape;
        assert_eq!(
            (qkv.rows(), qkv.columns()),
            (shape.batch * shape.seq, shape.qkv_columns()),
            "fused attention input"
        );
        let mut y = self.blank(qkv.rows(), shape.heads * shape.head_dim);
        let mut logs = Flat::blank(&self.pool, qkv.rows() * shape.heads, Kind::Activation);
        attention::forward(qkv.values(), call, y.values_mut(), logs.values_mut());
        (self.rounded_to_compute(y), logs)
    }

    fn attention_backward(
        &self,
        dy: &Activation<R>,
        qkv: &Activation<R>,
        _y: &Activation<R>,
        stats: &Flat<R>,
        call: &AttentionCall,
    ) -> Activation<R> {
        let mut dqkv = self.blank_like(qkv);
        attention::backward(dy.values(), qkv.values(), stats.values(), call, dqkv.values_mut());
        self.rounded_to_compute(dqkv)
    }

    fn vocabulary_sweep(
        &self,
        x: &Activation<R>,
        table: &PlainWeight<R>,
        bias: Option<&Vec<R>>,
        shard: &VocabularyShard,
    ) -> (PlainLogits<R>, VocabularyStats<Flat<R>>) {
        let (first, last) = shard.rows;
        let mut logits = self.blank(last - first, table.rows);
        let x = &x.values()[first * table.columns..last * table.columns];
        let sizes = (table.columns, table.rows);
        linear::forward(x, table.values(), bias.map(Vec::as_slice), sizes, logits.values_mut());
        let blank = || Flat::blank(&self.pool, last - first, Kind::Activation);
        let mut stats = VocabularyStats { max: blank(), sum: blank(), target: blank() };
        for (row, &target) in shard.targets.iter().enumerate() {
            let (max, sum, target) = vocabulary::statistics(logits.row(row), shard.first_row, target);
            stats.max.values_mut()[row] = max;
            stats.sum.values_mut()[row] = sum;
            stats.target.values_mut()[row] = target;
        }
        (PlainLogits { values: logits }, stats)
    }

    fn vocabulary_rescale(&self, stats: &mut VocabularyStats<Flat<R>>, local: &Flat<R>) {
        vocabulary::rescale(stats.sum.values_mut(), local.values(), stats.max.values());
    }

    fn vocabulary_losses(&self, stats: &VocabularyStats<Flat<R>>, targets: &[i64]) -> Vec<f64> {
        vocabulary::losses((stats.max.values(), stats.sum.values(), stats.target.values()), targets)
    }

    fn vocabulary_gradient(
        &self,
        logits: PlainLogits<R>,
        stats: &VocabularyStats<Flat<R>>,
        x: &Activation<R>,
        table: &PlainWeight<R>,
        shard: &VocabularyShard,
        scale: f64,
        dx: &mut Activation<R>,
        grads: &mut Flat<R>,
        at: usize,
        bias_at: Option<usize>,
    ) {
        let mut logits = logits.values;
        for (row, &target) in shard.targets.iter().enumerate() {
            let statistics = (stats.max.values()[row], stats.sum.values()[row]);
            vocabulary::gradient(logits.row_mut(row), shard.first_row, target, statistics, scale);
        }
        self.rounding.apply(logits.values_mut());
        let sizes = (table.columns, table.rows);
        let tokens = shard.rows.0 * table.columns..shard.rows.1 * table.columns;
        let dx = &mut dx.values_mut()[tokens.clone()];
        linear::input_gradient(logits.values(), table.values(), sizes, dx);
        self.rounding.apply(dx);
        let dw = &mut grads.values_mut()[at..][..sizes.0 * sizes.1];
        linear::weight_gradient(&x.values()[tokens], logits.values(), sizes, dw);
        if let Some(bias_at) = bias_at {
            linear::bias_gradient(logits.values(), &mut grads.values_mut()[bias_at..][..table.rows]);
        }
    }

    fn logits_values(&self, logits: &PlainLogits<R>) -> Vec<f32> {
        self.download(&logits.values)
    }

    fn sum_of_squares(&self, buffer: &Flat<R>, range: Range<usize>) -> f64 {
        buffer.values()[range].iter().map(|value| value.wide().powi(2)).sum()
    }

    fn scale(&self, buffer: &mut Flat<R>, range: Range<usize>, factor: f64) {
        buffer.values_mut()[range].iter_mut().for_each(|value| *value = R::of(value.wide() * factor));
    }

    fn adam(
        &self,
        values: &mut Flat<R>,
        grads: &Flat<R>,
        first: &mut Flat<R>,
        second: &mut Flat<R>,
        range: Range<usize>,
        step: &AdamStep,
    ) {
        optimizer::adam(
            &mut values.values_mut()[range.clone()],
            &grads.values()[range.clone()],
            &mut first.values_mut()[range.clone()],
            &mut second.values_mut()[range],
            step,
        );
    }
}
