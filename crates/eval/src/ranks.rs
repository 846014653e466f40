//! The ranks that hold a model: one stage each, forward passes only.

use crate::{EvalError, Loaded};
use henge_checkpoint::Block;
use henge_comm::threads::{self, Cause};
use henge_comm::{Comm, Grid, Group, Reduce, Tag};
use henge_model::{Context, Dropouts, Place, Stage, Store};
use henge_spec::{Layout, Recompute};
use henge_tensor::{Backend, ViewMut};
use std::sync::Arc;

/// One rank's part of a model.
pub(crate) struct Rank<'a, B: Backend> {
    pub comm: &'a dyn Comm<B::Activation>,
    pub stage: Stage<B>,
    backend: B,
    loaded: &'a Loaded,
    place: Place,
}

/// What a stage makes of its input.
pub(crate) enum Passed<B: Backend, T> {
    /// A hidden state for the next stage.
    On(B::Activation),
    /// The last stage's result.
    Ended(T),
}

/// Runs `body` on every rank of a layout, `backend` making each rank's device, and returns
/// what rank 0 makes of it.
pub(crate) fn on_ranks<B, T>(
    loaded: &Arc<Loaded>,
    layout: &Layout,
    options: threads::Options,
    backend: impl Fn(usize) -> B + Send + Sync + 'static,
    body: impl Fn(Rank<B>) -> Result<T, EvalError> + Send + Sync + 'static,
) -> Result<T, EvalError>
where
    B: Backend,
    B::Activation: 'static,
    T: Send + 'static,
{
    loaded.check_layout(layout)?;
    let (world, loaded) = (threads::world::<B::Activation>(Grid::new(layout), options), Arc::clone(loaded));
    let outcome = threads::run_ranks(world, move |comm| {
        let device = backend(comm.rank());
        body(Rank::new(&loaded, device, &comm)?)
    });
    let results = outcome.map_err(|failure| match failure.cause {
        Cause::Error(error) => error,
        cause => EvalError::Rank { rank: failure.rank, words: cause.to_string() },
    })?;
    Ok(results.into_iter().next().expect("a layout has a rank 0"))
}

impl<'a, B: Backend> Rank<'a, B> {
    fn new(loaded: &'a Loaded, backend: B, comm: &'a dyn Comm<B::Activation>) -> Result<Self, EvalError> {
        let (here, axes) = (comm.grid().place(comm.rank()), comm.grid().axes());
        let place = Place { tensor: here.tensor, tensors: axes.tensor, stage: here.pipeline, stages: axes.pipeline };
        let mut store = Store::without_grads(&backend, loaded.model(), &[place]);
        store.load(|slot, out| {
            let (row, rows, column, columns) = slot.block;
            loaded.read_or_leave(&slot.parameter, Block { row, rows, column, columns }, out)
        })?;
        // The store ends here: a stage that is not trained needs its prepared weights only.
        let stage = Stage::new(&backend, &store, 0, loaded.model(), &place, Recompute::None);
        Ok(Self { comm, stage, backend, loaded, place })
    }

    /// What the stage's layers are handed.
    pub fn context(&self) -> Context<'_, B> {
        let Self { backend, comm, place, .. } = self;
        Context { backend, comm: *comm, model: self.loaded.model(), place: *place, dropouts: Dropouts::NONE }
    }

    /// Passes message `index` of `rows` tokens through this rank's stage: receives unless
    /// it is the first, sends on unless it is the last, where the result is returned.
    pub fn pass<T>(
        &self,
        index: usize,
        rows: usize,
        run: impl FnOnce(&Context<B>, Option<B::Activation>) -> Result<Passed<B, T>, EvalError>,
    ) -> Result<Option<T>, EvalError> {
        let at = self.context();
        self.comm.at(index, &format!("forward of batch {index} on stage {}", self.place.stage));
        let input = match self.place.stage.checked_sub(1) {
            None => None,
            Some(before) => {
                let (from, tag) = (self.peer(before), tag(before, index));
                let blank = Box::new(|| self.backend.blank(rows, at.model.hidden));
                Some(self.comm.receive(from, tag, blank)?)
            }
        };
        match run(&at, input)? {
            Passed::Ended(result) => Ok(Some(result)),
            Passed::On(hidden) => {
                let (to, tag) = (self.peer(self.place.stage + 1), tag(self.place.stage, index));
                self.comm.deliver(to, tag, hidden)?;
                Ok(None)
            }
        }
    }

    /// This replica's batches of `batch` items of `order`, with the number of each among all:
    /// replicas take them in turn.
    pub fn own_batches<'o>(&self, order: &'o [usize], batch: usize) -> impl Iterator<Item = (usize, &'o [usize])> {
        let (replica, replicas) = (self.comm.grid().place(self.comm.rank()).data, self.comm.grid().axes().data);
        order.chunks(batch).enumerate().filter(move |(index, _)| index % replicas == replica)
    }

    /// Makes a table whole on every rank: each entry is known to one replica's last stage and
    /// is zero in the others'.
    pub fn gather(&self, table: &mut [f64]) -> Result<(), EvalError> {
        self.comm.all_reduce(Group::Data, ViewMut::of(table), Reduce::Sum)?;
        self.broadcast_from_last_stage(table)
    }

    /// Whether this rank stands for its replica's last stage in reports.
    pub fn speaks(&self) -> bool {
        self.place.is_last() && self.place.tensor == 0
    }

    /// Numbers that the last stage knows, to every rank of the pipeline.
    pub fn broadcast_from_last_stage(&self, values: &mut [f64]) -> Result<(), EvalError> {
        Ok(self.comm.broadcast(Group::Pipeline, self.place.stages - 1, ViewMut::of(values))?)
    }

    fn peer(&self, pipeline: usize) -> usize {
        self.comm.grid().on_pipeline(self.comm.rank(), pipeline)
    }
}

/// Items from the longest to the shortest, so that little of a batch is padding.
pub(crate) fn longest_first(items: usize, length: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items).collect();
    order.sort_by_key(|&item| std::cmp::Reverse(length(item)));
    order
}

fn tag(stage: usize, index: usize) -> Tag {
    Tag { direction: 0, stage: stage as u32, microbatch: index as u64 }
}
