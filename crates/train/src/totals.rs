//! Sums over groups of ranks, in double precision and the order of ranks.

use henge_comm::{Comm, CommError, Group, Reduce};
use henge_model::{Losses, Microbatch};
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

/// Sums of losses over a batch or a part of it, or the numbers of what was scored.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LossSums {
    /// Over tokens.
    pub tokens: f64,
    /// Over classes of sequences: the order of sentences, or a task's.
    pub classes: f64,
}

impl LossSums {
    pub fn add(&mut self, losses: &Losses) {
        self.tokens += losses.tokens.iter().sum::<f64>();
        self.classes += losses.classes.iter().sum::<f64>();
    }

    /// How many tokens and sequences of some microbatches are scored.
    pub fn scored(micros: &[Microbatch]) -> Self {
        let count = |labels: &[i64]| labels.iter().filter(|&&label| label >= 0).count() as f64;
        let of = |labels: fn(&Microbatch) -> &[i64]| micros.iter().map(|micro| count(labels(micro))).sum();
        Self { tokens: of(|micro| &micro.labels), classes: of(|micro| &micro.classes) }
    }

    /// Adds other sums.
    pub fn add_sums(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.classes += other.classes;
    }

    /// Both kinds of sums as the last stage of every replica knows them, summed, on every rank.
    pub fn from_last_stage<M: Transfer>(
        comm: &dyn Comm<M>,
        losses: Self,
        scored: Self,
    ) -> Result<(Self, Self), CommError> {
        let mut all = [losses.tokens, losses.classes, scored.tokens, scored.classes];
        from_last_stage(comm, &mut all)?;
        Ok((Self::of_array([all[0], all[1]]), Self::of_array([all[2], all[3]])))
    }

    /// Mean losses, where `self` are the sums over what `scored` counts; 0 of nothing.
    pub fn over(self, scored: Self) -> Self {
        Self { tokens: self.tokens / scored.tokens.max(1.0), classes: self.classes / scored.classes.max(1.0) }
    }

    /// The loss that is trained on: mean over tokens plus mean over sequences.
    pub fn total(self) -> f64 {
        self.tokens + self.classes
    }

    pub fn as_array(self) -> [f64; 2] {
        [self.tokens, self.classes]
    }

    pub fn of_array([tokens, classes]: [f64; 2]) -> Self {
        Self { tokens, classes }
    }
}
