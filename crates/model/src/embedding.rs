//! Token and position embedding, the token table split by rows over the tensor group
//! (1909.08053, section 3).
//!
//! Each rank looks up the tokens it holds and leaves zeros elsewhere; one reduction makes
//! `[b s, h]` whole; positions, token types, a post-norm encoder's norm and dropout follow
//! on every rank alike.

use crate::norm::{Norm, SavedNorm};
use crate::store::TOKEN_TABLE;
use crate::{Context, Microbatch, Store};
use henge_comm::CommError;
use henge_spec::Model;
use henge_tensor::Backend;

pub(crate) struct Embedding<B: Backend> {
    pub table: Table<B>,
    /// Absent where positions are rotary.
    positions: Option<Table<B>>,
    types: Option<Table<B>>,
    norm: Option<Norm<B>>,
}

/// A table of rows, or the tensor rank's share of one.
pub(crate) struct Table<B: Backend> {
    pub weight: B::Weight,
    pub at: usize,
    pub first_row: usize,
    pub rows: usize,
}

impl<B: Backend> Table<B> {
    /// The table of a logical name.
    ///
    /// # Panics
    /// If the chunk does not hold it.
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, name: &str) -> Self {
        Self::find(backend, store, chunk, name).unwrap_or_else(|| panic!("chunk {chunk} holds no `{name}`"))
    }

    /// The table of a logical name, where the model has it.
    fn find(backend: &B, store: &Store<B>, chunk: usize, name: &str) -> Option<Self> {
        let slot = store.find(chunk, name)?;
        let (first_row, rows, _, columns) = slot.block;
        let at = slot.range.start;
        Some(Self { weight: backend.prepare(&store.values, at, rows, columns), at, first_row, rows })
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
    pub fn new(backend: &B, store: &Store<B>, chunk: usize, model: &Model) -> Self {
        let table = |part: &str| Table::find(backend, store, chunk, &format!("embedding.{part}.weight"));
        Self {
            table: Table::new(backend, store, chunk, TOKEN_TABLE),
            positions: table("position"),
            types: table("type"),
            norm: Norm::find(backend, store, chunk, "embedding.norm", model.norm_eps),
        }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.table.refresh(backend, values);
        for table in self.positions.iter_mut().chain(&mut self.types) {
            table.refresh(backend, values);
        }
        if let Some(norm) = &mut self.norm {
            norm.refresh(backend, values);
        }
    }

    /// `[b, s]` tokens to `[b s, h]`, and what the norm's backward needs.
    pub fn forward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
    ) -> Result<(B::Activation, Option<SavedNorm<B>>), CommError> {
        let x = self.sum(at, &micro.tokens, &micro.positions(), &micro.types)?;
        let (mut x, saved) = Norm::forward_if_any(self.norm.as_ref(), at.backend, x);
        if let Some(mask) = at.mask(at.dropouts.embedding, micro, 0) {
            at.backend.dropout(&mut x, &mask);
        }
        Ok((x, saved))
    }

    /// A decoder's tokens at given positions to `[tokens, h]`, nothing dropped.
    pub fn forward_at(&self, at: &Context<B>, tokens: &[u32], positions: &[u32]) -> Result<B::Activation, CommError> {
        self.sum(at, tokens, positions, &[])
    }

    fn sum(
        &self,
        at: &Context<B>,
        tokens: &[u32],
        positions: &[u32],
        types: &[u32],
    ) -> Result<B::Activation, CommError> {
        let mut x = self.table.lookup(at.backend, tokens);
        at.reduce_forward(&mut x)?;
        for (table, ids) in [(&self.positions, positions), (&self.types, types)] {
            if let Some(table) = table {
                at.backend.add(&mut x, &table.lookup(at.backend, ids));
            }
        }
        Ok(x)
    }

    /// Adds the gradients of tables and norm.
    pub fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        dy: B::Activation,
        saved: Option<SavedNorm<B>>,
        grads: &mut B::Buffer,
    ) {
        let mut dx = dy;
        if let Some(mask) = at.mask(at.dropouts.embedding, micro, 0) {
            at.backend.dropout(&mut dx, &mask);
        }
        let dx = Norm::backward_if_any(self.norm.as_ref(), at.backend, dx, saved, grads);
        for (table, ids) in [(&self.positions, &micro.positions()), (&self.types, &micro.types)] {
            if let Some(table) = table {
                table.add_gradient(at.backend, &dx, ids, grads);
            }
        }
        self.table.add_gradient(at.backend, &dx, &micro.tokens, grads);
    }
}
