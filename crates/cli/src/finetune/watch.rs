//! What a person sees of a fine-tuning run, and the predictions that it leaves.

use crate::train::progress::Lines;
use henge_train::{EvaluationReport, KindReport, Observer, Receipt, StepReport, TrainError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A task's logits of each sequence, by set.
pub type Predictions = BTreeMap<String, Vec<Vec<f32>>>;

/// Lines of progress; keeps what is predicted.
pub struct Watch {
    pub lines: Lines,
    predictions: Mutex<Predictions>,
}

impl Watch {
    pub fn new(steps: u64) -> Self {
        Self { lines: Lines::new(steps), predictions: Mutex::default() }
    }

    /// What the run has predicted.
    pub fn take(&self) -> Predictions {
        std::mem::take(&mut self.predictions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Watch {
    fn step(&self, report: &StepReport) {
        self.lines.step(report);
    }

    fn evaluation(&self, report: &EvaluationReport) {
        self.lines.evaluation(report);
    }

    fn memory(&self, kinds: &[KindReport]) {
        self.lines.memory(kinds);
    }

    fn predicted(&self, set: &str, logits: &[Vec<f32>]) {
        self.predictions.lock().unwrap_or_else(PoisonError::into_inner).insert(set.to_string(), logits.to_vec());
    }

    fn saved(&self, step: u64, folder: &Path) {
        self.lines.saved(step, folder);
    }

    fn save_failed(&self, error: &TrainError) {
        self.lines.save_failed(error);
    }

    fn resumed(&self, receipt: &Receipt) {
        self.lines.resumed(receipt);
    }
}
