//! The order of a run's samples, for training and for questions about it.

use crate::failure::Failure;
use henge_data::order::{BlendStage, MegatronRun, Part, SampleOrder, Split};
use henge_data::{Corpus, CorpusPart, DataError};
use henge_spec::{Order, Run};
use std::sync::Arc;

/// The corpora that a run trains on: those of `data.train`, then what only stages name.
pub fn prefixes(run: &Run) -> Vec<&str> {
    let mut prefixes: Vec<&str> = run.data.train.iter().map(|(prefix, _)| prefix.as_str()).collect();
    for (prefix, _) in run.data.stages.iter().flat_map(|stage| &stage.train) {
        if !prefixes.contains(&prefix.as_str()) {
            prefixes.push(prefix);
        }
    }
    prefixes
}

/// The run's order over its corpora, opened in the order of [`prefixes`].
pub fn of(run: &Run, corpora: &[Arc<Corpus>]) -> Result<SampleOrder, Failure> {
    let seq_len = run.model.seq_len as u64;
    let split = Split::new(run.data.split)?;
    Ok(match run.data.order {
        Order::Formula => {
            let parts: Result<_, DataError> = corpora.iter().map(|corpus| training_part(run, corpus, &split)).collect();
            SampleOrder::staged(parts?, &stages(run), seq_len, run.seed)?
        }
        Order::Megatron => {
            let weights = run.data.train.iter().map(|(_, weight)| *weight);
            let corpora = corpora.iter().cloned().zip(weights).collect();
            let split = if run.data.valid.is_empty() { split } else { Split::new([1.0, 0.0, 0.0])? };
            let seed = u32::try_from(run.seed).map_err(|_| Failure::request("run.seed takes 32 bits in this order"))?;
            let options = MegatronRun { sequence_length: seq_len, seed, samples: made_for(run) };
            SampleOrder::megatron(corpora, &split, Part::Train, &options)?
        }
    })
}

/// Samples that Megatron's order is made for; the other order is made for no number.
pub fn made_for(run: &Run) -> Option<u64> {
    let taken = || run.train.batching.consumed(run.train.steps);
    (run.data.order == Order::Megatron).then(|| run.data.order_samples.unwrap_or_else(taken))
}

/// With validation sets of its own a run trains on the whole corpus.
pub(super) fn training_part(run: &Run, corpus: &Arc<Corpus>, split: &Split) -> Result<CorpusPart, DataError> {
    if run.data.valid.is_empty() { corpus.part(split, Part::Train) } else { Ok(corpus.whole(Part::Train)) }
}

/// The blends by the places of their corpora in [`prefixes`].
fn stages(run: &Run) -> Vec<BlendStage> {
    let prefixes = prefixes(run);
    // Entries of data.train stand for themselves, even where two of them name one corpus.
    let first = run.data.train.iter().map(|(_, weight)| *weight).enumerate().collect();
    let mut stages = vec![BlendStage { from: 0, weights: first }];
    for stage in &run.data.stages {
        let mut weights: Vec<(usize, f64)> = Vec::new();
        for (prefix, weight) in &stage.train {
            let Some(place) = prefixes.iter().position(|known| known == prefix) else { continue };
            match weights.iter_mut().find(|(known, _)| *known == place) {
                Some((_, sum)) => *sum += weight,
                None => weights.push((place, *weight)),
            }
        }
        stages.push(BlendStage { from: stage.from, weights });
    }
    stages
}
