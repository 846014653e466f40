//! Token and position embedding, the token table split by rows over the tensor group
//! (1909.08053, section 3).
//!
//! Each rank looks up the tokens it holds and leaves zeros elsewhere; one reduction makes
//! `[b s, h]` whole; positions and dropout follow on every rank alike.

use crate::store::TOKEN_TABLE;
use crate::{Context, Microbatch, Store};
use henge_comm::CommError;
use henge_tensor::Backend;

pub(crate) struct Embedding<B: Backend> {
    pub table: Table<B>,
    positions: Table<B>,
}

/// A table of rows, or the tensor rank's share of one.
pub(crate) struct Table<B: Backend> {
    pub weight: B::Weight,
    pub at: usize,
    pub first_row: usize,
    pub rows: usize,
}

impl<B: Backend> Table<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, name: &str) -> Self {
        let slot = store.slot(chunk, name);
        let (first_row, rows, _, columns) = slot.block;
        let at = slot.range.start;
        Self { weight: backend.prepare(&store.values, at, rows, columns), at, first_row, rows }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        backend.refresh(&mut self.weight, values, self.at);
    }

    fn lookup(&self, backend: &B, ids: &[u32]) -> B::Activation {
        backend.lookup(&self.weight, self.first_row, ids)
    }

    fn add_gradient(&self, backend: &B, dy: &B::Activation, ids: &[u32], grads: &mut B::Buffer) {
        backend.lookup_gradient(dy, self.first_row, self.rows, ids, grads, self.at);
    }
}

impl<B: Backend> Embedding<B> {
    pub fn new(backend: &B, store: &Store<B>, chunk: usize) -> Self {
        Self {
            table: Table::new(backend, store, chunk, TOKEN_TABLE),
            positions: Table::new(backend, store, chunk, "embedding.position.weight"),
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.table.refresh(backend, values);
        self.positions.refresh(backend, values);
    }

    /// `[b, s]` tokens to `[b s, h]`.
    pub fn forward(&self, at: &Context<B>, micro: &Microbatch) -> Result<B::Activation, CommError> {
        let mut x = self.forward_at(at, &micro.tokens, &positions(micro))?;
        if let Some(mask) = at.mask(at.dropouts.embedding, micro, 0) {
            at.backend.dropout(&mut x, &mask);
        }
        Ok(x)
    }

    /// Tokens at given positions to `[tokens, h]`, nothing dropped.
    pub fn forward_at(&self, at: &Context<B>, tokens: &[u32], positions: &[u32]) -> Result<B::Activation, CommError> {
        let mut x = self.table.lookup(at.backend, tokens);
        at.reduce_forward(&mut x)?;
        at.backend.add(&mut x, &self.positions.lookup(at.backend, positions));
        Ok(x)
    }

    /// Adds the tables' gradients.
    pub fn backward(&self, at: &Context<B>, micro: &Microbatch, dx: B::Activation, grads: &mut B::Buffer) {
        let mut dx = dx;
        if let Some(mask) = at.mask(at.dropouts.embedding, micro, 0) {
            at.backend.dropout(&mut dx, &mask);
        }
        self.positions.add_gradient(at.backend, &dx, &positions(micro), grads);
        self.table.add_gradient(at.backend, &dx, &micro.tokens, grads);
    }
}

fn positions(micro: &Microbatch) -> Vec<u32> {
    let seq = micro.seq() as u32;
    (0..micro.batch()).flat_map(|_| 0..seq).collect()
}
