//! A whole run, checked before any work starts.

use crate::model::named;
use crate::read::Reader;
use crate::{Arch, BlendStage, FineTuning, Layout, Model, Order, Settings, SpecError, check};
use std::collections::BTreeMap;
use toml::Value;

/// Precision of products and activations; weights, gradients and moments stay float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32-bit float throughout.
    F32,
    /// bfloat16.
    BF16,
    /// IEEE half, with dynamic loss scaling.
    F16,
}

named!(Precision, "a precision", "f32" => F32, "bf16" => BF16, "f16" => F16);

/// Shape of the learning rate after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decay {
    /// Half a cosine from `lr` to `min_lr`.
    Cosine,
    /// A straight line from `lr` to `min_lr`.
    Linear,
    /// No decay.
    Constant,
}

named!(Decay, "a decay", "cosine" => Cosine, "linear" => Linear, "constant" => Constant);

/// AdamW and its learning rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimizer {
    /// Peak learning rate.
    pub lr: f64,
    /// Learning rate from the end of the decay on.
    pub min_lr: f64,
    /// Steps of linear warm-up from 0.
    pub warmup_steps: u64,
    /// Shape after warm-up.
    pub decay: Decay,
    /// Step at which `min_lr` is reached, warm-up included.
    pub decay_steps: u64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f64,
    /// Largest global gradient norm; 0 for no clipping.
    pub clip: f64,
}

impl Optimizer {
    /// Learning rate of step `step`, from 1: `lr * step / warmup` while warming up, then
    /// `min + (lr - min) * 0.5 (1 + cos(pi x))` or `min + (lr - min) (1 - x)` with
    /// `x = (step - warmup) / (decay - warmup)` (1909.08053, appendix; the code's form).
    pub fn rate(&self, step: u64) -> f64 {
        if step <= self.warmup_steps {
            return self.lr * step as f64 / self.warmup_steps as f64;
        }
        let span = self.decay_steps.saturating_sub(self.warmup_steps).max(1) as f64;
        let x = ((step - self.warmup_steps) as f64 / span).min(1.0);
        match self.decay {
            Decay::Constant => self.lr,
            Decay::Linear => self.min_lr + (self.lr - self.min_lr) * (1.0 - x),
            Decay::Cosine => self.min_lr + (self.lr - self.min_lr) * 0.5 * (1.0 + (std::f64::consts::PI * x).cos()),
        }
    }
}

/// Dynamic loss scaling of f16.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// Scale of the first step.
    pub initial: f64,
    /// Clean steps after which it doubles.
    pub growth_interval: u64,
    /// Overflowed steps, since the last change, after which it halves.
    pub hysteresis: u64,
    /// Smallest scale.
    pub min: f64,
}

/// Growth of the global batch: from `start` by `increment` at equal shares of `samples`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RampUp {
    /// First global batch, sequences.
    pub start: usize,
    /// Growth at a time, sequences.
    pub increment: usize,
    /// Samples over which the batch grows.
    pub samples: u64,
}

/// How many sequences each step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Sequences of a step once grown.
    pub global: usize,
    /// Sequences of a microbatch.
    pub micro: usize,
    /// Growth, if any.
    pub ramp_up: Option<RampUp>,
}

impl Batching {
    /// Global batch of the step that begins after `consumed` samples.
    pub fn at(&self, consumed: u64) -> usize {
        let Some(ramp) = self.ramp_up else { return self.global };
        let stages = ((self.global - ramp.start) / ramp.increment) as u64;
        if consumed >= ramp.samples || stages == 0 {
            return self.global;
        }
        let stage = (u128::from(consumed) * u128::from(stages) / u128::from(ramp.samples)) as usize;
        ramp.start + stage * ramp.increment
    }

    /// Every global batch that the run will take.
    pub fn sizes(&self) -> Vec<usize> {
        match self.ramp_up {
            Some(ramp) => (ramp.start..=self.global).step_by(ramp.increment).collect(),
            None => vec![self.global],
        }
    }
}

/// The training recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Number of optimizer steps.
    pub steps: u64,
    /// Sequences a step.
    pub batching: Batching,
    /// Precision of products.
    pub precision: Precision,
    /// AdamW.
    pub optimizer: Optimizer,
    /// Loss scaling of f16.
    pub loss_scale: LossScale,
    /// Steps between evaluations; 0 for none.
    pub eval_every: u64,
    /// Batches of an evaluation.
    pub eval_steps: u64,
}

