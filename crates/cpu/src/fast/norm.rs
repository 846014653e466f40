//! Layer norm and RMS norm in one pass over memory: a row stays in the first cache for its sums.
//!
//! ```text
//!   forward    row -> mean -> variance about it -> y          stats: [mean, rstd] a row
//!   backward   row -> two sums -> dx += ...;  64 rows a task, each with its own sums of
//!              the parameters' gradients, which are added in the order of the tasks
//! ```
//!
//! RMS norm is the same about a mean of zero and without bias; its statistics hold the zero.

use crate::simd::{Level, get, kernel, put};
use crate::team::{Parts, Team};

use super::rows::{self, Rows, RowsMut};

/// Rows of a task of the backward: part of the result's order, not of the machine's.
const ROWS: usize = 64;

kernel! {
    /// Mean and reciprocal standard deviation.
    fn statistics<S>(x: &[f32], eps: f32) -> [f32; 2] {
        let n = x.len() as f32;
        let mut sum = S::splat(0.0);
        for i in (0..x.len()).step_by(S::LANES) {
            sum = S::add(sum, get::<S>(x, i));
        }
        let mean = S::sum(sum) / n;
        let mut squares = S::splat(0.0);
        let whole = x.len() / S::LANES * S::LANES;
        for i in (0..whole).step_by(S::LANES) {
            let centred = S::sub(get::<S>(x, i), S::splat(mean));
            squares = S::fma(centred, centred, squares);
        }
        let rest: f32 = x[whole..].iter().map(|x| (x - mean) * (x - mean)).sum();
        [mean, 1.0 / ((S::sum(squares) + rest) / n + eps).sqrt()]
    }
    fn normalise<S>(x: &[f32], stats: [f32; 2], gain: &[f32], bias: &[f32], y: &mut [f32]) {
        let [mean, rstd] = stats;
        for i in (0..x.len()).step_by(S::LANES) {
            let z = S::mul(S::sub(get::<S>(x, i), S::splat(mean)), S::splat(rstd));
            put::<S>(y, i, S::fma(z, get::<S>(gain, i), get::<S>(bias, i)));
        }
    }
    /// `dx += rstd (g - mean(g) - z mean(g z))` with `g = dy gain`; `sums [2, columns]` of `dy z`
    /// and `dy` grow.
fn backward_row<S>(dy: &[f32], x: &[f32], stats: [f32; 2], gain: &[f32], dx: &mut [f32], sums: &mut [f32]) {
        let [mean, rstd] = stats;
        let (n, (dgain, dbias)) = (x.len() as f32, sums.split_at_mut(x.len()));
        let (mut sum, mut sum_z) = (S::splat(0.0), S::splat(0.0));
        for i in (0..x.len()).step_by(S::LANES) {
            let d = get::<S>(dy, i);
            let z = S::mul(S::sub(get::<S>(x, i), S::splat(mean)), S::splat(rstd));
            let g = S::mul(d, get::<S>(gain, i));
            sum = S::add(sum, g);
            sum_z = S::fma(g, z, sum_z);
            put::<S>(dgain, i, S::fma(d, z, get::<S>(dgain, i)));
            put::<S>(dbias, i, S::add(d, get::<S>(dbias, i)));
        }
        let (mean_g, mean_gz) = (S::sum(sum) / n, S::sum(sum_z) / n);
        for i in (0..x.len()).step_by(S::LANES) {
            let z = S::mul(S::sub(get::<S>(x, i), S::splat(mean)), S::splat(rstd));
            let g = S::mul(get::<S>(dy, i), get::<S>(gain, i));
            let rest = S::fma(z, S::splat(mean_gz), S::splat(mean_g));
            put::<S>(dx, i, S::fma(S::splat(rstd), S::sub(g, rest), get::<S>(dx, i)));
        }
    }
}

kernel! {
    /// Zero and the reciprocal root mean square.
    fn rms_statistics<S>(x: &[f32], eps: f32) -> [f32; 2] {
        let mut squares = S::splat(0.0);
        for i in (0..x.len()).step_by(S::LANES) {
            let x = get::<S>(x, i);
            squares = S::fma(x, x, squares);
        }
        [0.0, 1.0 / (S::sum(squares) / x.len() as f32 + eps).sqrt()]
    }
    fn rms_normalise<S>(x: &[f32], rrms: f32, gain: &[f32], y: &mut [f32]) {
        for i in (0..x.len()).step_by(S::LANES) {
            put::<S>(y, i, S::mul(S::mul(get::<S>(x, i), S::splat(rrms)), get::<S>(gain, i)));
        }
    }
    /// `dx += rrms (g - z mean(g z))` with `g = dy gain`; `dgain [columns]`, sums of `dy z`, grow.
    fn rms_backward_row<S>(dy: &[f32], x: &[f32], rrms: f32, gain: &[f32], dx: &mut [f32], dgain: &mut [f32]) {
        let mut sum_z = S::splat(0.0);
        for i in (0..x.len()).step_by(S::LANES) {
            let (d, z) = (get::<S>(dy, i), S::mul(get::<S>(x, i), S::splat(rrms)));
            sum_z = S::fma(S::mul(d, get::<S>(gain, i)), z, sum_z);
            put::<S>(dgain, i, S::fma(d, z, get::<S>(dgain, i)));
        }
        let mean_gz = S::sum(sum_z) / x.len() as f32;
        for i in (0..x.len()).step_by(S::LANES) {
            let z = S::mul(get::<S>(x, i), S::splat(rrms));
            let g = S::mul(get::<S>(dy, i), get::<S>(gain, i));
            let inner = S::sub(g, S::mul(z, S::splat(mean_gz)));
            put::<S>(dx, i, S::fma(S::splat(rrms), inner, get::<S>(dx, i)));
        }
    }
}

