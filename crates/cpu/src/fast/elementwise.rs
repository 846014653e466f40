//! Operations that touch each number once: sums, dropout, non-linearities, the optimizer.
//!
//! ```text
//!   flat operations:  chunks of 32 Ki numbers, a task each
//!   by rows:          16 rows a task, dropout factors of a row made on the spot
//!   over columns:     128 columns a task, rows in order, so that a sum over tokens has
//!                     one order whatever the threads
//! ```

use super::masks::{self, Place};
use super::rows::Rows;
use crate::math;
use crate::simd::{Level, get, kernel, put};
use crate::team::{Parts, Team};
use henge_tensor::{AdamStep, DropoutAt, NonLinearity};
use std::ops::Range;

/// Numbers of a task of a flat operation.
const CHUNK: usize = 32 << 10;
/// Rows of a task of an operation by rows.
const ROWS: usize = 16;
/// Columns of a task of a sum over rows.
const COLUMNS: usize = 128;

kernel! {
    /// `x += y`.
    pub fn add<S>(x: &mut [f32], y: &[f32]) {
        for i in (0..x.len()).step_by(S::LANES) {
            put::<S>(x, i, S::add(get::<S>(x, i), get::<S>(y, i)));
        }
    }
    /// `x += y`, the first numbers of it.
    fn add_narrow<S>(x: &mut [f32], y: &[u16]) {
        let y = &y[..x.len()];
        for i in (0..x.len()).step_by(S::LANES) {
            // SAFETY: at most what is left of `y`.
            let term = unsafe { S::load_wide(y.as_ptr().add(i), (y.len() - i).min(S::LANES)) };
            put::<S>(x, i, S::add(get::<S>(x, i), term));
        }
    }
    /// `x *= y`.
    pub fn multiply<S>(x: &mut [f32], y: &[f32]) {
        for i in (0..x.len()).step_by(S::LANES) {
            put::<S>(x, i, S::mul(get::<S>(x, i), get::<S>(y, i)));
        }
    }
    /// `x *= factor`.
    pub fn scale<S>(x: &mut [f32], factor: f32) {
        for i in (0..x.len()).step_by(S::LANES) {
            put::<S>(x, i, S::mul(get::<S>(x, i), S::splat(factor)));
        }
    }
    /// `branch = residual + branch * factors`.
    fn add_dropped<S>(branch: &mut [f32], factors: &[f32], residual: &[f32]) {
        for i in (0..branch.len()).step_by(S::LANES) {
            put::<S>(branch, i, S::fma(get::<S>(branch, i), get::<S>(factors, i), get::<S>(residual, i)));
        }
    }
    /// Sum of squares in double precision, in an order that depends on the length alone.
    fn squares<S>(x: &[f32]) -> f64 {
        let mut lanes = [0.0f64; 16];
        for chunk in x.chunks(16) {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += f64::from(x) * f64::from(x);
            }
        }
        lanes.into_iter().sum()
    }
    fn gelu_tanh<S>(pre: &[f32], y: &mut [f32]) {
        for i in (0..y.len()).step_by(S::LANES) {
            put::<S>(y, i, math::gelu_tanh::<S>(get::<S>(pre, i)));
        }
    }
    fn gelu<S>(pre: &[f32], y: &mut [f32]) {
        for i in (0..y.len()).step_by(S::LANES) {
            put::<S>(y, i, math::gelu::<S>(get::<S>(pre, i)));
        }
    }
    fn tanh<S>(pre: &[f32], y: &mut [f32]) {
        for i in (0..y.len()).step_by(S::LANES) {
            put::<S>(y, i, math::tanh::<S>(get::<S>(pre, i)));
        }
    }
    fn tanh_backward<S>(dy: &mut [f32], pre: &[f32]) {
        for i in (0..dy.len()).step_by(S::LANES) {
            let (d, y) = (get::<S>(dy, i), math::tanh::<S>(get::<S>(pre, i)));
            put::<S>(dy, i, S::sub(d, S::mul(d, S::mul(y, y))));
        }
    }
    fn swiglu<S>(gate: &[f32], up: &[f32], y: &mut [f32]) {
        for i in (0..y.len()).step_by(S::LANES) {
            let g = get::<S>(gate, i);
            put::<S>(y, i, S::mul(S::mul(g, math::sigmoid::<S>(g)), get::<S>(up, i)));
        }
    }
    fn gelu_tanh_backward<S>(dy: &mut [f32], pre: &[f32]) {
        for i in (0..dy.len()).step_by(S::LANES) {
            put::<S>(dy, i, S::mul(get::<S>(dy, i), math::gelu_tanh_slope::<S>(get::<S>(pre, i))));
        }
    }
    fn gelu_backward<S>(dy: &mut [f32], pre: &[f32]) {
        for i in (0..dy.len()).step_by(S::LANES) {
            put::<S>(dy, i, S::mul(get::<S>(dy, i), math::gelu_slope::<S>(get::<S>(pre, i))));
        }
    }
    fn swiglu_backward<S>(dy: &[f32], gate: &[f32], up: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
        for i in (0..dy.len()).step_by(S::LANES) {
            let (d, g) = (get::<S>(dy, i), get::<S>(gate, i));
            let s = math::sigmoid::<S>(g);
            // s (1 + g (1 - s))
            let slope = S::mul(s, S::fma(g, S::sub(S::splat(1.0), s), S::splat(1.0)));
            put::<S>(dgate, i, S::mul(S::mul(d, get::<S>(up, i)), slope));
            put::<S>(dup, i, S::mul(d, S::mul(g, s)));
        }
    }
    fn adam_chunk<S>(w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], step: &Factors) {
        for i in (0..w.len()).step_by(S::LANES) {
            let g = S::mul(get::<S>(g, i), S::splat(step.gradient));
            let first = S::fma(S::splat(step.keep1), get::<S>(m, i), S::mul(S::splat(step.take1), g));
            let second = S::fma(S::splat(step.keep2), get::<S>(v, i), S::mul(S::mul(S::splat(step.take2), g), g));
            let root = S::fma(S::sqrt(second), S::splat(step.root), S::splat(step.eps));
            let change = S::div(S::mul(S::splat(step.rate), first), root);
            put::<S>(w, i, S::sub(S::mul(get::<S>(w, i), S::splat(step.decay)), change));
            put::<S>(m, i, math::flush::<S>(first));
            put::<S>(v, i, math::flush::<S>(second));
        }
    }
}

