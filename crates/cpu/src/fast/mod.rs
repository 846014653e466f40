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
mod rows;
mod vocabulary;
mod weight;

pub use weight::FastWeight;

use self::rows::{Rows, RowsMut};
use self::weight::{PanelWeight, TileWeight};
use crate::bf16::{self, Bf16, Gradient, Machine, Output, Packed};
use crate::memory::{Activation, Flat};
use crate::plain::linear::activated_columns;
use crate::product::{DEPTH, Packing, Panels, pack_rows, product, transposed_product};
use crate::rounding::Rounding;
use crate::simd::Level;
use crate::team::Team;
use crate::tile::Tiles;
use henge_tensor::{AttentionCall, Backend, Kind, Matrix, NonLinearity, Pool};
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
    /// What multiplies bf16 numbers; none where products are of float32 vectors.
    tiles: Option<Tiles>,
}

impl Compute {
    /// To the compute precision, in place.
    fn round(self, x: &mut [f32]) {
        self.rounding.apply_fast(self.level, x);
    }
}

/// A matrix in the form that somebody reads.
enum Form<'a> {
    Own(&'a Tokens),
    Copy(Tokens),
}

impl std::ops::Deref for Form<'_> {
    type Target = Tokens;
    fn deref(&self) -> &Tokens {
        match self {
            Form::Own(x) => x,
            Form::Copy(x) => x,
        }
    }
}

/// Rows of a matrix, after some that are skipped.
struct RowsOf<'a> {
    x: Form<'a>,
    skip: usize,
}

impl std::ops::Deref for RowsOf<'_> {
    type Target = Tokens;
    fn deref(&self) -> &Tokens {
        &self.x
    }
}

/// Logits of a block of tokens, `[tokens, shard rows]`.
pub struct FastLogits {
    values: Tokens,
}

impl Fast {
    /// A backend of `threads` threads (at least 1, the caller included) whose products read
    /// operands of the given precision, on the best instructions this processor has: bf16 on
    /// its tiles where it has them and on float32 vectors where not.
    pub fn new(threads: usize, precision: impl Into<Rounding>) -> Self {
        let precision = precision.into();
        match Tiles::detect().filter(|_| precision == Rounding::Bf16) {
            Some(tiles) => Self::with_tiles(tiles, Level::detect(), threads),
            None => Self::with_level(Level::detect(), threads, precision),
        }
    }

    /// In bf16 on given tiles, all else on given vectors; the processor must have both.
    ///
    /// # Panics
    /// When it does not.
    pub fn with_tiles(tiles: Tiles, level: Level, threads: usize) -> Self {
        assert!(tiles == Tiles::Software || Tiles::detect() == Some(tiles), "this processor has no tiles");
        let mut fast = Self::with_level(level, threads, Rounding::Bf16);
        fast.compute.tiles = Some(tiles);
        fast
    }

    /// As [`Fast::new`] on given vectors, which the processor must have, and no tiles.
    ///
    /// # Panics
    /// When it does not.
    pub fn with_level(level: Level, threads: usize, precision: impl Into<Rounding>) -> Self {
        assert!(Level::available().contains(&level), "this processor has no {}", level.name());
        let compute = Compute { level, rounding: precision.into(), tiles: None };
        Self { compute, team: Team::new(threads.max(1)), pool: Pool::new() }
    }

    /// Where its buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The threads it computes with.
    pub fn team(&self) -> &Team {
        &self.team
    }

    fn blank_like(&self, x: &Tokens) -> Tokens {
        self.blank(x.rows(), x.columns())
    }

    /// A matrix of undefined values that a product will read.
    fn blank_operand(&self, rows: usize, columns: usize) -> Tokens {
        match self.compute.tiles {
            Some(_) => Activation::blank_narrow(&self.pool, rows, columns),
            None => self.blank(rows, columns),
        }
    }

