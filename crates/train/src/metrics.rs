//! The numbers of a run: one line of JSON a step.

use crate::{EventFile, KindReport, Receipt, TrainError};
use henge_files::write_atomic;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One step, as a line of `metrics.jsonl`.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// Number of the step, from 1.
    pub step: u64,
    /// Mean loss over the scored targets of the global batch.
    pub loss: f64,
    /// An encoder's part of the loss over masked tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masked_loss: Option<f64>,
    /// An encoder's part of the loss over the order of sentences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_loss: Option<f64>,
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
    /// Seconds of it that rank 0 waited for its sequences.
    pub data_seconds: f64,
    /// Seconds for which a save held the run up before this step; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub save_seconds: Option<f64>,
    /// Tokens over seconds.
    pub tokens_per_second: f64,
    /// Model FLOP a second over all ranks, in units of 10^12.
    pub model_tflops: f64,
    /// Share of the measured peak of the cores in use; absent where it was not measured.
    pub mfu: Option<f64>,
    /// Bytes that rank 0 holds between steps; `memory.json` has the most at once, by kind.
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
    /// `exp` of the mean loss over tokens.
    pub perplexity: f64,
    /// An encoder's part of the loss over masked tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masked_loss: Option<f64>,
    /// An encoder's part of the loss over the order of sentences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_loss: Option<f64>,
    /// Scored targets.
    pub targets: u64,
}

/// A report that is written to a run's folder.
pub trait Record: Serialize {
    /// Number of the step that it belongs to.
    fn step(&self) -> u64;
    /// What TensorBoard shows its numbers under: `train`, `valid/books`.
    fn series(&self) -> String;
}

impl Record for StepReport {
    fn step(&self) -> u64 {
        self.step
    }

    fn series(&self) -> String {
        "train".to_string()
    }
}

impl Record for EvaluationReport {
    fn step(&self) -> u64 {
        self.step
    }

    fn series(&self) -> String {
        format!("valid/{}", self.set)
    }
}

/// Told of a run's progress, on rank 0.
pub trait Observer: Send + Sync {
    /// A step is done and its line is written.
    fn step(&self, report: &StepReport);
    /// An evaluation is done and its line is written.
    fn evaluation(&self, report: &EvaluationReport);
    /// The first step is done, and this much is held. Nobody needs to listen.
    fn memory(&self, kinds: &[KindReport]) {
        let _ = kinds;
    }
    /// A fine-tuned model's logits of each sequence of a set, in order. Nobody needs to listen.
    fn predicted(&self, set: &str, logits: &[Vec<f32>]) {
        let _ = (set, logits);
    }
    /// A checkpoint is whole on the device.
    fn saved(&self, step: u64, folder: &Path);
    /// A save failed while the run was ending of something else; the checkpoint before it stays.
    fn save_failed(&self, error: &TrainError) {
        let _ = error;
    }
    /// The run goes on from a checkpoint.
    fn resumed(&self, receipt: &Receipt);
}

/// `metrics.jsonl`: each line is written whole.
pub struct MetricsFile {
    path: PathBuf,
    file: File,
}

