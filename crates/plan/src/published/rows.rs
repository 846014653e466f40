//! The published rows: parsing, and prediction of one.

use crate::cost::layer_cost;
use crate::switches::Switches;
use crate::{Cluster, PlanError, Stack, Workload, predict};
use henge_spec::formulas::{Attention, SequenceParallel, parameters};
use henge_spec::{Layout, Model, Recompute, ScheduleKind, preset};
use serde::Deserialize;

/// What a row prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// TFLOP/s of a device, recomputation counted.
    HardwareTflops,
    /// TFLOP/s of a device, recomputation not counted.
    ModelTflops,
    /// Seconds of a step.
    Seconds,
    /// Sequences per second of the whole machine.
    SequencesPerSecond,
    /// Tokens per second and device.
    TokensPerSecondPerGpu,
    /// Parameters x sequences per second and device against the 1.2B model on one device,
    /// percent: how 1909.08053 measures scaling.
    EfficiencyPercent,
    /// Step time of the 1.2B model on one device over this one's.
    SpeedUp,
    /// Milliseconds of one layer's forward.
    LayerForwardMilliseconds,
    /// Milliseconds of one layer's backward, recomputation included.
    LayerBackwardMilliseconds,
}

/// Settings a source does not say, and the values they may have.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Unknown {
    b: Vec<usize>,
    v: Vec<usize>,
    recompute: Vec<String>,
}

/// One printed value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name within the series.
    pub label: String,
    /// As printed.
    pub value: f64,
    preset: Option<String>,
    layers: Option<usize>,
    hidden: Option<usize>,
    heads: Option<usize>,
    seq: Option<usize>,
    vocab: Option<usize>,
    t: usize,
    p: usize,
    d: usize,
    v: usize,
    b: usize,
    batch: usize,
    recompute: Option<String>,
    sequence_parallel: Option<String>,
    scatter_gather: Option<String>,
    overlap: Option<String>,
    sharding: Option<String>,
    precision: Option<String>,
    quantity: Option<Quantity>,
    counted: Option<bool>,
}

/// Rows of one table or figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Short name of the table or figure.
    pub family: String,
    /// One line for a person, with the unit.
    pub title: String,
    /// Where it is printed.
    pub source: String,
    /// Catalogue name of the machines.
    pub cluster: String,
    stack: String,
    quantity: Quantity,
    recompute: String,
    /// The last printed digit.
    pub rounding: f64,
    #[serde(default = "counted")]
    counted: bool,
    /// Whether constants were fitted on it.
    #[serde(default)]
    pub fitted: bool,
    /// What a reader must know.
    #[serde(default)]
    pub note: String,
    seq: Option<usize>,
    vocab: Option<usize>,
    #[serde(default)]
    untied: bool,
    precision: Option<String>,
    /// What the source does not say.
    #[serde(default)]
    pub unknown: Unknown,
    /// The values.
    pub rows: Vec<Row>,
}

fn counted() -> bool {
    true
}

#[derive(Deserialize)]
struct File {
    series: Vec<Series>,
}

/// Every published series, in the order of the sources.
///
/// # Panics
/// When the compiled-in file is damaged; a test reads it.
pub fn all_series() -> Vec<Series> {
    let file: File =
        toml::from_str(include_str!("../../published/rows.toml")).expect("published/rows.toml is read in tests");
    file.series
}

/// A row's question, ready to be asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The machines.
    pub cluster: Cluster,
    /// The model.
    pub model: Model,
    layout: Layout,
    microbatch: usize,
    batch: usize,
    switches: Switches,
    quantity: Quantity,
}

impl Question {
    /// As a workload.
    pub fn workload(&self) -> Workload<'_> {
        Workload {
            cluster: &self.cluster,
            model: &self.model,
            layout: self.layout,
            microbatch: self.microbatch,
            batch: self.batch,
            switches: self.switches,
        }
    }

    /// The row's quantity as predicted.
    ///
    /// # Errors
    /// When the layout breaks a rule.
    pub fn answer(&self) -> Result<f64, PlanError> {
        if self.is_one_layer() {
            return Ok(self.layer());
        }
        let step = predict(&self.workload())?;
        let tokens = (self.batch * self.model.seq_len) as f64;
        Ok(match self.quantity {
            Quantity::HardwareTflops => step.hardware_rate / 1e12,
            Quantity::ModelTflops => step.model_rate / 1e12,
            Quantity::SequencesPerSecond => self.batch as f64 / step.seconds,
            Quantity::TokensPerSecondPerGpu => tokens / step.seconds / self.layout.ranks() as f64,
            Quantity::EfficiencyPercent => 100.0 * self.progress(step.seconds) / self.baseline()?.0,
            Quantity::SpeedUp => self.baseline()?.1 / step.seconds,
            _ => step.seconds,
        })
    }

    /// Parameters x sequences per second and device.
    fn progress(&self, seconds: f64) -> f64 {
        parameters(&self.model) * self.batch as f64 / (self.layout.ranks() as f64 * seconds)
    }

    /// Progress and seconds of the first paper's baseline: 1.2B, batch 8, one device.
    fn baseline(&self) -> Result<(f64, f64), PlanError> {
        let one = Layout { recompute: self.layout.recompute, ..Layout::ONE };
        let model = Model::gpt(40, 1536, 16, 1024, 50_257);
        let base = Self { model, layout: one, microbatch: 8, batch: 8, ..self.clone() };
        let seconds = predict(&base.workload())?.seconds;
        Ok((base.progress(seconds), seconds))
    }

    /// Whether only one layer was measured, not a step.
    pub fn is_one_layer(&self) -> bool {
        matches!(self.quantity, Quantity::LayerForwardMilliseconds | Quantity::LayerBackwardMilliseconds)
    }

    fn layer(&self) -> f64 {
        let Layout { tensor, recompute, .. } = self.layout;
        let cost = layer_cost(&self.cluster, &self.model, tensor, self.microbatch, recompute, &self.switches);
        1e3 * match self.quantity {
            Quantity::LayerForwardMilliseconds => cost.forward.total(),
            _ => cost.backward.total() + cost.recompute.total(),
        }
    }

    /// The same with other constants, for fitting.
    pub fn on(&self, cluster: Cluster) -> Self {
        Self { cluster, ..self.clone() }
    }
}

