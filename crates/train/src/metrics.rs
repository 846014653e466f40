//! The numbers of a run: one line of JSON a step.

use crate::TrainError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// One step, as a line of `metrics.jsonl`.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// Number of the step, from 1.
    pub step: u64,
    /// Mean loss over the scored targets of the global batch.
    pub loss: f64,
    /// Learning rate of the update.
    pub lr: f64,
    /// Global norm before clipping.
    pub grad_norm: f64,
    /// Loss scale in force (1 without scaling).
    pub loss_scale: f64,
    /// Whether the update was skipped because of an overflow.
    pub skipped: bool,
    /// Sequences consumed so far.
    pub samples: u64,
    /// Tokens consumed so far.
    pub tokens: u64,
    /// Wall-clock seconds of the step.
    pub step_seconds: f64,
    /// Tokens over seconds.
    pub tokens_per_second: f64,
    /// Model FLOP a second over all ranks, in units of 10^12.
    pub model_tflops: f64,
    /// Share of the measured peak of the cores in use; absent where it was not measured.
    pub mfu: Option<f64>,
    /// Bytes held by rank 0 at most so far, all kinds.
    pub held_bytes: u64,
    /// Gradient norm of each parameter under its Hugging Face name, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradients: Option<BTreeMap<String, f64>>,
}

/// One evaluation, as a line of `metrics.jsonl`.
#[derive(Clone, Debug, Serialize)]
pub struct EvaluationReport {
    /// Steps trained before it.
    pub step: u64,
    /// Which validation set.
    pub set: String,
    /// Mean loss over its scored targets.
    pub eval_loss: f64,
    /// `exp(eval_loss)`.
    pub perplexity: f64,
    /// Scored targets.
    pub targets: u64,
}

/// Told of a run's progress, on rank 0.
pub trait Observer: Send + Sync {
    /// A step is done and its line is written.
    fn step(&self, report: &StepReport);
    /// An evaluation is done and its line is written.
    fn evaluation(&self, report: &EvaluationReport);
}

/// `metrics.jsonl`: each line is written whole.
pub struct MetricsFile {
    path: PathBuf,
    file: File,
}

impl MetricsFile {
    /// Opens a run's file for more lines.
    pub fn append_to(path: &Path) -> Result<Self, TrainError> {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let file = opened.map_err(|source| TrainError::Output { path: path.display().to_string(), source })?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Adds one line by one write.
    pub fn line(&mut self, record: &impl Serialize) -> Result<(), TrainError> {
        let mut line = serde_json::to_string(record).map_err(std::io::Error::other).map_err(|e| self.failed(e))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: std::io::Error) -> TrainError {
        TrainError::Output { path: self.path.display().to_string(), source }
    }
}