impl MetricsFile {
    /// Opens a run's file for the lines after `step`. Lines of later steps, and one that a
    /// kill cut short, go: their steps will be taken again.
    pub fn go_on(path: &Path, step: u64) -> Result<Self, TrainError> {
        let failed = |source| TrainError::Output { path: path.display().to_string(), source };
        let text = match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            // A line that a power cut left damaged is no JSON, and goes.
            bytes => String::from_utf8_lossy(&bytes.map_err(failed)?).into_owned(),
        };
        let kept = kept(&text, step);
        if kept.len() < text.len() {
            write_atomic(path, |file| file.write_all(kept.as_bytes()))
                .map_err(|error| failed(io::Error::other(error)))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Flushes every line to the device.
    pub fn sync(&mut self) -> Result<(), TrainError> {
        self.file.sync_data().map_err(|error| self.failed(error))
    }

    /// Adds one line by one write.
    pub fn line(&mut self, record: &impl Serialize) -> Result<(), TrainError> {
        let mut line = serde_json::to_string(record).map_err(io::Error::other).map_err(|e| self.failed(e))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> TrainError {
        TrainError::Output { path: self.path.display().to_string(), source }
    }
}

/// The whole lines of steps up to `step`.
fn kept(text: &str, step: u64) -> String {
    let step_of = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.filter(|line| step_of(line).is_some_and(|of| of <= step)).collect()
}

/// Both forms of a run's numbers: `metrics.jsonl` and the event files of `tensorboard/`.
pub struct RunLog {
    metrics: MetricsFile,
    events: EventFile,
}

impl RunLog {
    /// Opens the log of a run's folder, whose next step is `first_step` (from 1).
    ///
    /// # Errors
    /// [`TrainError::Output`] where a file cannot be opened or written.
    pub fn open(folder: &Path, first_step: u64) -> Result<Self, TrainError> {
        let metrics = MetricsFile::go_on(&folder.join("metrics.jsonl"), first_step - 1)?;
        let events = EventFile::create(&folder.join("tensorboard"), first_step)?;
        Ok(Self { metrics, events })
    }

    /// Flushes every line of the metrics to the device.
    pub fn sync(&mut self) -> Result<(), TrainError> {
        self.metrics.sync()
    }

    /// Adds a report to both.
    ///
    /// # Errors
    /// [`TrainError::Output`] where a file cannot be written.
    pub fn line(&mut self, record: &impl Record) -> Result<(), TrainError> {
        self.metrics.line(record)?;
        let fields = serde_json::to_value(record).map_err(|error| self.metrics.failed(std::io::Error::other(error)))?;
        let mut values = Vec::new();
        scalars(&record.series(), &fields, &mut values);
        self.events.scalars(record.step(), &values)
    }
}

/// Every number below `value` under its path, but for the step itself; a switch counts 0
/// or 1. JSON has no numbers that are not finite, so none come here.
fn scalars(path: &str, value: &Value, out: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(number) => out.extend(number.as_f64().map(|number| (path.to_string(), number))),
        Value::Bool(switch) => out.push((path.to_string(), f64::from(u8::from(*switch)))),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "step");
            fields.for_each(|(name, value)| scalars(&format!("{path}/{name}"), value, out));
        }
        Value::Null | Value::String(_) | Value::Array(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> StepReport {
        StepReport {
            step: 7,
            masked_loss: None,
            order_loss: None,
            loss: 3.5,
            lr: 1e-4,
            grad_norm: 0.5,
            loss_scale: 1.0,
            skipped: true,
            samples: 56,
            tokens: 448,
            step_seconds: 0.25,
            data_seconds: 0.01,
            save_seconds: None,
            tokens_per_second: 256.0,
            model_tflops: 0.125,
            mfu: None,
            held_bytes: 1 << 20,
            gradients: Some(BTreeMap::from([("wte.weight".to_string(), 0.75)])),
        }
    }

    #[test]
    fn tensorboard_gets_every_number_of_a_step_and_of_an_evaluation() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = RunLog::open(folder.path(), 7).unwrap();
        log.line(&report()).unwrap();
        let set = "corpora/books".to_string();
        let evaluation = EvaluationReport {
            step: 7,
            set,
            eval_loss: 2.0,
            perplexity: 7.389,
            targets: 99,
            masked_loss: None,
            order_loss: None,
        };
        log.line(&evaluation).unwrap();

        let mut values = Vec::new();
        scalars("train", &serde_json::to_value(report()).unwrap(), &mut values);
        let names: Vec<&str> = values.iter().map(|(name, _)| name.trim_start_matches("train/")).collect();
        let expected = "data_seconds grad_norm gradients/wte.weight held_bytes loss loss_scale lr model_tflops samples skipped \
                        step_seconds tokens tokens_per_second";
        assert_eq!(names.join(" "), expected);
        assert!(values.contains(&("train/gradients/wte.weight".to_string(), 0.75)));
        assert!(values.contains(&("train/skipped".to_string(), 1.0)));

        let events = std::fs::read(log.events.path()).unwrap();
        for name in ["train/loss", "valid/corpora/books/eval_loss"] {
            assert!(events.windows(name.len()).any(|window| window == name.as_bytes()), "{name}");
        }
        let lines = std::fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), 2);
    }

    #[test]
    fn lines_past_the_checkpoint_and_half_lines_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let lines =
            ["{\"step\":1,\"loss\":2.0}\n", "{\"step\":2,\"eval_loss\":2.0}\n", "{\"step\":3}\n", "{\"step\":1"];
        std::fs::write(&path, lines.concat()).unwrap();
        let mut file = MetricsFile::go_on(&path, 2).unwrap();
        file.line(&serde_json::json!({ "step": 3 })).unwrap();
        file.sync().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), [lines[0], lines[1], lines[2]].concat());
    }
}