/// Where samples come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Corpus prefixes with their weights.
    pub train: Vec<(String, f64)>,
    /// Blends that take the place of `train` from a sample on, in order.
    pub stages: Vec<BlendStage>,
    /// Order of the samples.
    pub order: Order,
    /// Samples for which Megatron's order is made; those of all steps without.
    pub order_samples: Option<u64>,
    /// Validation corpora; empty: a share of `train` by `split`.
    pub valid: Vec<String>,
    /// Ratio of training, validation and test documents.
    pub split: [f64; 3],
    /// Tokenizer file, or `gpt2`.
    pub tokenizer: Option<String>,
    /// File of explicit batches, in place of corpora.
    pub batches: Option<String>,
}

/// A run file with every default filled in and every rule checked.
#[derive(Clone, Debug)]
pub struct Run {
    /// Folder of metrics, checkpoints and the resolved configuration.
    pub dir: String,
    /// Seed of weights, dropout and order.
    pub seed: u64,
    /// Threads of all ranks together; 0: every core.
    pub threads: usize,
    /// Seconds that a rank waits for others, or for its disk once the next save is due, before it
    /// reports them and the run ends.
    pub timeout: u64,
    /// Seconds after which a rank that is a process and is not heard from is lost.
    pub heartbeat_timeout: u64,
    /// The model.
    pub model: Model,
    /// The split over ranks.
    pub layout: Layout,
    /// The recipe.
    pub train: Training,
    /// The data.
    pub data: Data,
    /// The task of a fine-tuning run.
    pub task: Option<FineTuning>,
    /// Steps between checkpoints; 0: only the last.
    pub checkpoint_every: u64,
    /// Checkpoints kept.
    pub checkpoint_keep: usize,
    /// Hugging Face folder to start from.
    pub init_from: Option<String>,
    settings: Settings,
}

impl Run {
    /// Gives the settings their meaning and checks every rule that needs no file.
    pub fn resolve(mut settings: Settings) -> Result<Self, SpecError> {
        if let Some(name) = settings.text("model.preset").map(str::to_string) {
            crate::read::adopt_preset(&mut settings, &name)?;
        }
        let reader = Reader { settings: &settings };
        let model = reader.model()?;
        let layout = reader.layout()?;
        let train = reader.training()?;
        let data = reader.data()?;
        let task = reader.fine_tuning()?;
        let dir = reader.text("run.dir")?.unwrap_or_else(|| reader.default_dir());
        let run = Self {
            dir,
            seed: reader.whole("run.seed")?,
            threads: reader.size("run.threads")?,
            timeout: reader.positive("run.timeout")? as u64,
            heartbeat_timeout: reader.positive("run.heartbeat_timeout")? as u64,
            checkpoint_every: reader.whole("checkpoint.every")?,
            checkpoint_keep: reader.positive("checkpoint.keep")?,
            init_from: reader.text("init.from")?,
            model,
            layout,
            train,
            data,
            task,
            settings: settings.clone(),
        };
        check::check(&run, &settings)?;
        Ok(run)
    }

    /// Where a key's value came from, for errors of later checks.
    pub fn place(&self, key: &str) -> String {
        self.settings.source(key).to_string()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Microbatches each pipeline runs in a step of `global_batch` sequences.
    pub fn microbatches(&self, global_batch: usize) -> usize {
        global_batch / (self.train.batching.micro * self.layout.data)
    }

    /// `config.toml`: every value in force, with where it came from.
    pub fn render(&self) -> String {
        self.settings.render(&self.derived())
    }

    fn derived(&self) -> BTreeMap<&'static str, Value> {
        let size = |n: usize| Value::Integer(n as i64);
        let rate = |rate: f32| Value::Float((f64::from(rate) * 1e7).round() / 1e7);
        let m = &self.model;
        let mut values = BTreeMap::from([
            ("run.dir", Value::String(self.dir.clone())),
            ("model.layers", size(m.layers)),
            ("model.head_dim", size(m.head_dim)),
            ("model.kv_heads", size(m.kv_heads)),
            ("model.ffn_hidden", size(m.ffn_hidden)),
            ("model.dropout", rate(m.dropout.hidden)),
            ("model.tie_embeddings", Value::Boolean(m.tie_embeddings)),
            ("model.embedding_dropout", rate(m.dropout.embedding)),
            ("model.attention_dropout", rate(m.dropout.attention)),
            ("model.hidden_dropout", rate(m.dropout.hidden)),
            ("model.activation", Value::String(m.activation.to_string())),
            ("train.optimizer.min_lr", Value::Float(self.train.optimizer.min_lr)),
            ("train.optimizer.decay_steps", Value::Integer(self.train.optimizer.decay_steps as i64)),
        ]);
        if m.arch == Arch::Llama {
            values.insert("model.rope.theta", Value::Float(m.rope.map_or(10000.0, |rope| rope.theta)));
        }
        if m.arch == Arch::Bert {
            values.insert("model.token_types", size(m.token_types));
        }
        values
    }
}
