//! Questions that a plan answers beside the best layout.

use crate::fit::gib;
use crate::search::{Ranking, Request, search};
use crate::{Cluster, PlanError};
use henge_spec::formulas::parameters;
use henge_spec::{Model, preset};

/// A number of devices and what it takes with them.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Devices.
    pub gpus: usize,
    /// Days for the tokens asked for.
    pub days: f64,
    /// Device hours.
    pub gpu_hours: f64,
    /// The best layout in words.
    pub layout: String,
}

/// Seconds of training on `tokens` tokens at `step` seconds a step.
pub fn training_seconds(model: &Model, batch: usize, step: f64, tokens: f64) -> f64 {
    tokens / (batch * model.seq_len) as f64 * step
}

/// The smallest number of devices, among whole nodes times powers of two and three halves
/// of them, that finishes in time; and what the smaller ones tried would take.
///
/// # Errors
/// When no number up to 2^17 devices is fast enough or nothing fits at all.
pub fn gpus_for(request: &Request, tokens: f64, days: f64) -> Result<Vec<Scale>, PlanError> {
    let mut tried = Vec::new();
    let mut last_error = None;
    for gpus in sizes(request.cluster.node_devices) {
        match search(&Request { gpus, simulated: 5, ..request.clone() }) {
            Ok(ranking) => {
                let option = option(request, gpus, &ranking, tokens);
                let enough = option.days <= days;
                tried.push(option);
                if enough {
                    return Ok(tried);
                }
            }
            Err(error) => last_error = Some(error),
        }
    }
    let slowest = tried.iter().map(|option| option.days).fold(f64::INFINITY, f64::min);
    Err(match (tried.is_empty(), last_error) {
        (true, Some(error)) => error,
        _ => PlanError::DoesNotFit(format!(
            "{tokens:.3e} tokens in {days} days: even the fastest of the numbers tried takes {slowest:.1} days; \
             raise the batch (now {} sequences) or allow more days",
            request.batch
        )),
    })
}

fn option(request: &Request, gpus: usize, ranking: &Ranking, tokens: f64) -> Scale {
    let best = &ranking.best[0];
    let seconds = training_seconds(request.model, request.batch, best.prediction.seconds, tokens);
    let at = Request { gpus, ..request.clone() };
    Scale {
        gpus,
        days: seconds / 86_400.0,
        gpu_hours: seconds / 3600.0 * gpus as f64,
        layout: at.workload(&best.candidate).words(),
    }
}

/// Whole nodes: 1, 2, 3, 4, 6, 8, 12, ... of them.
fn sizes(node: usize) -> Vec<usize> {
    let powers = (0..17).map(|power| node << power);
    let mut all: Vec<usize> = powers.flat_map(|gpus| [gpus, gpus / 2 * 3]).filter(|gpus| gpus % node == 0).collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|gpus| *gpus <= 1 << 17);
    all
}

/// The largest of the papers' GPT shapes that fits on the request's devices: its name, its
/// parameters and its need.
pub fn largest_model(request: &Request) -> Option<(&'static str, f64, String)> {
    const SHAPES: [&str; 11] = [
        "gpt-1t",
        "gpt-529.6b",
        "gpt-310.1b",
        "gpt3-175b",
        "gpt-76.1b",
        "gpt-39.1b",
        "gpt-18.4b",
        "gpt-7.5b",
        "gpt-3.6b",
        "gpt-1.7b",
        "gpt3-350m",
    ];
    SHAPES.into_iter().find_map(|name| {
        let model = preset(name)?;
        let ranking = search(&Request { model: &model, simulated: 1, ..request.clone() }).ok()?;
        let (_, need) = ranking.best[0].prediction.fullest();
        Some((name, parameters(&model), gib(need)))
    })
}

/// Seconds of the best layout where the network cards, or the links of a node, are
/// `factor` times as fast: what a faster network would buy.
///
/// # Errors
/// As [`search`].
pub fn with_network(request: &Request, cards: f64, links: f64) -> Result<f64, PlanError> {
    let cluster = Cluster {
        card_bandwidth: request.cluster.card_bandwidth * cards,
        link_bandwidth: request.cluster.link_bandwidth * links,
        ..request.cluster.clone()
    };
    let ranking = search(&Request { cluster: &cluster, simulated: 5, ..request.clone() })?;
    Ok(ranking.best[0].prediction.seconds)
}
