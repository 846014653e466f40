//! Global norm, clip and AdamW over a rank's store.

use crate::totals;
use henge_comm::{Comm, CommError, Group};
use henge_model::{Slot, Store};
use henge_spec::Optimizer as Recipe;
use henge_tensor::{AdamStep, Backend, Buffer, Kind};
use std::collections::BTreeMap;

/// The moments and the count of updates.
pub(crate) struct Optimizer<B: Backend> {
    recipe: Recipe,
    pub first: B::Buffer,
    pub second: B::Buffer,
    /// Updates so far; skipped steps do not count.
    pub updates: u64,
}

impl<B: Backend> Optimizer<B> {
    pub fn new(backend: &B, recipe: Recipe, store: &Store<B>) -> Self {
        let moment = || backend.zeros(store.values.len(), Kind::Optimizer);
        Self { recipe, first: moment(), second: moment(), updates: 0 }
    }

    /// Learning rate of the next update.
    pub fn lr(&self) -> f64 {
        self.recipe.rate(self.updates + 1)
    }

    /// One update from the step's gradients, which are `loss_scale` times too large and
    /// whose global norm, after division by it, is `norm`.
    pub fn update(&mut self, backend: &B, store: &mut Store<B>, norm: f64, loss_scale: f64) {
        let clip = match self.recipe.clip {
            0.0 => 1.0,
            limit => (limit / (norm + 1e-6)).min(1.0),
        };
        let lr = self.lr();
        self.updates += 1;
        for (range, decay) in spans(&store.slots) {
            let step = AdamStep {
                lr,
                beta1: self.recipe.beta1,
                beta2: self.recipe.beta2,
                eps: self.recipe.eps,
                weight_decay: if decay { self.recipe.weight_decay } else { 0.0 },
                update: self.updates,
                gradient_scale: clip / loss_scale,
            };
            backend.adam(&mut store.values, &store.grads, &mut self.first, &mut self.second, range, &step);
        }
    }
}

/// Neighbouring slots of the same decay as one range.
fn spans(slots: &[Slot]) -> Vec<(std::ops::Range<usize>, bool)> {
    let mut spans: Vec<(std::ops::Range<usize>, bool)> = Vec::new();
    for slot in slots {
        match spans.last_mut() {
            Some((range, decay)) if *decay == slot.parameter.decay && range.end == slot.range.start => {
                range.end = slot.range.end;
            }
            _ => spans.push((slot.range.clone(), slot.parameter.decay)),
        }
    }
    spans
}

/// Squares of the whole model's gradient, each shared parameter counted once: per name
/// under which a Hugging Face folder has it. Every rank of a replica gets the same bits.
pub(crate) fn squares<B: Backend>(
    backend: &B,
    comm: &dyn Comm<B::Activation>,
    store: &Store<B>,
    names: &BTreeMap<String, usize>,
    tensor_rank: usize,
) -> Result<Vec<f64>, CommError> {
    let mut squares = vec![0.0; names.len()];
    for slot in store.slots.iter().filter(|slot| slot.counts(tensor_rank)) {
        squares[names[&slot.parameter.hf.name]] += backend.sum_of_squares(&store.grads, slot.range.clone());
    }
    totals::sum(comm, Group::Model, &mut squares)?;
    Ok(squares)
}
