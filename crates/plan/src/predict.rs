//! From a workload to its time, rate and memory: by simulation, or closed form in a search.

use crate::cost::{StepCost, step_cost};
use crate::jitter::Jitter;
use crate::memory::{RankMemory, memory, memory_bound};
use crate::simulate::{Durations, Observer, Outcome, simulate};
use crate::{PlanError, Workload};
use henge_schedule::{Kind, Program, Shape};
use henge_spec::formulas::{hardware_flops, model_flops};

/// Where the seconds of a step go, on the rank that the pipeline waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Breakdown {
    /// Matrix products and attention.
    pub compute: f64,
    /// Element-wise kernels.
    pub elementwise: f64,
    /// What recomputation repeats, of all kinds; not in the two above.
    pub recompute: f64,
    /// Tensor parallel communication that is waited for.
    pub tensor: f64,
    /// Messages between stages that are waited for.
    pub pipeline: f64,
    /// Idle in the pipeline.
    pub bubble: f64,
    /// Reductions over replicas and of the tied table that are waited for.
    pub data: f64,
    /// Optimizer.
    pub optimizer: f64,
}

impl Breakdown {
    /// Every kind with its name, in the order of the fields.
    pub fn named(&self) -> [(&'static str, f64); 8] {
        [
            ("products and attention", self.compute),
            ("element-wise", self.elementwise),
            ("recomputation", self.recompute),
            ("tensor parallel all-reduces", self.tensor),
            ("messages between stages", self.pipeline),
            ("pipeline bubble", self.bubble),
            ("data parallel reduction", self.data),
            ("optimizer", self.optimizer),
        ]
    }

    /// Sum over all kinds: the seconds of the step.
    pub fn total(&self) -> f64 {
        self.named().iter().map(|(_, seconds)| seconds).sum()
    }
}

/// What a step will take.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Seconds of a step.
    pub seconds: f64,
    /// FLOP/s of a device, recomputation not counted.
    pub model_rate: f64,
    /// FLOP/s of a device, recomputation counted as its source counts it.
    pub hardware_rate: f64,
    /// Bubble over ideal time.
    pub bubble_fraction: f64,
    /// Bubble over the step.
    pub bubble_share: f64,
    /// Where the seconds go.
    pub breakdown: Breakdown,
    /// By pipeline rank.
    pub memory: Vec<RankMemory>,
    /// The priced operations.
    pub cost: StepCost,
    /// The simulated step.
    pub outcome: Outcome,
}

impl Prediction {
    /// The rank that holds most, and its bytes.
    pub fn fullest(&self) -> (usize, f64) {
        let totals = self.memory.iter().map(RankMemory::total).enumerate();
        totals.max_by(|a, b| a.1.total_cmp(&b.1)).expect("a pipeline has at least one rank")
    }
}

/// Simulates a workload.
///
/// # Errors
/// When the layout breaks a rule.
pub fn predict(work: &Workload) -> Result<Prediction, PlanError> {
    observe(work, &Jitter::NONE, &mut ())
}

/// Simulates a workload with jitter, telling every stretch of time to `observer`.
///
/// # Errors
/// When the layout breaks a rule.
pub fn observe(work: &Workload, jitter: &Jitter, observer: &mut impl Observer) -> Result<Prediction, PlanError> {
    work.check()?;
    let program = Program::generate(work.shape())?;
    let cost = step_cost(work);
    let outcome = simulate(&program, &Durations::of(&cost, work.switches.overlap), jitter, observer);
    let memory = memory(work, &program, &cost.parameters);
    let devices = work.layout.ranks() as f64;
    let rate = |flops: f64| flops / (devices * outcome.seconds);
    Ok(Prediction {
        seconds: outcome.seconds,
        model_rate: rate(model_flops(work.model, work.batch as f64)),
        hardware_rate: rate(counted_flops(work)),
        bubble_fraction: outcome.bubble_fraction(),
        bubble_share: outcome.bubble() / outcome.seconds,
        breakdown: breakdown(work, &cost, &outcome),
        memory,
        cost,
        outcome,
    })
}

