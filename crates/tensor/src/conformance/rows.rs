//! The residual stream, rows taken and added, and embeddings.

use super::{Check, Operation, activation, flat, normals, numbers, values};
use crate::{Backend, DropoutAt};
use henge_random::{Dropout, Site};

struct Rows;

impl Operation for Rows {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let mut x = activation(b, 40, 21, &normals("x", 40 * 21));
        let rows: Vec<usize> = (0..33).map(|i| i * 7 % 40).collect();
        let taken = b.take_rows(&x, &rows);
        b.add_rows(&mut x, &rows, &taken);
        [values(b, &taken), values(b, &x)].concat()
    }
}

/// Rows taken in any order and added to where they came from.
pub fn rows_taken_and_added(check: &mut impl Check) {
    check.check("33 of 40", 0.0, &Rows);
}

struct Streams<'a> {
    columns: usize,
    at: DropoutAt<'a>,
}

impl Operation for Streams<'_> {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let (columns, rows) = (self.columns, self.at.samples.len() * 9);
        let matrix = |name| activation(b, rows, columns, &normals(name, rows * columns));
        let bias = b.prepare_vector(&flat(b, &normals("bias", columns)), 0, columns);
        let (residual, mut x) = (matrix("residual"), matrix("x"));
        let dropped = b.add_branch(&residual, matrix("branch"), Some(&bias), Some(&self.at));
        let unbiased = b.add_branch(&residual, matrix("branch"), None, Some(&self.at));
        let biased = b.add_branch(&residual, matrix("branch"), Some(&bias), None);
        let bare = b.add_branch(&residual, matrix("branch"), None, None);
        let mut all = [&dropped, &unbiased, &biased, &bare].map(|x| values(b, x)).concat();
        b.dropout(&mut x, &self.at);
        all.extend(values(b, &x));
        b.add(&mut x, &residual);
        let mut copy = b.duplicate(&x);
        b.add(&mut copy, &residual);
        for x in [&x, &copy, &b.zeroed(rows, columns)] {
            all.extend(values(b, x));
        }
        all
    }
}

/// Branches added to the stream with and without bias and dropout; a copy that changes alone.
pub fn residual_stream(check: &mut impl Check) {
    let dropout = Dropout::new(3, Site::AttentionResidual, 0.5);
    let at = DropoutAt { dropout, samples: &[1, 1 << 50, 3], layer: 7, first_head: 0 };
    for columns in [1, 17, 64, 301] {
        check.check(&format!("{columns} columns"), 2e-7, &Streams { columns, at });
    }
}

struct Embedding {
    table_rows: usize,
    columns: usize,
}

impl Operation for Embedding {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let Self { table_rows, columns } = *self;
        let ids: Vec<u32> = (0..100).map(|i| i * i % 1200).collect();
        let table = b.prepare(&flat(b, &normals("table", table_rows * columns)), 0, table_rows, columns);
        let dy = activation(b, ids.len(), columns, &normals("dy", ids.len() * columns));
        let mut grads = flat(b, &normals("grads", 5 + table_rows * columns));
        b.lookup_gradient(&dy, 100, table_rows, &ids, &mut grads, 5);
        [values(b, &b.lookup(&table, 100, &ids)), numbers(&grads)].concat()
    }
}

/// Lookups in a shard that holds some of the ids, all or none, and their gradients.
pub fn embedding(check: &mut impl Check) {
    for (table_rows, columns) in [(0, 8), (1, 1), (700, 37), (1100, 130)] {
        check.check(&format!("{table_rows} x {columns}"), 1e-6, &Embedding { table_rows, columns });
    }
}