/// An AdamW step's scalars, each computed in double precision and rounded once.
struct Factors {
    gradient: f32,
    keep1: f32,
    take1: f32,
    keep2: f32,
    take2: f32,
    /// `1 / sqrt(1 - beta2^n)`.
    root: f32,
    eps: f32,
    /// `lr / (1 - beta1^n)`.
    rate: f32,
    decay: f32,
}

impl Factors {
    fn of(step: &AdamStep) -> Self {
        let correction = |beta: f64| 1.0 - beta.powf(step.update as f64);
        Self {
            gradient: step.gradient_scale as f32,
            keep1: step.beta1 as f32,
            take1: (1.0 - step.beta1) as f32,
            keep2: step.beta2 as f32,
            take2: (1.0 - step.beta2) as f32,
            root: (1.0 / correction(step.beta2).sqrt()) as f32,
            eps: step.eps as f32,
            rate: (step.lr / correction(step.beta1)) as f32,
            decay: (1.0 - step.lr * step.weight_decay) as f32,
        }
    }
}

/// Calls `work` with each chunk of a slice and its range.
pub fn each_chunk(team: &Team, x: &mut [f32], work: impl Fn(&mut [f32], Range<usize>) + Sync) {
    let (len, parts) = (x.len(), Parts::of(x));
    team.each(len.div_ceil(CHUNK), &|_, task| {
        let range = task * CHUNK..((task + 1) * CHUNK).min(len);
        // SAFETY: chunks do not overlap and each is one task.
        work(unsafe { parts.part(range.start, range.len()) }, range);
    });
}

/// Calls `work` with each row of a matrix and its number.
pub fn each_row(team: &Team, x: &mut [f32], columns: usize, work: impl Fn(&mut [f32], usize) + Sync) {
    let rows = x.len() / columns.max(1);
    let parts = Parts::of(x);
    team.each(rows.div_ceil(ROWS), &|_, task| {
        for row in task * ROWS..((task + 1) * ROWS).min(rows) {
            // SAFETY: rows do not overlap and each belongs to one task.
            work(unsafe { parts.part(row * columns, columns) }, row);
        }
    });
}

/// `f(pre)` of one row.
pub fn activate(level: Level, pre: &[f32], f: NonLinearity, y: &mut [f32]) {
    match f {
        NonLinearity::GeluTanh => gelu_tanh(level, pre, y),
        NonLinearity::Gelu => gelu(level, pre, y),
        NonLinearity::Tanh => tanh(level, pre, y),
        NonLinearity::SwiGlu => swiglu(level, &pre[..y.len()], &pre[y.len()..], y),
    }
}

/// `dy f'(pre)` where input and output are as wide, in place.
pub fn activate_backward(level: Level, dy: &mut [f32], pre: &[f32], f: NonLinearity) {
    match f {
        NonLinearity::GeluTanh => gelu_tanh_backward(level, dy, pre),
        NonLinearity::Gelu => gelu_backward(level, dy, pre),
        NonLinearity::Tanh => tanh_backward(level, dy, pre),
        NonLinearity::SwiGlu => unreachable!("a gated input is twice as wide as its output"),
    }
}

