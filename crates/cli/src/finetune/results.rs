//! The scores of a task's runs: each seed's, their median and their ensemble's.

use super::data::Files;
use super::source::TaskExamples;
use super::watch::Predictions;
use crate::failure::Failure;
use henge_eval::downstream::{TaskReport, ensemble_logits, ensemble_probabilities, median_run};
use henge_spec::{Run, TaskHead};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// `results.json`.
#[derive(Serialize)]
pub struct Results {
    task: String,
    protocol: Stated,
    seeds: Vec<OfSeed>,
    sets: BTreeMap<String, OfSet>,
}

/// How it was trained.
#[derive(Serialize)]
struct Stated {
    /// Where values that nobody gave come from; every value is in each run's config.toml.
    source: String,
    steps: u64,
    /// Sequences.
    global_batch: usize,
    learning_rate: f64,
    warmup_steps: u64,
    training_examples: usize,
    length: usize,
    /// How the runs are joined.
    reported: &'static str,
}

#[derive(Serialize)]
struct OfSeed {
    seed: u64,
    steps: u64,
    folder: String,
    scores: BTreeMap<String, TaskReport>,
}

/// Of one scored file.
#[derive(Serialize)]
struct OfSet {
    /// 0 to 1: accuracy, or SQuAD's F1.
    median: f64,
    /// The run with that score.
    median_seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ensemble: Option<TaskReport>,
}

/// One seed's outputs by set, as examples.
pub struct Outputs {
    seed: u64,
    steps: u64,
    folder: String,
    by_set: Vec<Vec<Vec<f32>>>,
}

impl Outputs {
    /// What a run has predicted of each scored file.
    pub fn new(run: &Run, files: &Files, predictions: &Predictions) -> Self {
        let of = |(file, examples): &(String, Arc<TaskExamples>)| {
            examples.outputs(predictions.get(file).expect("every set is predicted"))
        };
        let by_set = files.valid.iter().map(of).collect();
        Self { seed: run.seed, steps: run.train.steps, folder: run.dir.clone(), by_set }
    }

    /// `seed 1234: dev.tsv 0.8123`.
    pub fn line(&self, files: &Files) -> String {
        let mut line = format!("seed {}:", self.seed);
        for ((file, examples), outputs) in files.valid.iter().zip(&self.by_set) {
            let _ = write!(line, " {file} {};", said(&examples.report(outputs)));
        }
        line.trim_end_matches(';').to_string()
    }
}

impl Results {
    /// The results of every seed of `run`.
    pub fn new(run: &Run, files: &Files, protocol: &str, outputs: &[Outputs]) -> Result<Self, Failure> {
        let task = run.task.as_ref().expect("a fine-tuning run has a task");
        let head = task.name.head();
        let mut sets = BTreeMap::new();
        for (index, (file, examples)) in files.valid.iter().enumerate() {
            let of_set: Vec<&[Vec<f32>]> = outputs.iter().map(|outputs| &outputs.by_set[index][..]).collect();
            sets.insert(file.clone(), of_one_set(examples, head, &of_set, outputs)?);
        }
        let seeds = outputs.iter().map(|outputs| of_seed(outputs, files)).collect();
        Ok(Self { task: task.name.to_string(), protocol: stated(run, files, protocol), seeds, sets })
    }

    /// The median and the ensemble of each file, as lines.
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for (file, OfSet { median, median_seed, ensemble }) in &self.sets {
            let seeds = self.seeds.len();
            let _ = writeln!(lines, "median of {seeds} seeds: {file} {median:.4} (seed {median_seed})");
            if let Some(report) = ensemble {
                let _ = writeln!(lines, "ensemble of {seeds} seeds: {file} {}", said(report));
            }
        }
        lines
    }
}

fn stated(run: &Run, files: &Files, protocol: &str) -> Stated {
    Stated {
        source: protocol.to_string(),
        steps: run.train.steps,
        global_batch: run.train.batching.global,
        learning_rate: run.train.optimizer.lr,
        warmup_steps: run.train.optimizer.warmup_steps,
        training_examples: files.train.len(),
        length: files.length,
        reported: "the median score over the seeds (1909.08053, section 5.3); ensembles: mean probabilities of \
                   classes, mean logits of spans",
    }
}

fn of_seed(outputs: &Outputs, files: &Files) -> OfSeed {
    let sets = files.valid.iter().zip(&outputs.by_set);
    let scores = sets.map(|((file, examples), outputs)| (file.clone(), examples.report(outputs))).collect();
    OfSeed { seed: outputs.seed, steps: outputs.steps, folder: outputs.folder.clone(), scores }
}

fn of_one_set(
    examples: &TaskExamples,
    head: TaskHead,
    runs: &[&[Vec<f32>]],
    outputs: &[Outputs],
) -> Result<OfSet, Failure> {
    let scores: Vec<f64> = runs.iter().map(|run| examples.report(run).score()).collect();
    let median = median_run(&scores);
    let of_example = |example: usize| {
        let models: Vec<&[f32]> = runs.iter().map(|run| &run[example][..]).collect();
        match head {
            TaskHead::Span => ensemble_logits(&models),
            TaskHead::Classes(classes) | TaskHead::Choice(classes) => ensemble_probabilities(&models, classes),
        }
    };
    let ensemble = if runs.len() > 1 {
        let joined = (0..examples.len()).map(of_example).collect::<Result<Vec<_>, _>>()?;
        Some(examples.report(&joined))
    } else {
        None
    };
    Ok(OfSet { median: median.score, median_seed: outputs[median.run].seed, ensemble })
}

/// A report's main numbers.
pub fn said(report: &TaskReport) -> String {
    match report {
        TaskReport::Classes(scores) => match scores.f1 {
            Some(f1) => format!("accuracy {:.4}, F1 {f1:.4}", scores.accuracy),
            None => format!("accuracy {:.4}", scores.accuracy),
        },
        TaskReport::Race(scores) => format!("accuracy {:.4}", scores.all.accuracy),
        TaskReport::Squad(report) => format!("exact match {:.2}, F1 {:.2}", report.all.exact_match, report.all.f1),
    }
}
