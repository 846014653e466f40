//! Numbers to hold against other systems: first logits, gradient norms by name.

use crate::TrainError;
use crate::evaluation::last_hidden;
use crate::executor::Stages;
use crate::totals;
use henge_comm::{Comm, Group};
use henge_model::Microbatch;
use henge_spec::{Model, parameters};
use henge_tensor::{Backend, ViewMut};
use serde::Serialize;
use std::collections::BTreeMap;

/// Logits of a batch at its first position and, in its last sequence, its last, `[V]` each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FirstLogits {
    pub logits_first_position: Vec<f64>,
    pub logits_last_position: Vec<f64>,
}

/// Logits of a microbatch's first and last token, whole on every rank of the replica.
pub(crate) fn first_logits<B: Backend>(
    backend: &B,
    comm: &dyn Comm<B::Activation>,
    stages: &Stages<B>,
    micro: &Microbatch,
) -> Result<FirstLogits, TrainError> {
    let vocab_size = stages.contexts[0].model.vocab_size;
    let mut both = vec![0.0; 2 * vocab_size];
    if let Some(hidden) = last_hidden(backend, comm, stages, micro, 0)? {
        let chunk = stages.stages.len() - 1;
        let (stage, at) = (&stages.stages[chunk], &stages.contexts[chunk]);
        let last = micro.tokens.len() - 1;
        for (place, token) in [0, last].into_iter().enumerate() {
            let (shard, first) = stage.logits(at, backend.duplicate(&hidden), token..token + 1);
            let out = &mut both[place * vocab_size + first..][..shard.len()];
            out.iter_mut().zip(shard).for_each(|(out, logit)| *out = f64::from(logit));
        }
        totals::sum(comm, Group::Tensor, &mut both)?;
    }
    let last_rank = comm.grid().axes().pipeline - 1;
    comm.broadcast(Group::Pipeline, last_rank, ViewMut::of(&mut both))?;
    let (first, last) = both.split_at(vocab_size);
    Ok(FirstLogits { logits_first_position: first.to_vec(), logits_last_position: last.to_vec() })
}

/// Every Hugging Face name of a model with its number. Parameters that are fused there
/// share a name.
pub(crate) fn names(model: &Model) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for parameter in parameters(model) {
        let next = names.len();
        names.entry(parameter.hf.name).or_insert(next);
    }
    names
}
