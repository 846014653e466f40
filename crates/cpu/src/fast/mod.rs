//! The vectorised backend in float32.
//!
//! Every operation is tested against the plain reference. Results have the same bits for
//! any number of threads: work is cut by size, never by thread, and sums over tasks run
//! in the order of the tasks.

mod attention;
mod attention_backward;
mod decode;
mod elementwise;
mod masks;
mod norm;
mod operations;
mod rotary;
mod vocabulary;
mod weight;

pub use weight::FastWeight;

use crate::memory::{Activation, Flat};
use crate::plain::linear::activated_columns;
use crate::product::{DEPTH, Packing, Panels, pack_rows, product, transposed_product};
use crate::rounding::Rounding;
use crate::simd::Level;
use crate::team::Team;
use henge_tensor::{AttentionCall, Backend, ElementBytes, Kind, Matrix, NonLinearity, Pool};
use std::ops::Range;

type Tokens = Activation<f32>;
type Numbers = Flat<f32>;

/// The fast backend of one rank: a level of instructions, a team of threads, a pool.
pub struct Fast {
    compute: Compute,
    team: Team,
    pool: Pool,
}

/// How numbers are computed: what the threads of a team share.
#[derive(Clone, Copy)]
struct Compute {
    level: Level,
    rounding: Rounding,
}

impl Compute {
    /// To the compute precision, in place.
    fn round(self, x: &mut [f32]) {
        self.rounding.apply_fast(self.level, x);
    }
}

/// Logits of a block of tokens, `[tokens, shard rows]`.
pub struct FastLogits {
    values: Tokens,
}

impl Fast {
    /// A backend of `threads` threads (at least 1, the caller included) whose products read
    /// operands of the given precision, on the best instructions this processor has.
    pub fn new(threads: usize, precision: impl Into<Rounding>) -> Self {
        Self::with_level(Level::detect(), threads, precision)
    }

    /// As [`Fast::new`] on given instructions, which the processor must have.
    ///
    /// # Panics
    /// When it does not.
    pub fn with_level(level: Level, threads: usize, precision: impl Into<Rounding>) -> Self {
        assert!(Level::available().contains(&level), "this processor has no {}", level.name());
        let compute = Compute { level, rounding: precision.into() };
        Self { compute, team: Team::new(threads.max(1)), pool: Pool::new() }
    }

    /// Where its buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes of its elements, for whoever counts what moves.
    pub fn element_bytes(&self) -> ElementBytes {
        ElementBytes { activation: size_of::<f32>(), weight: size_of::<f32>() }
    }

    /// The threads it computes with.
    pub fn team(&self) -> &Team {
        &self.team
    }

    fn blank_like(&self, x: &Tokens) -> Tokens {
        self.blank(x.rows(), x.columns())
    }

    fn scratch(&self, len: usize) -> Numbers {
        Flat::blank(&self.pool, len, Kind::Buffer)
    }

    fn level(&self) -> Level {
        self.compute.level
    }

    /// What kernels over the team take first.
    fn machine(&self) -> (Level, &Team) {
        (self.compute.level, &self.team)
    }

    fn round_all(&self, x: &mut [f32]) {
        let compute = self.compute;
        if compute.rounding != Rounding::Exact {
            elementwise::each_chunk(&self.team, x, |x, _| compute.round(x));
        }
    }

    fn attention_inputs<'a>(&self, qkv: &'a Tokens, call: &'a AttentionCall<'a>) -> attention::Inputs<'a> {
        let shape = call.shape;
        let sizes = (shape.batch * shape.seq, shape.qkv_columns());
        assert_eq!((qkv.rows(), qkv.columns()), sizes, "fused attention input");
        attention::Inputs { level: self.level(), qkv: qkv.values(), call }
    }

    /// `x w^T + bias` into `y`, and `finish` on each piece of a row.
    fn forward_product(
        &self,
        x: &[f32],
        w: &FastWeight,
        bias: Option<&[f32]>,
        y: &mut [f32],
        finish: impl Fn(usize, Range<usize>, &mut [f32]) + Sync,
    ) {
        let level = self.level();
        product(level, &self.team, x, w.transposed(), y, &|row, columns, values| {
            if let Some(bias) = bias {
                elementwise::add(level, values, &bias[columns.clone()]);
            }
            finish(row, columns, values);
        });
    }

    /// `dy w` into `dx`.
    fn backward_product(&self, dy: &[f32], w: &FastWeight, dx: &mut [f32]) {
        let compute = self.compute;
        product(compute.level, &self.team, dy, w.straight(), dx, &|_, _, values| compute.round(values));
    }

    /// Adds `dy^T x` to `dw`, a depth block of tokens at a time, so that the packed tokens
    /// stay in a cache.
    fn weight_product(&self, x: &[f32], dy: &[f32], (inputs, outputs): (usize, usize), dw: &mut [f32]) {
        let tokens = |rows| Packing::new(self.level(), rows, inputs);
        let mut packed = self.scratch(tokens(DEPTH).len());
        for (x, dy) in x.chunks((DEPTH * inputs).max(1)).zip(dy.chunks((DEPTH * outputs).max(1))) {
            let packing = tokens(x.len() / inputs);
            let packed = &mut packed.values_mut()[..packing.len()];
            pack_rows(&self.team, packing, x, packed);
            transposed_product(self.level(), &self.team, dy, Panels { packing, values: packed }, dw);
        }
    }
}

impl Fast {
    /// A norm's output and statistics, two numbers a token.
    fn norm(&self, x: &Tokens, parameters: norm::Parameters) -> (Tokens, Numbers) {
        assert_eq!(parameters.gain.len(), x.columns(), "gain of a norm");
        let (mut y, compute) = (self.blank_like(x), self.compute);
        let mut stats = Flat::blank(&self.pool, 2 * x.rows(), Kind::Activation);
        let outputs = (stats.values_mut(), y.values_mut());
        norm::forward(self.machine(), x.values(), parameters, outputs, |y| compute.round(y));
        (y, stats)
    }

    /// A gated non-linearity reads two columns far apart, so it runs after the product.
    fn linear_gated(&self, x: &Tokens, w: &FastWeight, bias: Option<&Numbers>) -> (Tokens, Tokens) {
        let f = NonLinearity::SwiGlu;
        let (pre, compute) = (self.linear(x, w, bias), self.compute);
        let columns = activated_columns(f, pre.columns());
        let mut y = self.blank(pre.rows(), columns);
        elementwise::each_row(&self.team, y.values_mut(), columns, |y, row| {
            elementwise::activate(compute.level, pre.row(row), f, y);
            compute.round(y);
        });
        (y, pre)
    }
}