/// A norm's parameters.
#[derive(Clone, Copy)]
pub struct Parameters<'a> {
    pub gain: &'a [f32],
    /// Layer norm's; RMS norm has none.
    pub bias: Option<&'a [f32]>,
    pub eps: f64,
}

/// `y` and `stats [rows, 2]` of `x [rows, columns]`; `finish` runs on each row of `y`.
pub fn forward(
    (level, team): (Level, &Team),
    x: Rows,
    Parameters { gain, bias, eps }: Parameters,
    (stats, y): (&mut [f32], &RowsMut),
    finish: impl Fn(&mut [f32]) + Sync,
) {
    let (rows, stats) = (stats.len() / 2, Parts::of(stats));
    rows::each(team, rows, |row, [from, to]| {
        let x = x.row(level, row, from);
        let found = match bias {
            Some(_) => statistics(level, x, eps as f32),
            None => rms_statistics(level, x, eps as f32),
        };
        // SAFETY: each row writes its own statistics.
        unsafe { stats.part(2 * row, 2) }.copy_from_slice(&found);
        let normalise = |y: &mut [f32]| {
            match bias {
                Some(bias) => normalise(level, x, found, gain, bias, y),
                None => rms_normalise(level, x, found[1], gain, y),
            }
            finish(y);
        };
        // SAFETY: each row is one task's.
        unsafe { y.write(level, row, to, normalise) };
    });
}

/// What the backward reads.
#[derive(Clone, Copy)]
pub struct Backward<'a> {
    pub dy: Rows<'a>,
    pub x: Rows<'a>,
    pub stats: &'a [f32],
    pub gain: &'a [f32],
}

impl Backward<'_> {
    fn rows(&self) -> usize {
        self.stats.len() / 2
    }

    /// Layer norm: adds to `dx`, and overwrites `sums [tasks, 2, columns]` with each task's
    /// sums of the gradients of gain and bias.
    pub fn layer_norm(self, (level, team): (Level, &Team), dx: &mut [f32], sums: &mut [f32]) {
        let Self { dy, x, stats, gain } = self;
        each_task(team, self.rows(), gain.len(), (dx, sums, 2 * gain.len()), |row, [one, two], dx, sums| {
            let stats = [stats[2 * row], stats[2 * row + 1]];
            backward_row(level, dy.row(level, row, one), x.row(level, row, two), stats, gain, dx, sums);
        });
    }

    /// RMS norm: adds to `dx`, and overwrites `sums [tasks, columns]` with each task's sums
    /// of the gradient of the gain.
    pub fn rms_norm(self, (level, team): (Level, &Team), dx: &mut [f32], sums: &mut [f32]) {
        let Self { dy, x, stats, gain } = self;
        each_task(team, self.rows(), gain.len(), (dx, sums, gain.len()), |row, [one, two], dx, sums| {
            let (dy, x) = (dy.row(level, row, one), x.row(level, row, two));
            rms_backward_row(level, dy, x, stats[2 * row + 1], gain, dx, sums);
        });
    }
}

/// Number of tasks of a backward, each with its own sums.
pub fn backward_tasks(rows: usize) -> usize {
    rows.div_ceil(ROWS)
}

/// Calls `work` with each row's number and gradient and its task's `width` sums, which
/// begin at zero.
fn each_task(
    team: &Team,
    rows: usize,
    columns: usize,
    (dx, sums, width): (&mut [f32], &mut [f32], usize),
    work: impl Fn(usize, &mut [Vec<f32>; 2], &mut [f32], &mut [f32]) + Sync,
) {
    let (dx, sums) = (Parts::of(dx), Parts::of(sums));
    team.each(backward_tasks(rows), &|_, task| {
        // SAFETY: each task has its own sums.
        let sums = unsafe { sums.part(task * width, width) };
        sums.fill(0.0);
        let mut buffers = [Vec::new(), Vec::new()];
        for row in task * ROWS..((task + 1) * ROWS).min(rows) {
            // SAFETY: rows do not overlap and each belongs to one task.
            work(row, &mut buffers, unsafe { dx.part(row * columns, columns) }, sums);
        }
    });
}
