//! Table 1 against a search over what its authors could have chosen.
//!
//! The artifact of arXiv 2104.04473 had full recomputation, no sequence parallelism, no
//! sharded optimizer and no overlapped messages (papers' artifact, `schedules.py`); without
//! a pipeline it had the overlapping DDP. Interleaving needs three ranks or more.

use super::rows::all_series;
use crate::search::{Ranked, Request, search};
use crate::switches::Overlap;
use crate::{PlanError, Prediction, Stack, Workload, predict};
use henge_spec::Recompute;

/// A row of Table 1 and what a search finds.
#[derive(Clone, Debug)]
pub struct ArtifactRow {
    /// The row's name.
    pub label: String,
    /// The paper's layout in words.
    pub layout: String,
    /// The paper's layout, predicted.
    pub paper: Prediction,
    /// The best layout of the artifact, in words.
    pub best_layout: String,
    /// The best layout of the artifact, predicted.
    pub best: Prediction,
    /// The best layout with everything that exists today, in words.
    pub modern_layout: String,
    /// Its step time.
    pub modern_seconds: f64,
}

impl ArtifactRow {
    /// Time of the paper's layout over the best.
    pub fn ratio(&self) -> f64 {
        self.paper.seconds / self.best.seconds
    }
}

/// Searches for every row of Table 1.
///
/// # Errors
/// As [`search`]; a test runs it.
pub fn artifact_rows() -> Result<Vec<ArtifactRow>, PlanError> {
    let mut rows = Vec::new();
    for series in all_series().into_iter().filter(|series| series.family == "table-1") {
        for row in &series.rows {
            let question = series.question(row)?;
            rows.push(artifact_row(&row.label, &question.workload())?);
        }
    }
    Ok(rows)
}

fn artifact_row(label: &str, work: &Workload) -> Result<ArtifactRow, PlanError> {
    let (gpus, switches) = (work.layout.ranks(), Stack::Sc21.switches());
    let base = Request::new(work.cluster, work.model, gpus, work.batch, switches);
    let (best_layout, best) = best_of_artifact(&base)?;
    let modern = search(&Request { switches: vec![Stack::Modern.switches()], simulated: 5, ..base.clone() })?;
    let winner = &modern.best[0];
    Ok(ArtifactRow {
        label: label.to_string(),
        layout: work.words(),
        paper: predict(work)?,
        best_layout,
        best,
        modern_layout: base.workload(&winner.candidate).words(),
        modern_seconds: winner.prediction.seconds,
    })
}

fn best_of_artifact(base: &Request) -> Result<(String, Prediction), PlanError> {
    let request = Request { recompute: vec![Recompute::FULL], ..base.clone() };
    let overlapping = crate::Switches { overlap: Overlap { data: true, ..Overlap::NONE }, ..base.switches[0] };
    let ddp = Request { switches: vec![overlapping], ..request.clone() };
    let legal = |ranked: &&Ranked| {
        let layout = ranked.candidate.layout;
        layout.chunks == 1 || layout.pipeline > 2
    };
    let alone = |ranked: &&Ranked| ranked.candidate.layout.pipeline == 1;
    let (piped, flat) = (search(&request)?, search(&ddp)?);
    let all = piped.best.iter().filter(legal).chain(flat.best.iter().filter(alone));
    let best = all.min_by(|a, b| a.prediction.seconds.total_cmp(&b.prediction.seconds));
    let best = best.ok_or_else(|| PlanError::DoesNotFit("no layout of the artifact".to_string()))?;
    Ok((request.workload(&best.candidate).words(), best.prediction.clone()))
}
