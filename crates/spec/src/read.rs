//! From settings to typed values: one typed getter per kind, one function per section.

use crate::rope::RopeScalingKind;
use crate::run::{Batching, Data, Decay, LossScale, Optimizer, Precision, RampUp, Training};
use crate::settings::Entry;
use crate::task::TaskHeadKind;
use crate::{
    Activation, Arch, BlendStage, DropoutRates, FineTuning, Layout, Model, NormPlacement, Order, Recompute, Rope,
    RopeScaling, ScheduleKind, Settings, SpecError, TaskHead, TaskName, preset, preset_names,
};
use std::str::FromStr;
use toml::Value;

pub(crate) struct Reader<'a> {
    pub settings: &'a Settings,
}

impl Reader<'_> {
    pub fn model(&self) -> Result<Model, SpecError> {
        let arch: Arch = self.choice("model.arch")?;
        let (hidden, heads) = (self.positive("model.hidden")?, self.positive("model.heads")?);
        let dropout = match arch {
            _ if self.given("model.dropout") => self.rate("model.dropout")?,
            Arch::Llama => 0.0,
            Arch::Gpt | Arch::Bert => 0.1,
        };
        let flag = |key, default| if self.given(key) { self.flag(key) } else { Ok(default) };
        let site = |key| if self.given(key) { self.rate(key) } else { Ok(dropout) };
        let or = |key: &str, default: usize| if self.given(key) { self.positive(key) } else { Ok(default) };
        let activation = match arch {
            _ if self.given("model.activation") => self.choice("model.activation")?,
            Arch::Llama => Activation::SwiGlu,
            Arch::Gpt | Arch::Bert => Activation::GeluTanh,
        };
        Ok(Model {
            arch,
            layers: self.positive("model.layers")?,
            hidden,
            heads,
            kv_heads: or("model.kv_heads", heads)?,
            head_dim: or("model.head_dim", hidden / heads)?,
            ffn_hidden: or("model.ffn_hidden", 4 * hidden)?,
            seq_len: self.positive("model.seq_len")?,
            vocab_size: self.positive("model.vocab_size")?,
            dropout: DropoutRates {
                embedding: site("model.embedding_dropout")?,
                attention: site("model.attention_dropout")?,
                hidden: site("model.hidden_dropout")?,
            },
            init_std: self.number_in("model.init_std", 0.0, f64::MAX)?,
            tie_embeddings: flag("model.tie_embeddings", arch != Arch::Llama)?,
            norm: self.choice::<NormPlacement>("model.norm")?,
            activation,
            norm_eps: self.number_in("model.norm_eps", 0.0, 1.0)?,
            rope: self.rope(arch)?,
            token_types: match arch {
                _ if self.given("model.token_types") => self.size("model.token_types")?,
                Arch::Bert => 2,
                Arch::Gpt | Arch::Llama => 0,
            },
            qkv_bias: flag("model.qkv_bias", false)?,
            task: self.task_head()?,
        })
    }

    /// The head of the task to train on, or the one that a checkpoint has.
    fn task_head(&self) -> Result<Option<TaskHead>, SpecError> {
        if self.given("task.name") {
            return Ok(Some(self.choice::<TaskName>("task.name")?.head()));
        }
        if !self.given("model.task") {
            return Ok(None);
        }
        Ok(Some(match self.choice::<TaskHeadKind>("model.task")? {
            TaskHeadKind::Classes => TaskHead::Classes(self.positive("model.task_classes")?),
            TaskHeadKind::Choice => TaskHead::Choice(self.positive("model.task_classes")?),
            TaskHeadKind::Span => TaskHead::Span,
        }))
    }

    /// The task of a fine-tuning run.
    pub fn fine_tuning(&self) -> Result<Option<FineTuning>, SpecError> {
        if !self.given("task.name") {
            return Ok(None);
        }
        Ok(Some(FineTuning {
            name: self.choice::<TaskName>("task.name")?,
            train: self.needed_text("task.train")?,
            valid: self.texts("task.valid")?,
            seeds: self.positive("task.seeds")?,
            epochs: if self.given("task.epochs") { Some(self.positive("task.epochs")?) } else { None },
            length: if self.given("task.length") { Some(self.positive("task.length")?) } else { None },
        }))
    }

    fn rope(&self, arch: Arch) -> Result<Option<Rope>, SpecError> {
        let given = ["theta", "scaling"].iter().any(|key| self.given(&format!("model.rope.{key}")));
        if arch != Arch::Llama && !given {
            return Ok(None);
        }
        Ok(Some(Rope { theta: self.rope_number("theta", 1e4)?, scaling: self.rope_scaling()? }))
    }

    fn rope_scaling(&self) -> Result<RopeScaling, SpecError> {
        if !self.given("model.rope.scaling") {
            return Ok(RopeScaling::None);
        }
        let factor = || self.number_in("model.rope.factor", 1.0, 1e6);
        let original = || self.positive("model.rope.original_len");
        Ok(match self.choice::<RopeScalingKind>("model.rope.scaling")? {
            RopeScalingKind::None => RopeScaling::None,
            RopeScalingKind::Linear => RopeScaling::Linear { factor: factor()? },
            RopeScalingKind::Dynamic => RopeScaling::Dynamic { factor: factor()?, original: original()? },
            RopeScalingKind::Llama3 => RopeScaling::Llama3 {
                factor: factor()?,
                low: self.rope_number("low_freq_factor", 1.0)?,
                high: self.rope_number("high_freq_factor", 4.0)?,
                original: original()?,
            },
            RopeScalingKind::Yarn => RopeScaling::Yarn {
                factor: factor()?,
                fast: self.rope_number("beta_fast", 32.0)?,
                slow: self.rope_number("beta_slow", 1.0)?,
                original: original()?,
            },
        })
    }

    fn rope_number(&self, key: &str, default: f64) -> Result<f64, SpecError> {
        let key = format!("model.rope.{key}");
        if self.given(&key) { self.number_in(&key, 1.0, 1e12) } else { Ok(default) }
    }

    pub fn layout(&self) -> Result<Layout, SpecError> {
        Ok(Layout {
            tensor: self.positive("layout.tensor")?,
            pipeline: self.positive("layout.pipeline")?,
            data: self.positive("layout.data")?,
            chunks: self.positive("layout.chunks")?,
            schedule: self.choice::<ScheduleKind>("layout.schedule")?,
            recompute: self.recompute()?,
        })
    }

    fn recompute(&self) -> Result<Recompute, SpecError> {
        let key = "layout.recompute";
        if self.given("layout.recompute.every") {
            return Ok(Recompute::Every(self.positive("layout.recompute.every")?));
        }
        match self.text(key)?.as_deref() {
            Some("none") | None => Ok(Recompute::None),
            Some("full") => Ok(Recompute::FULL),
            Some(_) => Err(self.wrong(key, "\"none\", \"full\" or { every = n }")),
        }
    }

    pub fn training(&self) -> Result<Training, SpecError> {
        let steps = self.whole("train.steps")?;
        Ok(Training {
            steps,
            batching: self.batching()?,
            precision: self.choice::<Precision>("train.precision")?,
            optimizer: self.optimizer(steps)?,
            loss_scale: LossScale {
                initial: self.number_in("train.loss_scale.initial", 1e-6, 1e30)?,
                growth_interval: self.positive("train.loss_scale.growth_interval")? as u64,
                hysteresis: self.positive("train.loss_scale.hysteresis")? as u64,
                min: self.number_in("train.loss_scale.min", 1e-6, 1e30)?,
            },
            eval_every: self.whole("train.eval_every")?,
            eval_steps: self.positive("train.eval_steps")? as u64,
        })
    }

    fn batching(&self) -> Result<Batching, SpecError> {
        let keys = ["train.ramp_up.start", "train.ramp_up.increment", "train.ramp_up.samples"];
        let ramp_up = match keys.iter().any(|key| self.given(key)) {
            false => None,
            true => Some(RampUp {
                start: self.positive("train.ramp_up.start")?,
                increment: self.positive("train.ramp_up.increment")?,
                samples: self.whole("train.ramp_up.samples")?,
            }),
        };
        let (global, micro) = (self.positive("train.global_batch")?, self.positive("train.micro_batch")?);
        Ok(Batching { global, micro, ramp_up })
    }

    fn optimizer(&self, steps: u64) -> Result<Optimizer, SpecError> {
        let number = |key: &str, low, high| self.number_in(&format!("train.optimizer.{key}"), low, high);
        let decay_steps =
            if self.given("train.optimizer.decay_steps") { self.whole("train.optimizer.decay_steps")? } else { steps };
        let lr = number("lr", 0.0, 1e6)?;
        // The default floor is for the default rate: a smaller rate without a floor of its own stays below it.
        let min_lr = number("min_lr", 0.0, 1e6)?;
        let min_lr = if self.given("train.optimizer.min_lr") { min_lr } else { min_lr.min(lr) };
        Ok(Optimizer {
            lr,
            min_lr,
            warmup_steps: self.whole("train.optimizer.warmup_steps")?,
            decay: self.choice::<Decay>("train.optimizer.decay")?,
            decay_steps,
            beta1: number("beta1", 0.0, 1.0)?,
            beta2: number("beta2", 0.0, 1.0)?,
            eps: number("eps", 0.0, 1.0)?,
            weight_decay: number("weight_decay", 0.0, 1e6)?,
            clip: number("clip", 0.0, f64::MAX)?,
        })
    }

    pub fn data(&self) -> Result<Data, SpecError> {
        Ok(Data {
            train: self.corpora("data.train")?,
            stages: self.stages()?,
            order: self.choice::<Order>("data.order")?,
            order_samples: match self.given("data.order_samples") {
                true => Some(self.whole("data.order_samples")?),
                false => None,
            },
            valid: self.validation_sets()?,
            split: self.split()?,
            tokenizer: self.text("data.tokenizer")?,
            batches: self.text("data.batches")?,
        })
    }

    fn corpora(&self, key: &str) -> Result<Vec<(String, f64)>, SpecError> {
        let wrong = || self.wrong(key, "a list of prefixes or of { prefix = \"...\", weight = 0.3 }");
        blend(&self.entry(key)?.value).ok_or_else(wrong)
    }

    fn stages(&self) -> Result<Vec<BlendStage>, SpecError> {
        let expected = "a list of { from = SAMPLE, train = [...] } or of { from_tokens = TOKENS, train = [...] }, \
                        the tokens a multiple of model.seq_len";
        let wrong = || self.wrong("data.stages", expected);
        let seq_len = self.positive("model.seq_len")? as u64;
        let entry = self.entry("data.stages")?;
        let list = entry.value.as_array().ok_or_else(wrong)?;
        list.iter().map(|value| stage(value, seq_len)).collect::<Option<_>>().ok_or_else(wrong)
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, SpecError> {
        let wrong = || self.wrong(key, "a list of strings");
        let entry = self.entry(key)?;
        let list = entry.value.as_array().ok_or_else(wrong)?;
        list.iter().map(|item| item.as_str().map(str::to_string).ok_or_else(wrong)).collect()
    }

    /// Prefixes alone: each set is scored for itself, so a weight would do nothing.
    fn validation_sets(&self) -> Result<Vec<String>, SpecError> {
        let sets = self.corpora("data.valid")?;
        match sets.iter().any(|(_, weight)| *weight != 1.0) {
            true => Err(self.wrong("data.valid", "a list of prefixes; validation sets have no weights")),
            false => Ok(sets.into_iter().map(|(prefix, _)| prefix).collect()),
        }
    }

    fn split(&self) -> Result<[f64; 3], SpecError> {
        let wrong = || self.wrong("data.split", "three ratios of training, validation and test, the first above 0");
        let entry = self.entry("data.split")?;
        let list = entry.value.as_array().ok_or_else(wrong)?;
        let numbers: Vec<f64> = list.iter().filter_map(number).filter(|&n| n >= 0.0 && n.is_finite()).collect();
        let split: [f64; 3] = numbers.try_into().map_err(|_| wrong())?;
        if list.len() == 3 && split[0] > 0.0 { Ok(split) } else { Err(wrong()) }
    }

    pub fn default_dir(&self) -> String {
        let name = self.settings.file().rsplit(['/', '\\']).next().unwrap_or("run");
        format!("runs/{}", name.strip_suffix(".toml").unwrap_or(name))
    }

    fn given(&self, key: &str) -> bool {
        self.settings.source(key) != crate::Source::Default
    }

    fn entry(&self, key: &str) -> Result<Entry, SpecError> {
        self.settings.get(key).ok_or_else(|| SpecError::Missing {
            file: self.settings.file().to_string(),
            key: key.to_string(),
            fix: missing_fix(key),
        })
    }

    fn wrong(&self, key: &str, expected: &str) -> SpecError {
        SpecError::WrongType {
            place: self.settings.source(key).to_string(),
            key: key.to_string(),
            expected: expected.to_string(),
            found: self.settings.get(key).map_or_else(String::new, |entry| entry.value.to_string()),
        }
    }

    /// A whole number from 0.
    pub fn whole(&self, key: &str) -> Result<u64, SpecError> {
        let value = self.entry(key)?.value;
        value
            .as_integer()
            .and_then(|n| u64::try_from(n).ok())
            .ok_or_else(|| self.wrong(key, "a whole number of 0 or more"))
    }

    /// A whole number from 0 that counts things in memory.
    pub fn size(&self, key: &str) -> Result<usize, SpecError> {
        let value = self.whole(key)?;
        // Far above any model, far below where products of sizes leave 64 bits.
        usize::try_from(value)
            .ok()
            .filter(|&size| size <= 1 << 40)
            .ok_or_else(|| self.wrong(key, "a number below 2^40"))
    }

    /// A whole number from 1.
    pub fn positive(&self, key: &str) -> Result<usize, SpecError> {
        match self.size(key) {
            Ok(0) | Err(SpecError::WrongType { .. }) => Err(self.wrong(key, "a whole number of 1 or more")),
            other => other,
        }
    }

    fn number_in(&self, key: &str, low: f64, high: f64) -> Result<f64, SpecError> {
        let value = self.entry(key)?.value;
        number(&value).filter(|n| (low..=high).contains(n)).ok_or_else(|| match high {
            high if high > 1e9 => self.wrong(key, &format!("a number of {low} or more")),
            high => self.wrong(key, &format!("a number from {low} to {high}")),
        })
    }

    /// A dropout rate.
    fn rate(&self, key: &str) -> Result<f32, SpecError> {
        let value = self.number_in(key, 0.0, 1.0)?;
        let value = value as f32;
        if value < 1.0 { Ok(value) } else { Err(self.wrong(key, "a rate from 0 to below 1")) }
    }

    fn flag(&self, key: &str) -> Result<bool, SpecError> {
        self.entry(key)?.value.as_bool().ok_or_else(|| self.wrong(key, "true or false"))
    }

    /// A string, or `None` where the key is absent.
    pub fn text(&self, key: &str) -> Result<Option<String>, SpecError> {
        match self.settings.get(key) {
            None => Ok(None),
            Some(Entry { value: Value::String(text), .. }) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "a string")),
        }
    }

    fn needed_text(&self, key: &str) -> Result<String, SpecError> {
        self.entry(key)?;
        self.text(key).map(Option::unwrap_or_default)
    }

    fn choice<T: FromStr<Err = String>>(&self, key: &str) -> Result<T, SpecError> {
        let text = self.text(key)?.unwrap_or_default();
        text.parse().map_err(|words: String| {
            let (problem, fix) = words.split_once("; ").unwrap_or((&words, ""));
            SpecError::Impossible {
                place: self.settings.source(key).to_string().into(),
                key: key.into(),
                value: format!("\"{text}\"").into(),
                problem: problem.into(),
                fix: fix.into(),
            }
        })
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64)).filter(|n| n.is_finite())
}

