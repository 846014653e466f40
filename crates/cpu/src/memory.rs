//! What both CPU backends keep their numbers in: row-major matrices and flat buffers on
//! a pool.
//!
//! ```text
//!   Activation [rows, columns]:   element (r, c) at r * columns + c, no padding,
//!                                 so that one view is all of it;
//!                                 or narrow: bf16 in rows that tiles read as they stand,
//!                                 made wide where somebody asks for a view
//!   Flat [len]:                   parameters, gradients, moments, numbers per token
//! ```

use crate::bf16::{BLOCK, Bf16, len_of, stride_of};
use henge_tensor::{Buffer, Kind, Matrix, Pool, Pooled, Real, Transfer, ViewMut};
use std::marker::PhantomData;
use std::ops::Range;

/// A matrix with a token a row.
#[derive(Debug)]
pub struct Activation<R> {
    rows: usize,
    columns: usize,
    data: Pooled,
    /// Of bf16 numbers: those between rows, and where a wide form comes from.
    narrow: Option<(usize, Pool)>,
    element: PhantomData<R>,
}

impl<R: Real> Activation<R> {
    /// A matrix of undefined values.
    pub(crate) fn blank(pool: &Pool, rows: usize, columns: usize) -> Self {
        let data = pool.take(rows * columns * size_of::<R>(), Kind::Activation);
        Self { rows, columns, data, narrow: None, element: PhantomData }
    }

    /// A matrix of undefined bf16 values; zero between its columns and the next whole block.
    pub(crate) fn blank_narrow(pool: &Pool, rows: usize, columns: usize) -> Self {
        let stride = stride_of(columns);
        let mut data = pool.take(len_of(rows, columns) * size_of::<u16>(), Kind::Activation);
        if !columns.is_multiple_of(BLOCK) {
            let margin = columns..columns.next_multiple_of(BLOCK);
            data.as_mut_slice().chunks_exact_mut(stride).for_each(|row: &mut [u16]| row[margin.clone()].fill(0));
        }
        Self { rows, columns, data, narrow: Some((stride, pool.clone())), element: PhantomData }
    }

    /// Its values, row by row.
    ///
    /// # Panics
    /// When it is kept in bf16.
    pub fn values(&self) -> &[R] {
        assert!(self.narrow.is_none(), "a matrix in bf16 read as wide numbers");
        self.data.as_slice()
    }

    /// Its values, row by row, to write.
    ///
    /// # Panics
    /// When it is kept in bf16.
    pub fn values_mut(&mut self) -> &mut [R] {
        assert!(self.narrow.is_none(), "a matrix in bf16 written as wide numbers");
        self.data.as_mut_slice()
    }

    /// Its bf16 numbers, where it is kept in them.
    pub(crate) fn narrow(&self) -> Option<Bf16<'_>> {
        let stride = self.stride()?;
        Some(Bf16::new(self.data.as_slice(), self.rows, self.columns, stride))
    }

    /// Its bf16 numbers.
    pub(crate) fn tiles(&self) -> Bf16<'_> {
        self.narrow().expect("an operand of tiles is kept in bf16")
    }

    /// Its bf16 numbers, to write.
    pub(crate) fn narrow_mut(&mut self) -> &mut [u16] {
        assert!(self.narrow.is_some(), "a wide matrix written as bf16");
        self.data.as_mut_slice()
    }

    /// Numbers between its rows, where they are bf16.
    pub(crate) fn stride(&self) -> Option<usize> {
        self.narrow.as_ref().map(|(stride, _)| *stride)
    }

    /// Keeps the same values wide from now on.
    fn widen(&mut self) {
        let Some((_, pool)) = &self.narrow else { return };
        let mut wide = Self::blank(pool, self.rows, self.columns);
        if let Some(Bf16 { values, columns, stride, .. }) = self.narrow() {
            for (row, to) in wide.values_mut().chunks_exact_mut(columns.max(1)).enumerate() {
                for (to, &x) in to.iter_mut().zip(&values[row * stride..]) {
                    *to = R::of(f64::from(f32::from_bits(u32::from(x) << 16)));
                }
            }
        }
        *self = wide;
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
        self.widen();
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
