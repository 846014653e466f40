//! What does not fit, by how much, and what would help.

use crate::cost::step_cost;
use crate::memory::{RankMemory, memory_bound};
use crate::predict::predict;
use crate::search::{Candidate, Request};
use crate::switches::Sharding;
use crate::{PlanError, Prediction, Switches, Workload};
use henge_spec::formulas::SequenceParallel;
use henge_spec::{Layout, Recompute};

const GIB: f64 = (1u64 << 30) as f64;

/// Bytes as GiB with one decimal.
pub fn gib(bytes: f64) -> String {
    format!("{:.1} GiB", bytes / GIB)
}

/// Why a prediction does not fit and what would help; `None` where it fits.
pub fn shortfall(work: &Workload, prediction: &Prediction) -> Option<String> {
    let (stage, need) = prediction.fullest();
    let capacity = work.cluster.capacity();
    if need <= capacity {
        return None;
    }
    let held = held(&prediction.memory[stage]);
    let words = format!(
        "stage {stage} needs {} of {}, {:.0} bytes too many ({}): {held}; {}",
        gib(need),
        gib(capacity),
        need - capacity,
        gib(need - capacity),
        remedies(work)
    );
    Some(words)
}

fn held(memory: &RankMemory) -> String {
    format!(
        "weights {}, gradients {}, optimizer {}, activations {} ({} in flight), buffers {}",
        gib(memory.weights),
        gib(memory.gradients),
        gib(memory.optimizer),
        gib(memory.activations),
        memory.in_flight,
        gib(memory.buffers)
    )
}

/// The error of a search in which no layout fits: the layout that comes closest speaks.
pub(crate) fn does_not_fit(request: &Request, all: &[Candidate]) -> PlanError {
    let nearest = all.iter().min_by(|a, b| a.estimate.memory.total_cmp(&b.estimate.memory));
    let words = nearest.and_then(|candidate| {
        let work = request.workload(candidate);
        let prediction = predict(&work).ok()?;
        let why = shortfall(&work, &prediction).unwrap_or_else(|| "the closed form leaves no room".to_string());
        Some(format!("of {} legal layouts {} comes closest: {why}", all.len(), work.words()))
    });
    PlanError::DoesNotFit(words.unwrap_or_else(|| "no layout could be priced".to_string()))
}

/// Changes, one at a time and then together, that make a layout fit.
fn remedies(work: &Workload) -> String {
    let single: Vec<String> =
        changes(work).into_iter().filter(|(_, changed)| fits(changed)).map(|(words, _)| words).collect();
    if !single.is_empty() {
        return format!("any of these would make it fit: {}", single.join(", "));
    }
    let mut all = with(work, Recompute::FULL, everything(work.switches));
    all.microbatch = 1;
    if all.check().is_ok() && fits(&all) {
        return "full recomputation, b=1, sequence parallelism and a sharded optimizer together would make it fit"
            .to_string();
    }
    match more_gpus(&all) {
        Some(layout) => {
            let Layout { tensor, pipeline, .. } = layout;
            let gpus = layout.ranks();
            format!("with everything saved that can be, {gpus} GPUs would hold it (t={tensor}, p={pipeline})")
        }
        None => "no number of these devices holds it: take larger ones".to_string(),
    }
}

fn everything(switches: Switches) -> Switches {
    Switches { sequence_parallel: SequenceParallel::On, sharding: Sharding::Zero1, ..switches }
}

fn with<'a>(work: &Workload<'a>, recompute: Recompute, switches: Switches) -> Workload<'a> {
    Workload { layout: Layout { recompute, ..work.layout }, switches, ..work.clone() }
}

fn changes<'a>(work: &Workload<'a>) -> Vec<(String, Workload<'a>)> {
    let same = work.layout.recompute;
    let switches = work.switches;
    let mut changes = vec![
        ("--recompute selective".to_string(), with(work, Recompute::Selective, switches)),
        ("--recompute full".to_string(), with(work, Recompute::FULL, switches)),
        (
            "--sequence-parallel on".to_string(),
            with(work, same, Switches { sequence_parallel: SequenceParallel::On, ..switches }),
        ),
    ];
    for (name, sharding) in [("zero1", Sharding::Zero1), ("zero3", Sharding::Zero3)] {
        changes.push((format!("--optimizer-sharding {name}"), with(work, same, Switches { sharding, ..switches })));
    }
    if work.microbatch > 1 {
        changes.push(("b=1".to_string(), Workload { microbatch: 1, ..work.clone() }));
    }
    let Layout { tensor, pipeline, .. } = work.layout;
    let deeper = Layout { pipeline: 2 * pipeline, ..work.layout };
    changes.push((format!("p={} on twice the GPUs", 2 * pipeline), Workload { layout: deeper, ..work.clone() }));
    let wider = Layout { tensor: 2 * tensor, ..work.layout };
    changes.push((format!("t={} on twice the GPUs", 2 * tensor), Workload { layout: wider, ..work.clone() }));
    changes
}

fn fits(work: &Workload) -> bool {
    work.check().is_ok() && memory_bound(work, &step_cost(work).parameters) <= work.cluster.capacity()
}

/// The deeper pipeline on the fewest devices that holds the model: with this t, or with all
/// of a node.
fn more_gpus(work: &Workload) -> Option<Layout> {
    let widths = [work.layout.tensor, work.cluster.node_devices.max(work.layout.tensor)];
    let found = widths.into_iter().filter_map(|tensor| deeper(work, tensor));
    found.min_by_key(|layout| layout.ranks())
}

fn deeper(work: &Workload, tensor: usize) -> Option<Layout> {
    let schedule = henge_spec::ScheduleKind::OneForwardOneBackward;
    let layouts = (work.layout.pipeline..=work.model.layers).map(|pipeline| Layout {
        tensor,
        pipeline,
        chunks: 1,
        schedule,
        ..work.layout
    });
    layouts.into_iter().find(|layout| fits(&Workload { layout: *layout, ..work.clone() }))
}