/// Prefixes, each alone or with a weight.
fn blend(value: &Value) -> Option<Vec<(String, f64)>> {
    let one = |value: &Value| match value {
        Value::String(prefix) => Some((prefix.clone(), 1.0)),
        Value::Table(table) if table.keys().all(|key| key == "prefix" || key == "weight") => {
            let weight = table.get("weight").map_or(Some(1.0), number)?;
            let prefix = table.get("prefix")?.as_str()?;
            (weight > 0.0 && weight.is_finite()).then(|| (prefix.to_string(), weight))
        }
        _ => None,
    };
    value.as_array()?.iter().map(one).collect()
}

fn stage(value: &Value, seq_len: u64) -> Option<BlendStage> {
    let table = value.as_table().filter(|table| table.len() == 2)?;
    let count = |key: &str| table.get(key).and_then(Value::as_integer).and_then(|n| u64::try_from(n).ok());
    let from = match count("from_tokens") {
        Some(tokens) => tokens.is_multiple_of(seq_len).then(|| tokens / seq_len)?,
        None => count("from")?,
    };
    Some(BlendStage { from, train: blend(table.get("train")?)? })
}

fn missing_fix(key: &str) -> String {
    if key.starts_with("model.") {
        return "give it, or name a `model.preset` or an `init.from` folder that has it".to_string();
    }
    format!("add it under [{}]", key.split('.').next().unwrap_or(key))
}

