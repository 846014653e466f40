//! Sums over groups of ranks, in double precision and the order of ranks.

use henge_comm::{Comm, CommError, Group, Reduce};
use henge_tensor::{Transfer, ViewMut};

/// Sums each number over a group.
pub(crate) fn sum<M: Transfer>(comm: &dyn Comm<M>, group: Group, values: &mut [f64]) -> Result<(), CommError> {
    comm.all_reduce(group, ViewMut::of(values), Reduce::Sum)
}

/// Brings what the last stage knows to every rank: summed over the replicas, then sent down
/// the pipeline.
pub(crate) fn from_last_stage<M: Transfer>(comm: &dyn Comm<M>, values: &mut [f64]) -> Result<(), CommError> {
    sum(comm, Group::Data, values)?;
    let last = comm.grid().axes().pipeline - 1;
    comm.broadcast(Group::Pipeline, last, ViewMut::of(values))
}

/// Sums a buffer over a group.
pub(crate) fn sum_view<M: Transfer>(
    comm: &dyn Comm<M>,
    group: Group,
    view: ViewMut<'_>,
) -> Result<(), crate::TrainError> {
    Ok(comm.all_reduce(group, view, Reduce::Sum)?)
}
