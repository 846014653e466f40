//! Search over layouts: all legal ones by closed form, the best by simulation.

use crate::cost::{StepCost, step_cost};
use crate::predict::{Estimate, Prediction, estimate, predict};
use crate::{Cluster, PlanError, Switches, Workload};
use henge_spec::formulas::Attention;
use henge_spec::{Layout, Model, Recompute, ScheduleKind};

/// What to search.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The machines.
    pub cluster: &'a Cluster,
    /// The model.
    pub model: &'a Model,
    /// Devices to use, all of them.
    pub gpus: usize,
    /// Sequences of a step.
    pub batch: usize,
    /// Software to consider; more than one where switches are free.
    pub switches: Vec<Switches>,
    /// Recomputation modes to consider.
    pub recompute: Vec<Recompute>,
    /// Largest microbatch to consider.
    pub largest_microbatch: usize,
    /// How many of the best by closed form to simulate.
    pub simulated: usize,
}

impl<'a> Request<'a> {
    /// A search over all layouts and recomputation modes with fixed switches.
    pub fn new(cluster: &'a Cluster, model: &'a Model, gpus: usize, batch: usize, switches: Switches) -> Self {
        Self {
            cluster,
            model,
            gpus,
            batch,
            switches: vec![switches],
            recompute: vec![Recompute::None, Recompute::Selective, Recompute::FULL],
            largest_microbatch: 64,
            simulated: 20,
        }
    }

    /// The workload of a candidate.
    pub fn workload(&self, candidate: &Candidate) -> Workload<'a> {
        Workload {
            cluster: self.cluster,
            model: self.model,
            layout: candidate.layout,
            microbatch: candidate.microbatch,
            batch: self.batch,
            switches: candidate.switches,
        }
    }
}

/// A legal layout with its closed form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The split.
    pub layout: Layout,
    /// Sequences of a microbatch.
    pub microbatch: usize,
    /// The software.
    pub switches: Switches,
    /// By closed form.
    pub estimate: Estimate,
}

/// A simulated candidate.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The layout.
    pub candidate: Candidate,
    /// Its simulation.
    pub prediction: Prediction,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// Simulated layouts that fit, fastest first.
    pub best: Vec<Ranked>,
    /// Legal layouts.
    pub legal: usize,
    /// Legal layouts that fit.
    pub fitting: usize,
}

/// Searches.
///
/// # Errors
/// [`PlanError::NoLayout`] when no legal layout exists, [`PlanError::DoesNotFit`] when none
/// fits, with the bytes missing and what would help.
pub fn search(request: &Request) -> Result<Ranking, PlanError> {
    let all = candidates(request);
    if all.is_empty() {
        return Err(no_layout(request));
    }
    let capacity = request.cluster.capacity();
    let mut fitting: Vec<Candidate> =
        all.iter().filter(|candidate| candidate.estimate.memory <= capacity).copied().collect();
    if fitting.is_empty() {
        return Err(crate::fit::does_not_fit(request, &all));
    }
    fitting.sort_by(|a, b| a.estimate.seconds.total_cmp(&b.estimate.seconds));
    let mut best = Vec::new();
    for candidate in &fitting {
        let prediction = predict(&request.workload(candidate))?;
        // The closed form is a bound for the ranks that hold most; the walk has the last word.
        if prediction.fullest().1 <= capacity {
            best.push(Ranked { candidate: *candidate, prediction });
        }
        if best.len() == request.simulated.max(1) {
            break;
        }
    }
    if best.is_empty() {
        return Err(crate::fit::does_not_fit(request, &all));
    }
    best.sort_by(|a, b| a.prediction.seconds.total_cmp(&b.prediction.seconds));
    Ok(Ranking { best, legal: all.len(), fitting: fitting.len() })
}

fn no_layout(request: &Request) -> PlanError {
    PlanError::NoLayout {
        gpus: request.gpus,
        batch: request.batch,
        layers: request.model.layers,
        heads: request.model.heads,
        fix: "use a number of GPUs whose factors divide the heads (t), the layers (p) and the batch (d), \
              for instance a power of two"
            .to_string(),
    }
}

/// Every legal layout with its closed form.
pub fn candidates(request: &Request) -> Vec<Candidate> {
    let mut found = Vec::new();
    for tensor in divisors(request.gpus).into_iter().filter(|t| request.model.heads.is_multiple_of(*t)) {
        for pipeline in divisors(request.gpus / tensor) {
            let data = request.gpus / tensor / pipeline;
            if pipeline <= request.model.layers && request.batch.is_multiple_of(data) {
                of_grid(request, Layout { tensor, pipeline, data, ..Layout::ONE }, &mut found);
            }
        }
    }
    found
}

fn of_grid(request: &Request, grid: Layout, found: &mut Vec<Candidate>) {
    let per_replica = request.batch / grid.data;
    let microbatches = divisors(per_replica).into_iter().filter(|b| *b <= request.largest_microbatch);
    for microbatch in microbatches {
        for &recompute in &request.recompute {
            for switches in request.switches.iter().filter(|switches| !is_twin(request, recompute, switches)) {
                let layout = Layout { recompute, ..grid };
                of_microbatch(request, layout, microbatch, *switches, found);
            }
        }
    }
}

/// Selective recomputation of scores that never exist is no recomputation.
fn is_twin(request: &Request, recompute: Recompute, switches: &Switches) -> bool {
    recompute == Recompute::Selective
        && switches.attention == Attention::Flash
        && request.recompute.contains(&Recompute::None)
}

fn of_microbatch(request: &Request, grid: Layout, microbatch: usize, switches: Switches, found: &mut Vec<Candidate>) {
    for (chunks, schedule) in schedules(grid.pipeline, request.model.layers) {
        let layout = Layout { chunks, schedule, ..grid };
        let Request { cluster, model, batch, .. } = *request;
        let work = Workload { cluster, model, layout, microbatch, batch, switches };
        if work.check().is_ok() {
            let cost: StepCost = step_cost(&work);
            found.push(Candidate { layout, microbatch, switches, estimate: estimate(&work, &cost) });
        }
    }
}

/// Plain 1F1B, GPipe where there is a pipeline, and interleaving over every number of chunks.
fn schedules(pipeline: usize, layers: usize) -> Vec<(usize, ScheduleKind)> {
    let mut all = vec![(1, ScheduleKind::OneForwardOneBackward)];
    if pipeline > 1 {
        all.push((1, ScheduleKind::GPipe));
        all.extend((2..=layers / pipeline + 1).map(|chunks| (chunks, ScheduleKind::Interleaved)));
    }
    all
}

fn divisors(number: usize) -> Vec<usize> {
    let small = (1..).take_while(|factor| factor * factor <= number).filter(|factor| number.is_multiple_of(*factor));
    let mut all: Vec<usize> = small.flat_map(|factor| [factor, number / factor]).collect();
    all.sort_unstable();
    all.dedup();
    all
}