/// Fills absent model keys from a preset.
pub(crate) fn adopt_preset(settings: &mut Settings, name: &str) -> Result<(), SpecError> {
    let Some(model) = preset(name) else {
        return Err(SpecError::Impossible {
            place: settings.source("model.preset").to_string().into(),
            key: "model.preset".into(),
            value: format!("\"{name}\"").into(),
            problem: "no such preset".into(),
            fix: format!("choose one of {}", preset_names().join(", ")).into(),
        });
    };
    let origin = format!("preset {name}");
    for (key, value) in model.facts() {
        let covered = key.ends_with("_dropout") && settings.source("model.dropout") != crate::Source::Default;
        if !covered {
            settings.fill(&key, value, &origin);
        }
    }
    Ok(())
}

impl Model {
    /// The model that keys of a run file describe, as [`Model::facts`] gives them; `origin` names
    /// their source in errors.
    ///
    /// # Errors
    /// Where a key that has no default is absent, or one is no value of its kind.
    pub fn of_facts(facts: &std::collections::BTreeMap<String, Value>, origin: &str) -> Result<Self, SpecError> {
        let mut settings = Settings::parse("", origin)?;
        facts.iter().for_each(|(key, value)| settings.fill(key, value.clone(), origin));
        Reader { settings: &settings }.model()
    }

