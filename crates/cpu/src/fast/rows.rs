//! Rows of a matrix as float32, whatever the matrix is kept in.
//!
//! ```text
//!   wide    float32, read and written in place
//!   narrow  bf16 in memory; a row at a time in a float32 buffer of the first cache
//! ```

use crate::bf16::Bf16;
use crate::memory::Activation;
use crate::simd::{Level, kernel};
use crate::team::{Parts, Team};
use henge_tensor::Matrix;

/// Rows of a task.
const ROWS: usize = 16;

kernel! {
    /// Rounds to the first numbers of `to`.
    pub fn narrow<S>(x: &[f32], to: &mut [u16]) {
        S::narrow(x, to);
    }
    /// The first numbers of `x`, exactly.
    pub fn widen<S>(x: &[u16], to: &mut [f32]) {
        S::widen(x, to);
    }
}

/// A matrix to read.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    Wide(&'a [f32], usize),
    Narrow(Bf16<'a>),
}

impl<'a> Rows<'a> {
    pub fn of(x: &'a Activation<f32>) -> Self {
        match x.narrow() {
            Some(narrow) => Rows::Narrow(narrow),
            None => Rows::Wide(x.values(), x.columns()),
        }
    }

    pub fn columns(self) -> usize {
        match self {
            Rows::Wide(_, columns) => columns,
            Rows::Narrow(x) => x.columns,
        }
    }

    /// Row `row`; `buffer` is where it may be made.
    pub fn row<'r>(self, level: Level, row: usize, buffer: &'r mut Vec<f32>) -> &'r [f32]
    where
        'a: 'r,
    {
        match self {
            Rows::Wide(values, columns) => &values[row * columns..][..columns],
            Rows::Narrow(x) => {
                buffer.resize(x.columns, 0.0);
                widen(level, &x.values[row * x.stride..], buffer);
                buffer
            }
        }
    }
}

/// A matrix to write; rows belong to one task each.
pub enum RowsMut<'a> {
    Wide(Parts<'a, f32>, usize),
    Narrow { values: Parts<'a, u16>, columns: usize, stride: usize },
}

impl<'a> RowsMut<'a> {
    pub fn of(x: &'a mut Activation<f32>) -> Self {
        let columns = x.columns();
        match x.stride() {
            Some(stride) => RowsMut::Narrow { values: Parts::of(x.narrow_mut()), columns, stride },
            None => RowsMut::Wide(Parts::of(x.values_mut()), columns),
        }
    }

    pub fn columns(&self) -> usize {
        match self {
            RowsMut::Wide(_, columns) | RowsMut::Narrow { columns, .. } => *columns,
        }
    }

    /// `work` writes all of a row.
    ///
    /// # Safety
    /// No other task has this row.
    pub unsafe fn write(&self, level: Level, row: usize, buffer: &mut Vec<f32>, work: impl FnOnce(&mut [f32])) {
        match self {
            // SAFETY: rows do not overlap; the rest is the caller's.
            RowsMut::Wide(values, columns) => work(unsafe { values.part(row * columns, *columns) }),
            RowsMut::Narrow { values, columns, stride } => {
                buffer.resize(*columns, 0.0);
                work(buffer);
                // SAFETY: as above.
                narrow(level, buffer, unsafe { values.part(row * stride, *columns) });
            }
        }
    }

    /// `work` changes a row.
    ///
    /// # Safety
    /// As of [`RowsMut::write`].
    pub unsafe fn change(&self, level: Level, row: usize, buffer: &mut Vec<f32>, work: impl FnOnce(&mut [f32])) {
        match self {
            // SAFETY: rows do not overlap; the rest is the caller's.
            RowsMut::Wide(values, columns) => work(unsafe { values.part(row * columns, *columns) }),
            RowsMut::Narrow { values, columns, stride } => {
                buffer.resize(*columns, 0.0);
                // SAFETY: as above.
                let kept = unsafe { values.part(row * stride, *columns) };
                widen(level, kept, buffer);
                work(buffer);
                narrow(level, buffer, kept);
            }
        }
    }
}

/// Calls `work` with each row's number and buffers of its task.
pub fn each<const N: usize>(team: &Team, rows: usize, work: impl Fn(usize, &mut [Vec<f32>; N]) + Sync) {
    team.each(rows.div_ceil(ROWS), &|_, task| {
        let mut buffers = std::array::from_fn(|_| Vec::new());
        for row in task * ROWS..((task + 1) * ROWS).min(rows) {
            work(row, &mut buffers);
        }
    });
}
