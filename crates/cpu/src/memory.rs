//! What both CPU backends keep their numbers in: row-major matrices and flat buffers on
//! a pool.
//!
//! ```text
//!   Activation [rows, columns]:   element (r, c) at r * columns + c, no padding,
//!                                 so that one view is all of it
//!   Flat [len]:                   parameters, gradients, moments, numbers per token
//! ```

use henge_tensor::{Buffer, Kind, Matrix, Pool, Pooled, Real, Transfer, ViewMut};
use std::marker::PhantomData;
use std::ops::Range;

/// A matrix with a token a row.
#[derive(Debug)]
pub struct Activation<R> {
    rows: usize,
    columns: usize,
    data: Pooled,
    element: PhantomData<R>,
}

impl<R: Real> Activation<R> {
    /// A matrix of undefined values.
    pub(crate) fn blank(pool: &Pool, rows: usize, columns: usize) -> Self {
        let data = pool.take(rows * columns * size_of::<R>(), Kind::Activation);
        Self { rows, columns, data, element: PhantomData }
    }

    /// Its values, row by row.
    pub fn values(&self) -> &[R] {
        self.data.as_slice()
    }

    /// Its values, row by row, to write.
    pub fn values_mut(&mut self) -> &mut [R] {
        self.data.as_mut_slice()
    }

    /// One token's channels.
    pub fn row(&self, row: usize) -> &[R] {
        &self.values()[row * self.columns..][..self.columns]
    }

    /// One token's channels, to write.
    pub fn row_mut(&mut self, row: usize) -> &mut [R] {
        let columns = self.columns;
        &mut self.values_mut()[row * columns..][..columns]
    }
}

impl<R: Real> Matrix for Activation<R> {
    fn rows(&self) -> usize {
        self.rows
    }
    fn columns(&self) -> usize {
        self.columns
    }
}

impl<R: Real> Transfer for Activation<R> {
    fn view_mut(&mut self) -> ViewMut<'_> {
        ViewMut::of(self.values_mut())
    }
}

/// A flat buffer.
#[derive(Debug)]
pub struct Flat<R> {
    data: Pooled,
    element: PhantomData<R>,
}

impl<R: Real> Flat<R> {
    /// `len` undefined values.
    pub(crate) fn blank(pool: &Pool, len: usize, kind: Kind) -> Self {
        Self { data: pool.take(len * size_of::<R>(), kind), element: PhantomData }
    }

    /// `len` zeros.
    pub(crate) fn zeros(pool: &Pool, len: usize, kind: Kind) -> Self {
        Self { data: pool.take_zeroed(len * size_of::<R>(), kind), element: PhantomData }
    }

    /// Its values.
    pub fn values(&self) -> &[R] {
        self.data.as_slice()
    }

    /// Its values, to write.
    pub fn values_mut(&mut self) -> &mut [R] {
        self.data.as_mut_slice()
    }
}

impl<R: Real> Buffer<R> for Flat<R> {
    fn len(&self) -> usize {
        self.data.len() / size_of::<R>()
    }
    fn read(&self, at: usize, out: &mut [R]) {
        out.copy_from_slice(&self.values()[at..][..out.len()]);
    }
    fn write(&mut self, at: usize, values: &[R]) {
        self.values_mut()[at..][..values.len()].copy_from_slice(values);
    }
    fn zero(&mut self, range: Range<usize>) {
        self.values_mut()[range].fill(R::zero());
    }
    fn view_mut(&mut self, range: Range<usize>) -> ViewMut<'_> {
        ViewMut::of(&mut self.values_mut()[range])
    }
}