fn counted_flops(work: &Workload) -> f64 {
    hardware_flops(work.model, work.batch as f64, work.layout.recompute)
}

fn breakdown(work: &Workload, cost: &StepCost, outcome: &Outcome) -> Breakdown {
    let rank = outcome.busiest();
    let microbatches = work.microbatches() as f64;
    let mut split =
        Breakdown { pipeline: outcome.ranks[rank].messages, bubble: outcome.bubble(), ..Breakdown::default() };
    for stage in (rank..work.layout.stages()).step_by(work.layout.pipeline) {
        let all = cost.forward[stage] + cost.backward[stage];
        let again = cost.recompute[stage];
        split.compute += microbatches * (all.products + all.attention - again.products - again.attention);
        split.elementwise += microbatches * (all.elementwise - again.elementwise);
        split.tensor += microbatches * (all.tensor - again.tensor);
        split.recompute += microbatches * again.total();
        split.data += microbatches * all.data;
    }
    split.optimizer = cost.optimizer.iter().copied().fold(0.0, f64::max);
    split.data += (outcome.seconds - outcome.flush - split.optimizer).max(0.0);
    split
}

/// Seconds and bytes by closed form, within a few percent of the simulation; what a
/// search ranks and prunes by before it simulates the best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Seconds of a step.
    pub seconds: f64,
    /// Bytes of the fullest rank, at most.
    pub memory: f64,
}

/// Estimates a workload that keeps the rules: every stage once to fill and drain, the
/// slowest rank for all other microbatches, then reduction and optimizer.
pub fn estimate(work: &Workload, cost: &StepCost) -> Estimate {
    let shape = work.shape();
    let work_of = |rank: usize| rank_seconds(work, cost, rank);
    let ranks: Vec<f64> = (0..shape.pipeline).map(work_of).collect();
    let slowest = ranks.iter().copied().fold(0.0, f64::max);
    let fill = (ranks.iter().sum::<f64>() - slowest) / work.layout.chunks as f64;
    let flush = shape.microbatches as f64 * slowest + fill;
    Estimate { seconds: flush + after_flush(work, cost), memory: memory_bound(work, &cost.parameters) }
}

/// Seconds a rank spends on one microbatch, over all its chunks.
fn rank_seconds(work: &Workload, cost: &StepCost, rank: usize) -> f64 {
    let stages = work.layout.stages();
    let pipeline = work.layout.pipeline;
    let mut seconds = 0.0;
    for stage in (rank..stages).step_by(pipeline) {
        seconds += cost.forward[stage].total() + cost.backward[stage].total();
        let ahead = if stage + 1 < stages { cost.message[stage] } else { 0.0 };
        let back = if stage > 0 { cost.message[stage - 1] } else { 0.0 };
        seconds += exposed(&work.shape(), work.switches.overlap.pipeline, ahead + back);
    }
    seconds
}

/// Overlapped messages still delay 1F1B, whose p microbatches in flight are just enough
/// without them; more chunks or GPipe have microbatches to spare.
fn exposed(shape: &Shape, overlapped: bool, seconds: f64) -> f64 {
    match shape.kind {
        _ if !overlapped => seconds,
        Kind::OneForwardOneBackward => seconds * (shape.pipeline - 1) as f64 / shape.pipeline as f64,
        Kind::GPipe | Kind::Interleaved => 0.0,
    }
}

fn after_flush(work: &Workload, cost: &StepCost) -> f64 {
    let stage_reduce = |rank: usize| -> f64 {
        let share = |stage: usize| if work.switches.overlap.data { cost.reduce_tail[stage] } else { 1.0 };
        (rank..work.layout.stages()).step_by(work.layout.pipeline).map(|stage| share(stage) * cost.reduce[stage]).sum()
    };
    let reduce = stage_reduce(0).max(stage_reduce(work.layout.pipeline - 1));
    let step = cost.optimizer.iter().zip(&cost.gather).map(|(step, gather)| step + gather).fold(0.0, f64::max);
    reduce + cost.sync_embedding + step
}