impl Series {
    /// Whether a row enters the error figure: its settings are published.
    pub fn counts(&self, row: &Row) -> bool {
        let known = self.unknown == Unknown::default();
        known && row.counted.unwrap_or(self.counted)
    }

    /// The question of a row with the settings that stand in it.
    ///
    /// # Errors
    /// When the file names something that does not exist.
    pub fn question(&self, row: &Row) -> Result<Question, PlanError> {
        let recompute = recompute(row.recompute.as_deref().unwrap_or(&self.recompute))?;
        let schedule = if row.v > 1 { ScheduleKind::Interleaved } else { ScheduleKind::OneForwardOneBackward };
        let (tensor, pipeline, data, chunks) = (row.t, row.p, row.d, row.v);
        Ok(Question {
            cluster: Cluster::named(&self.cluster)?,
            model: self.model(row),
            layout: Layout { tensor, pipeline, data, chunks, schedule, recompute },
            microbatch: row.b,
            batch: row.batch,
            switches: self.switches(row)?,
            quantity: row.quantity.unwrap_or(self.quantity),
        })
    }

    fn model(&self, row: &Row) -> Model {
        if let Some(model) = row.preset.as_deref().and_then(preset) {
            return model;
        }
        let (layers, hidden, heads) = (row.layers.unwrap_or(1), row.hidden.unwrap_or(1), row.heads.unwrap_or(1));
        let seq = row.seq.or(self.seq).unwrap_or(2048);
        let vocab = row.vocab.or(self.vocab).unwrap_or(51_200);
        Model { tie_embeddings: !self.untied, ..Model::gpt(layers, hidden, heads, seq, vocab) }
    }

    fn switches(&self, row: &Row) -> Result<Switches, PlanError> {
        let mut switches = self.stack.parse::<Stack>()?.switches();
        if let Some(precision) = row.precision.as_ref().or(self.precision.as_ref()) {
            switches.precision = precision.parse()?;
        }
        if let Some(text) = &row.sequence_parallel {
            let (on, off) = (SequenceParallel::On, SequenceParallel::Off);
            switches.sequence_parallel = crate::on_or_off("sequence_parallel", text, on, off)?;
        }
        if let Some(text) = &row.scatter_gather {
            switches.scatter_gather = text.parse()?;
        }
        if let Some(text) = &row.overlap {
            switches.overlap = text.parse()?;
        }
        if let Some(text) = &row.sharding {
            switches.sharding = text.parse()?;
        }
        Ok(switches)
    }

    /// Every way to fill in what the source does not say.
    pub fn possibilities(&self, row: &Row) -> Vec<Row> {
        let or = |given: &[usize], own: usize| if given.is_empty() { vec![own] } else { given.to_vec() };
        let own = row.recompute.clone().unwrap_or_else(|| self.recompute.clone());
        let modes = if self.unknown.recompute.is_empty() { vec![own] } else { self.unknown.recompute.clone() };
        let mut ways = Vec::new();
        for b in or(&self.unknown.b, row.b) {
            for v in or(&self.unknown.v, row.v) {
                for mode in &modes {
                    ways.push(Row { b, v, recompute: Some(mode.clone()), ..row.clone() });
                }
            }
        }
        ways
    }

    /// Whether attention keeps its scores, for a reader of the memory account.
    pub fn keeps_scores(&self, row: &Row) -> bool {
        self.switches(row).is_ok_and(|switches| switches.attention == Attention::Plain)
    }
}

fn recompute(text: &str) -> Result<Recompute, PlanError> {
    match text {
        "none" => Ok(Recompute::None),
        "selective" => Ok(Recompute::Selective),
        "full" => Ok(Recompute::FULL),
        other => {
            Err(PlanError::Switch { switch: "--recompute", given: other.to_string(), allowed: "none, selective, full" })
        }
    }
}