    /// The same numbers, wide: themselves or a copy.
    fn wide<'a>(&self, x: &'a Tokens) -> Form<'a> {
        if x.narrow().is_none() {
            return Form::Own(x);
        }
        let mut wide = self.blank_like(x);
        self.convert(x, &mut wide);
        Form::Copy(wide)
    }

    /// As a product of tiles reads them: themselves or a rounded copy.
    fn operand<'a>(&self, x: &'a Tokens) -> Form<'a> {
        if x.narrow().is_some() {
            return Form::Own(x);
        }
        let mut narrow = Activation::blank_narrow(&self.pool, x.rows(), x.columns());
        self.convert(x, &mut narrow);
        Form::Copy(narrow)
    }

    /// Copies from one form to another.
    fn convert(&self, x: &Tokens, to: &mut Tokens) {
        let (level, from, to) = (self.level(), Rows::of(x), RowsMut::of(to));
        rows::each(&self.team, x.rows(), |row, [one, two]| {
            let x = from.row(level, row, one);
            // SAFETY: each row is one task's.
            unsafe { to.write(level, row, two, |to| to.copy_from_slice(x)) };
        });
    }

    /// Some rows of [`Fast::operand`], from a whole block on or copied.
    fn operand_rows<'a>(&self, x: &'a Tokens, range: Range<usize>) -> RowsOf<'a> {
        if x.narrow().is_some() && range.start.is_multiple_of(bf16::BLOCK) {
            return RowsOf { x: Form::Own(x), skip: range.start };
        }
        let mut narrow = Activation::blank_narrow(&self.pool, range.len(), x.columns());
        let (level, from, to) = (self.level(), Rows::of(x), RowsMut::of(&mut narrow));
        rows::each(&self.team, range.len(), |row, [one, two]| {
            let x = from.row(level, range.start + row, one);
            // SAFETY: each row is one task's.
            unsafe { to.write(level, row, two, |to| to.copy_from_slice(x)) };
        });
        RowsOf { x: Form::Copy(narrow), skip: 0 }
    }

    /// Rounded as products read them, in the form in which they do.
    fn as_operand(&self, mut x: Tokens) -> Tokens {
        if self.compute.tiles.is_none() {
            self.round_all(x.values_mut());
            return x;
        }
        match self.operand(&x) {
            Form::Copy(narrow) => narrow,
            Form::Own(_) => x,
        }
    }

    /// Adds `dy^T x` to `dw`.
    fn tile_gradient(&self, tiles: Tiles, x: Bf16, dy: Bf16, dw: &mut [f32]) {
        let len = bf16::gradient_scratch(x.rows, x.columns, self.team.threads());
        let mut scratch = self.pool.take(len * size_of::<u16>(), Kind::Buffer);
        bf16::weight_gradient(self.tile_machine(tiles), Gradient { x, dy }, dw, scratch.as_mut_slice());
    }

    fn tile_machine(&self, tiles: Tiles) -> Machine<'_> {
        Machine { level: self.level(), tiles, team: &self.team }
    }

    /// Tiles, and the tile form of a weight that is in it.
    fn tiles_and<'w>(&self, w: &'w FastWeight) -> Result<(Machine<'_>, &'w TileWeight), &'w PanelWeight> {
        match (w, self.compute.tiles) {
            (FastWeight::Panels(w), _) => Err(w),
            (FastWeight::Tiles(w), tiles) => Ok((self.tile_machine(tiles.unwrap_or(Tiles::Software)), w)),
        }
    }

    fn tile_product(&self, machine: Machine, x: Bf16, w: Packed, output: &Output) {
        self.tile_product_and(machine, x, w, output, &|_, _| ());
    }

    /// As [`Fast::tile_product`], and `finish` on each finished part.
    fn tile_product_and(&self, machine: Machine, x: Bf16, w: Packed, output: &Output, finish: &bf16::Finish) {
        let mut scratch = self.scratch(self.team.threads() * bf16::product_scratch(x.columns));
        bf16::product(machine, x, w, output, scratch.values_mut(), finish);
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
        w: &PanelWeight,
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
    fn backward_product(&self, dy: &[f32], w: &PanelWeight, dx: &mut [f32]) {
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
        let (mut y, compute) = (self.blank_operand(x.rows(), x.columns()), self.compute);
        let mut stats = Flat::blank(&self.pool, 2 * x.rows(), Kind::Activation);
        let outputs = (stats.values_mut(), &RowsMut::of(&mut y));
        norm::forward(self.machine(), Rows::of(x), parameters, outputs, |y| compute.round(y));
        (y, stats)
    }

    /// A gated non-linearity reads two columns far apart, so it runs after the product.
    fn linear_gated(&self, x: &Tokens, w: &FastWeight, bias: Option<&Numbers>) -> (Tokens, Tokens) {
        let f = NonLinearity::SwiGlu;
        let (pre, compute) = (self.linear(x, w, bias), self.compute);
        let columns = activated_columns(f, pre.columns());
        let mut y = self.blank_operand(pre.rows(), columns);
        let (from, to) = (Rows::of(&pre), RowsMut::of(&mut y));
        rows::each(&self.team, pre.rows(), |row, [one, two]| {
            let pre = from.row(compute.level, row, one);
            let activate = |y: &mut [f32]| {
                elementwise::activate(compute.level, pre, f, y);
                compute.round(y);
            };
            // SAFETY: each row is one task's.
            unsafe { to.write(compute.level, row, two, activate) };
        });
        (y, pre)
    }
}
