//! What `plan` and `simulate` share: models, clusters and switches as a person types them.

use crate::failure::Failure;
use henge_plan::{Cluster, PlanError, Precision, Stack, Switches, on_or_off, parse_shape};
use henge_spec::formulas::{Attention, SequenceParallel};
use henge_spec::{Layout, Model, Recompute, Run, Settings, preset, preset_names};
use std::path::Path;

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::request(error)
    }
}

/// The switches of the software; what is not given comes from the stack.
#[derive(clap::Args)]
pub struct SwitchArgs {
    /// Software whose defaults fill in the switches below: 2019 (the first paper), sc21 (the
    /// second), 2022 (2205.05198), modern (everything)
    #[arg(long, default_value = "sc21")]
    stack: Stack,
    /// Number format: f32, f16, bf16, fp8 [default: the stack's, or the run file's]
    #[arg(long)]
    precision: Option<Precision>,
    /// Stage outputs cut over tensor ranks before they cross nodes: on, off [default: on]
    #[arg(long)]
    scatter_gather: Option<henge_plan::ScatterGather>,
    /// Communication beside computation: none, p2p, dp, tp, all [default: the stack's]
    #[arg(long)]
    overlap: Option<henge_plan::Overlap>,
    /// Norms and dropouts split along the sequence: on, off [default: the stack's]
    #[arg(long)]
    sequence_parallel: Option<String>,
    /// States split over replicas: none, zero1, zero3 [default: the stack's]
    #[arg(long)]
    optimizer_sharding: Option<henge_plan::Sharding>,
    /// Attention without the scores: on, off [default: the stack's]
    #[arg(long)]
    flash: Option<String>,
    /// Element-wise chains as one kernel: fused, unfused [default: the stack's]
    #[arg(long)]
    kernels: Option<henge_plan::Kernels>,
}

impl SwitchArgs {
    /// The switches in force; `precision` is the run file's, if there is one.
    pub fn resolve(&self, precision: Option<Precision>) -> Result<Switches, PlanError> {
        let mut switches = self.stack.switches();
        switches.precision = self.precision.or(precision).unwrap_or(switches.precision);
        switches.scatter_gather = self.scatter_gather.unwrap_or(switches.scatter_gather);
        switches.overlap = self.overlap.unwrap_or(switches.overlap);
        switches.sharding = self.optimizer_sharding.unwrap_or(switches.sharding);
        switches.kernels = self.kernels.unwrap_or(switches.kernels);
        if let Some(text) = &self.sequence_parallel {
            let (on, off) = (SequenceParallel::On, SequenceParallel::Off);
            switches.sequence_parallel = on_or_off("--sequence-parallel", text, on, off)?;
        }
        if let Some(text) = &self.flash {
            switches.attention = on_or_off("--flash", text, Attention::Flash, Attention::Plain)?;
        }
        Ok(switches)
    }
}

/// The switches in words, so that no default acts unseen.
pub fn switches_line(switches: &Switches) -> String {
    let sequence = if switches.sequence_parallel == SequenceParallel::On { "on" } else { "off" };
    let flash = if switches.attention == Attention::Flash { "on" } else { "off" };
    format!(
        "switches: precision {}, scatter-gather {}, overlap {}, sequence-parallel {sequence}, optimizer-sharding {}, \
         flash {flash}, kernels {}\n",
        switches.precision, switches.scatter_gather, switches.overlap, switches.sharding, switches.kernels
    )
}

/// A model with what a run file says beside it.
pub struct Subject {
    /// As the user gave it.
    pub name: String,
    /// The shape.
    pub model: Model,
    /// The run file's layout, microbatch, batch and precision.
    pub run: Option<RunPart>,
}

/// What planning takes from a run file beside the model.
pub struct RunPart {
    /// The layout with its recomputation.
    pub layout: Layout,
    /// Sequences of a microbatch.
    pub microbatch: usize,
    /// Sequences of a step.
    pub batch: usize,
    /// Number format.
    pub precision: Precision,
}

/// The model that `--model` names: a preset, a shape, or a run file; `sequence` overrides s.
pub fn subject(text: &str, sequence: Option<usize>) -> Result<Subject, Failure> {
    let mut subject = match preset(text) {
        Some(model) => Subject { name: text.to_string(), model, run: None },
        None if Path::new(text).is_file() => from_run_file(text)?,
        None if text.contains('=') => Subject { name: "this shape".to_string(), model: parse_shape(text)?, run: None },
        None => return Err(unknown_model(text)),
    };
    if let Some(sequence) = sequence {
        if sequence == 0 {
            return Err(Failure::request("--seq 0: a sequence has at least one token"));
        }
        subject.model.seq_len = sequence;
    }
    Ok(subject)
}

fn unknown_model(text: &str) -> Failure {
    let names = preset_names();
    Failure::request(format!(
        "--model {text}: no preset, no file and no shape; presets: {}; or a run file; or a shape such as \
         layers=32,hidden=3840,heads=32,seq_len=2048,vocab_size=51200",
        names.join(", ")
    ))
}

/// Planning needs no corpus, so that a run file without one will do.
fn from_run_file(path: &str) -> Result<Subject, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::request(format!("{path}: {error}")))?;
    let mut settings = Settings::parse(&text, path)?;
    if settings.text("data.batches").is_none() {
        settings.set("data.train=[\"planned\"]")?;
    }
    let run = Run::resolve(settings)?;
    let precision = match run.train.precision {
        henge_spec::Precision::F32 => Precision::F32,
        henge_spec::Precision::F16 => Precision::F16,
        henge_spec::Precision::BF16 => Precision::BF16,
    };
    let batching = run.train.batching;
    let part = RunPart { layout: run.layout, microbatch: batching.micro, batch: batching.global, precision };
    Ok(Subject { name: path.to_string(), model: run.model, run: Some(part) })
}

/// The cluster of a catalogue name or of a file.
pub fn cluster(text: &str) -> Result<Cluster, Failure> {
    if !Path::new(text).is_file() {
        return Ok(Cluster::named(text)?);
    }
    let content = std::fs::read_to_string(text).map_err(|error| Failure::request(format!("{text}: {error}")))?;
    Ok(Cluster::parse(&content, text)?)
}

/// A recomputation mode: `none`, `selective`, `full`, or the layers between kept inputs.
pub fn recompute(text: &str) -> Result<Recompute, Failure> {
    match text {
        "none" => Ok(Recompute::None),
        "selective" => Ok(Recompute::Selective),
        "full" => Ok(Recompute::FULL),
        number => match number.parse() {
            Ok(every) if every > 0 => Ok(Recompute::Every(every)),
            _ => Err(Failure::request(format!(
                "--recompute {number}: choose none, selective, full or a number of layers"
            ))),
        },
    }
}

/// Writes a file beside and renames it.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;
    henge_files::write_atomic(path, |file| file.write_all(text.as_bytes())).map_err(Failure::run)?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// A recomputation mode as `--recompute` takes it.
pub fn recompute_words(mode: Recompute) -> String {
    match mode {
        Recompute::None => "none".to_string(),
        Recompute::Selective => "selective".to_string(),
        Recompute::Every(1) => "full".to_string(),
        Recompute::Every(layers) => layers.to_string(),
    }
}
