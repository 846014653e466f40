//! Why a layout wins: itself against its neighbours, in words.

use crate::fit::gib;
use crate::predict::{Prediction, predict};
use crate::{PlanError, Workload};
use henge_spec::{Layout, Recompute, ScheduleKind};

/// A neighbour of the best layout, one step away on one axis.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// The step, as in `t=16, p=6`.
    pub change: String,
    /// Its time over the best's; `None` where it does not fit.
    pub slowdown: Option<f64>,
    /// Why, in words.
    pub because: String,
}

/// The neighbours of a layout that keep the rules, in words.
///
/// # Errors
/// When the layout itself breaks a rule.
pub fn neighbours(work: &Workload) -> Result<Vec<Neighbour>, PlanError> {
    let best = predict(work)?;
    let legal = steps(work).into_iter().filter(|(_, other)| other.check().is_ok());
    legal.map(|(change, other)| compare(work, &best, change, &other)).collect()
}

fn compare(work: &Workload, best: &Prediction, change: String, other: &Workload) -> Result<Neighbour, PlanError> {
    let prediction = predict(other)?;
    let (stage, need) = prediction.fullest();
    let capacity = work.cluster.capacity();
    if need > capacity {
        let because = format!("does not fit: stage {stage} needs {}, {} too much", gib(need), gib(need - capacity));
        return Ok(Neighbour { change, slowdown: None, because });
    }
    let because = reasons(work, best, other, &prediction);
    Ok(Neighbour { change, slowdown: Some(prediction.seconds / best.seconds), because })
}

/// One step on each axis, the others as they are.
fn steps<'a>(work: &Workload<'a>) -> Vec<(String, Workload<'a>)> {
    let Layout { tensor: t, pipeline: p, data: d, chunks: v, .. } = work.layout;
    let b = work.microbatch;
    let grid = |tensor: usize, pipeline: usize, data: usize| {
        let layout = plain_if_needed(Layout { tensor, pipeline, data, ..work.layout });
        Workload { layout, ..work.clone() }
    };
    let mut steps = Vec::new();
    let mut add = |legal: bool, change: String, other: Workload<'a>| {
        if legal {
            steps.push((change, other));
        }
    };
    add(p % 2 == 0, format!("t={}, p={}", 2 * t, p / 2), grid(2 * t, p / 2, d));
    add(t % 2 == 0, format!("t={}, p={}", t / 2, 2 * p), grid(t / 2, 2 * p, d));
    add(d % 2 == 0, format!("t={}, d={}", 2 * t, d / 2), grid(2 * t, p, d / 2));
    add(t % 2 == 0, format!("t={}, d={}", t / 2, 2 * d), grid(t / 2, p, 2 * d));
    add(p % 2 == 0, format!("p={}, d={}", p / 2, 2 * d), grid(t, p / 2, 2 * d));
    add(d % 2 == 0, format!("p={}, d={}", 2 * p, d / 2), grid(t, 2 * p, d / 2));
    add(true, format!("b={}", 2 * b), Workload { microbatch: 2 * b, ..work.clone() });
    add(b.is_multiple_of(2), format!("b={}", b / 2), Workload { microbatch: b / 2, ..work.clone() });
    for chunks in [v - 1, v + 1].into_iter().filter(|chunks| *chunks > 0 && p > 1) {
        let schedule = if chunks > 1 { ScheduleKind::Interleaved } else { ScheduleKind::OneForwardOneBackward };
        let layout = Layout { chunks, schedule, ..work.layout };
        steps.push((format!("v={chunks}"), Workload { layout, ..work.clone() }));
    }
    let modes = [("none", Recompute::None), ("selective", Recompute::Selective), ("full", Recompute::FULL)];
    for (name, recompute) in modes.into_iter().filter(|(_, mode)| *mode != work.layout.recompute) {
        let layout = Layout { recompute, ..work.layout };
        steps.push((format!("recompute {name}"), Workload { layout, ..work.clone() }));
    }
    steps
}

/// One rank needs no chunks.
fn plain_if_needed(layout: Layout) -> Layout {
    if layout.pipeline > 1 {
        return layout;
    }
    Layout { chunks: 1, schedule: ScheduleKind::OneForwardOneBackward, ..layout }
}

/// The kinds of time that changed most, each with its factor, and the rule behind it.
fn reasons(work: &Workload, best: &Prediction, other: &Workload, prediction: &Prediction) -> String {
    let pairs = best.breakdown.named().into_iter().zip(prediction.breakdown.named());
    let mut changes: Vec<(&str, f64, f64)> = pairs.map(|((name, old), (_, new))| (name, old, new)).collect();
    changes.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    let faster = prediction.seconds < best.seconds;
    let worth = |change: &&(&str, f64, f64)| (change.2 - change.1).abs() > 0.005 * best.seconds;
    let words: Vec<String> = changes.iter().filter(worth).take(2).map(|change| changed(change, best.seconds)).collect();
    let place = crossing(work, other);
    match (words.is_empty(), place) {
        (true, _) => "about as fast".to_string(),
        (false, Some(place)) if !faster => format!("{place}: {}", words.join(", ")),
        (false, _) => words.join(", "),
    }
}

fn changed((name, old, new): &(&str, f64, f64), step: f64) -> String {
    let share = 100.0 * (new - old) / step;
    let factor = if new > old { new / old } else { old / new };
    match (old.min(*new) > 0.002 * step && factor >= 1.15, new > old) {
        (true, true) => format!("{name} {factor:.1}x longer ({share:+.1}% of the step)"),
        (true, false) => format!("{name} {factor:.1}x shorter ({share:+.1}% of the step)"),
        _ => format!("{name} {share:+.1}% of the step"),
    }
}

fn crossing(work: &Workload, other: &Workload) -> Option<String> {
    let node = work.cluster.node_devices;
    let (old, new) = (work.layout.tensor, other.layout.tensor);
    if old <= node && new > node {
        return Some(format!("t={new} crosses the node of {node}"));
    }
    let (old, new) = (work.layout.pipeline, other.layout.pipeline);
    if new > old {
        return Some(format!("{new} stages for {} microbatches", other.microbatches()));
    }
    (other.microbatches() < work.microbatches()).then(|| format!("only {} microbatches", other.microbatches()))
}