    /// The model as keys of a run file.
    pub fn facts(&self) -> std::collections::BTreeMap<String, Value> {
        let size = |n: usize| Value::Integer(n as i64);
        let rate = |rate: f32| Value::Float((f64::from(rate) * 1e7).round() / 1e7);
        let mut facts = vec![
            ("arch", Value::String(self.arch.to_string())),
            ("layers", size(self.layers)),
            ("hidden", size(self.hidden)),
            ("heads", size(self.heads)),
            ("kv_heads", size(self.kv_heads)),
            ("head_dim", size(self.head_dim)),
            ("ffn_hidden", size(self.ffn_hidden)),
            ("seq_len", size(self.seq_len)),
            ("vocab_size", size(self.vocab_size)),
            ("embedding_dropout", rate(self.dropout.embedding)),
            ("attention_dropout", rate(self.dropout.attention)),
            ("hidden_dropout", rate(self.dropout.hidden)),
            ("init_std", Value::Float(self.init_std)),
            ("tie_embeddings", Value::Boolean(self.tie_embeddings)),
            ("norm", Value::String(self.norm.to_string())),
            ("activation", Value::String(self.activation.to_string())),
            ("norm_eps", Value::Float(self.norm_eps)),
        ];
        if self.arch == Arch::Bert || self.token_types > 0 {
            facts.push(("token_types", size(self.token_types)));
        }
        if self.qkv_bias {
            facts.push(("qkv_bias", Value::Boolean(true)));
        }
        let (task, classes) = match self.task {
            None => (None, None),
            Some(TaskHead::Classes(classes)) => (Some("classes"), Some(classes)),
            Some(TaskHead::Choice(options)) => (Some("choice"), Some(options)),
            Some(TaskHead::Span) => (Some("span"), None),
        };
        facts.extend(task.map(|task| ("task", Value::String(task.to_string()))));
        facts.extend(classes.map(|classes| ("task_classes", size(classes))));
        let mut facts: std::collections::BTreeMap<_, _> =
            facts.into_iter().map(|(key, value)| (format!("model.{key}"), value)).collect();
        facts.extend(self.rope.iter().flat_map(Rope::facts));
        facts
    }
}