/// `dy f'(pre)` of one row of a gated non-linearity.
pub fn gated_backward(level: Level, dy: &[f32], pre: &[f32], dpre: &mut [f32]) {
    let (gate, up) = pre.split_at(dy.len());
    let (dgate, dup) = dpre.split_at_mut(dy.len());
    swiglu_backward(level, dy, gate, up, dgate, dup);
}

/// Dropout factors of one row of an activation outside attention.
fn row_factors(level: Level, at: &DropoutAt, rows: usize, row: usize, factors: &mut [f32]) {
    let seq = rows / at.samples.len();
    masks::row(level, &Place::new(at, row / seq, 0), (row % seq) as u32, factors);
}

/// Multiplies by the mask, in place.
pub fn dropout(level: Level, team: &Team, x: &mut [f32], columns: usize, at: &DropoutAt) {
    let rows = x.len() / columns.max(1);
    each_row(team, x, columns, |x, row| {
        let mut factors = vec![0.0; columns];
        row_factors(level, at, rows, row, &mut factors);
        multiply(level, x, &factors);
    });
}

/// `sum = residual + dropout(branch + bias)`, where `sum` may hold the branch already.
pub fn add_branch(
    level: Level,
    team: &Team,
    sum: &mut [f32],
    (residual, branch): (Rows, Option<Rows>),
    bias: Option<&[f32]>,
    dropout: Option<&DropoutAt>,
) {
    let columns = residual.columns();
    let rows = sum.len() / columns.max(1);
    each_row(team, sum, columns, |sum, row| {
        let mut buffer = Vec::new();
        if let Some(branch) = branch {
            sum.copy_from_slice(branch.row(level, row, &mut buffer));
        }
        if let Some(bias) = bias {
            add(level, sum, bias);
        }
        let residual = residual.row(level, row, &mut buffer);
        match dropout {
            None => add(level, sum, residual),
            Some(at) => {
                let mut factors = vec![0.0; columns];
                row_factors(level, at, rows, row, &mut factors);
                add_dropped(level, sum, &factors, residual);
            }
        }
    });
}

/// Calls `work` with the start and width of each block of columns.
pub fn each_column_block(team: &Team, columns: usize, work: impl Fn(usize, usize) + Sync) {
    team.each(columns.div_ceil(COLUMNS), &|_, task| {
        let from = task * COLUMNS;
        work(from, (columns - from).min(COLUMNS));
    });
}

/// Adds the sum over rows of `dy [rows, columns]` to `sums [columns]`.
pub fn add_column_sums(level: Level, team: &Team, dy: Rows, rows: usize, sums: &mut [f32]) {
    /// Rows summed before they are added to the total, for the sake of rounding.
    const GROUP: usize = 64;
    let columns = sums.len();
    let parts = Parts::of(sums);
    each_column_block(team, columns, |from, width| {
        // SAFETY: column blocks do not overlap and each is one task.
        let total = unsafe { parts.part(from, width) };
        for first in (0..rows).step_by(GROUP) {
            let mut sums = [0.0; COLUMNS];
            for row in first..(first + GROUP).min(rows) {
                match dy {
                    Rows::Wide(dy, _) => add(level, &mut sums[..width], &dy[row * columns + from..][..width]),
                    Rows::Narrow(dy) => add_narrow(level, &mut sums[..width], &dy.values[row * dy.stride + from..]),
                }
            }
            add(level, total, &sums[..width]);
        }
    });
}

/// Sum of squares in double precision: chunks in order.
pub fn sum_of_squares(level: Level, team: &Team, x: &[f32]) -> f64 {
    let mut sums = vec![0.0; x.len().div_ceil(CHUNK)];
    let parts = Parts::of(&mut sums);
    team.each(x.len().div_ceil(CHUNK), &|_, task| {
        let chunk = &x[task * CHUNK..((task + 1) * CHUNK).min(x.len())];
        // SAFETY: each task writes its own sum.
        unsafe { parts.part(task, 1)[0] = squares(level, chunk) };
    });
    sums.iter().sum()
}

/// One AdamW update (see `plain::optimizer` for the definition).
pub fn adam(
    (level, team): (Level, &Team),
    w: &mut [f32],
    g: &[f32],
    (m, v): (&mut [f32], &mut [f32]),
    step: &AdamStep,
) {
    let factors = Factors::of(step);
    let (m, v) = (Parts::of(m), Parts::of(v));
    each_chunk(team, w, |w, range| {
        // SAFETY: chunks do not overlap and each is one task.
        let (m, v) = unsafe { (m.part(range.start, w.len()), v.part(range.start, w.len())) };
        adam_chunk(level, w, &g[range], m, v, &factors);
    });
}
