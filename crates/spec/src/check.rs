//! The rules of a run: every impossible combination, before any work starts.

use crate::{
    Activation, Arch, NormPlacement, Order, Recompute, RopeScaling, Run, ScheduleKind, Settings, SpecError, keys,
};

type Outcome = Result<(), SpecError>;

/// Checks every rule that needs no file.
pub(crate) fn check(run: &Run, settings: &Settings) -> Outcome {
    let rules = Rules { run, settings };
    rules.model()?;
    rules.layout()?;
    rules.family()?;
    rules.tensor()?;
    rules.pipeline()?;
    rules.batches()?;
    rules.optimizer()?;
    rules.data()?;
    rules.unused()
}

struct Rules<'a> {
    run: &'a Run,
    settings: &'a Settings,
}

impl Rules<'_> {
    fn require(&self, holds: bool, key: &str, problem: impl Into<String>, fix: impl Into<String>) -> Outcome {
        if holds {
            return Ok(());
        }
        let value = match key {
            "model.head_dim" => self.run.model.head_dim.to_string(),
            "model.kv_heads" => self.run.model.kv_heads.to_string(),
            "model.ffn_hidden" => self.run.model.ffn_hidden.to_string(),
            "model.activation" => format!("\"{}\"", self.run.model.activation),
            key => self.settings.get(key).map_or_else(|| "absent".to_string(), |entry| entry.value.to_string()),
        };
        let place = match self.settings.source(key) {
            crate::Source::Default => format!("{} (default)", self.settings.file()),
            source => source.to_string(),
        };
        Err(SpecError::Impossible {
            place: place.into(),
            key: key.into(),
            value: value.into(),
            problem: problem.into().into(),
            fix: fix.into().into(),
        })
    }

    fn divides(&self, key: &str, what: &str, whole: usize, by: usize, fix: &str) -> Outcome {
        self.require(by > 0 && whole.is_multiple_of(by), key, format!("{whole} is not divisible by {what} = {by}"), fix)
    }

    fn model(&self) -> Outcome {
        let m = &self.run.model;
        if self.settings.source("model.head_dim") == crate::Source::Default {
            self.divides("model.hidden", "model.heads", m.hidden, m.heads, "change one, or give model.head_dim")?;
        }
        self.divides("model.heads", "model.kv_heads", m.heads, m.kv_heads, "each group of query heads needs one pair")?;
        let limit = 1 << 16;
        self.require(m.layers < limit, "model.layers", "dropout counters hold 16 bits", "use fewer layers")?;
        self.require(m.heads < limit, "model.heads", "dropout counters hold 16 bits", "use fewer heads")?;
        self.require(u32::try_from(m.vocab_size).is_ok(), "model.vocab_size", "tokens are 32 bits", "use fewer entries")
    }

    /// Sizes whose products stay far inside 64 bits.
    fn layout(&self) -> Outcome {
        let l = &self.run.layout;
        let axes = [("tensor", l.tensor), ("pipeline", l.pipeline), ("data", l.data), ("chunks", l.chunks)];
        for (axis, size) in axes {
            self.require(size <= 1 << 16, &format!("layout.{axis}"), "is more than 65536", "use fewer")?;
        }
        let (threads, ranks) = (self.run.threads, l.ranks());
        let fits = threads == 0 || threads.is_multiple_of(ranks);
        let fix = "give a multiple of the ranks, or 0 for every core";
        self.require(fits, "run.threads", format!("cannot be shared evenly by {ranks} ranks"), fix)
    }

    /// Keys that ask for something this run will not do. Default values are never an error.
    fn unused(&self) -> Outcome {
        let run = self.run;
        let given_batches = run.data.batches.is_some();
        if run.task.is_none() {
            for key in ["task.train", "task.valid", "task.seeds", "task.epochs", "task.length"] {
                self.is_default(key, "this run has no task.name")?;
            }
        }
        if given_batches && run.data.valid.is_empty() {
            self.is_default("train.global_batch", "given batches have their own sizes")?;
        }
        if given_batches {
            for key in ["data.stages", "data.order", "data.order_samples"] {
                self.is_default(key, "given batches come in their own order")?;
            }
        }
        if given_batches || !run.data.valid.is_empty() {
            self.is_default("data.split", "this run cuts no corpus into parts")?;
        }
        let facts = run.model.facts();
        for key in keys::KEYS.iter().filter(|key| key.name.starts_with("model.rope.")) {
            let used = facts.contains_key(key.name) || key.name == "model.rope.scaling";
            let unused = !used && self.settings.source(key.name) != crate::Source::Default;
            self.require(!unused, key.name, "this model.rope.scaling has no such number", "remove the key")?;
        }
        for key in ["model.task", "model.task_classes"] {
            let given = self.settings.source(key) != crate::Source::Default;
            let same = self.settings.get(key).map(|entry| entry.value) == facts.get(key).cloned();
            self.require(!given || same, key, "is not the head of this run's task", "remove the key")?;
        }
        if run.train.precision != crate::Precision::F16 {
            for key in ["initial", "growth_interval", "hysteresis", "min"] {
                self.is_default(&format!("train.loss_scale.{key}"), "only f16 scales its loss")?;
            }
        }
        Ok(())
    }

    fn is_default(&self, key: &str, problem: &str) -> Outcome {
        self.require(self.settings.has_default(key), key, problem, "remove the key")
    }

    /// What a key asks for and this kind of model does not do.
    fn family(&self) -> Outcome {
        let m = &self.run.model;
        let gated = m.activation == Activation::SwiGlu;
        let arch = m.arch;
        let learned = |key, off| self.require(off, key, format!("{arch} has learned positions"), "remove the key");
        if arch != Arch::Llama {
            self.require(
                m.kv_heads == m.heads,
                "model.kv_heads",
                format!("{arch} has no grouped queries"),
                "remove the key",
            )?;
            let whole = m.heads * m.head_dim == m.hidden;
            self.require(whole, "model.head_dim", format!("{arch} has heads * head_dim = hidden"), "remove the key")?;
            let fix = "use \"gelu_tanh\" or \"gelu\"";
            self.require(!gated, "model.activation", format!("{arch} has one MLP input"), fix)?;
            learned("model.rope.theta", m.rope.is_none())?;
            self.require(!m.qkv_bias, "model.qkv_bias", format!("{arch} always has biases"), "remove the key")?;
        }
        if arch == Arch::Llama {
            self.require(gated, "model.activation", "llama has a gated MLP", "use \"swiglu\"")?;
            let even = m.head_dim.is_multiple_of(2);
            self.require(even, "model.head_dim", "rotary positions turn pairs of channels", "use an even width")?;
            self.rope_ramp()?;
        }
        if arch != Arch::Bert {
            let pre = m.norm == NormPlacement::Pre;
            self.require(pre, "model.norm", format!("{arch} norms stand before the layer"), "use \"pre\"")?;
            let none = m.token_types == 0;
            self.require(none, "model.token_types", format!("{arch} has no token types"), "remove the key")?;
        }
        Ok(())
    }

    /// A ramp between stretched and kept wavelengths has a width, and a base does not grow.
    fn rope_ramp(&self) -> Outcome {
        let scaling = self.run.model.rope.map(|rope| rope.scaling);
        match scaling {
            Some(RopeScaling::Dynamic { original, .. }) => {
                let problem = format!("is above model.rope.original_len = {original}, from where the base would grow");
                let fix = "use at most original_len, or another scaling";
                self.require(self.run.model.seq_len <= original, "model.seq_len", problem, fix)
            }
            Some(RopeScaling::Llama3 { low, high, .. }) => {
                let key = "model.rope.high_freq_factor";
                self.require(high > low, key, format!("is not above low_freq_factor = {low}"), "raise it, as in 4.0")
            }
            Some(RopeScaling::Yarn { fast, slow, .. }) => {
                let theta = self.run.model.rope.is_some_and(|rope| rope.theta > 1.0);
                self.require(theta, "model.rope.theta", "gives every channel one wavelength", "use 10000.0")?;
                let key = "model.rope.beta_fast";
                self.require(fast > slow, key, format!("is not above beta_slow = {slow}"), "raise it, as in 32.0")
            }
            _ => Ok(()),
        }
    }

    fn tensor(&self) -> Outcome {
        let (m, t) = (&self.run.model, self.run.layout.tensor);
        let fix = "choose a tensor size that divides heads, kv_heads and ffn_hidden";
        let sizes = [("model.heads", m.heads), ("model.kv_heads", m.kv_heads), ("model.ffn_hidden", m.ffn_hidden)];
        for (what, size) in sizes {
            let problem = format!("{what} = {size} is not divisible by it");
            self.require(size.is_multiple_of(t), "layout.tensor", problem, fix)?;
        }
        Ok(())
    }

    fn pipeline(&self) -> Outcome {
        let (m, l) = (&self.run.model, &self.run.layout);
        let interleaved = l.schedule == ScheduleKind::Interleaved;
        self.require(
            l.chunks == 1 || interleaved,
            "layout.chunks",
            format!("schedule \"{}\" runs one chunk a rank", l.schedule),
            "set layout.schedule = \"interleaved\" or layout.chunks = 1",
        )?;
        self.require(
            l.chunks == 1 || l.pipeline > 1,
            "layout.chunks",
            "interleaving needs a pipeline of 2 or more",
            "set layout.chunks = 1 or raise layout.pipeline",
        )?;
        let stages = "layout.pipeline * layout.chunks";
        self.divides("model.layers", stages, m.layers, l.stages(), "every stage holds the same number of layers")?;
        let per_stage = m.layers / l.stages();
        let Recompute::Every(every) = l.recompute else {
            return self.require(
                l.recompute == Recompute::None,
                "layout.recompute",
                "attention is never stored whole here, so there is nothing to select",
                "use \"none\" or \"full\"",
            );
        };
        let fix = "choose a divisor of the layers on a stage";
        let key = if every == 1 { "layout.recompute" } else { "layout.recompute.every" };
        self.divides(key, "layout.recompute.every", per_stage, every, fix)
    }

    fn batches(&self) -> Outcome {
        let (l, batching) = (&self.run.layout, &self.run.train.batching);
        if let Some(ramp) = batching.ramp_up {
            let key = "train.ramp_up.start";
            let below = ramp.start <= batching.global;
            self.require(below, key, "starts above train.global_batch", "start below it")?;
            let growth = batching.global - ramp.start;
            let fix = "let the growth end at train.global_batch";
            self.divides("train.global_batch", "growth by train.ramp_up.increment", growth, ramp.increment, fix)?;
            let given = self.run.data.batches.is_some();
            self.require(!given, key, "given batches have their own sizes", "remove train.ramp_up")?;
        }
        if self.run.data.batches.is_some() {
            return Ok(()); // their sizes are known once the file is read: check_batch
        }
        // Every size is the start and whole increments, so two sizes stand for all of them.
        if let Some(ramp) = batching.ramp_up {
            self.batch("train.ramp_up.start", ramp.start, l.schedule)?;
            self.batch("train.ramp_up.increment", ramp.increment, l.schedule)?;
        }
        self.batch("train.global_batch", batching.global, l.schedule)
    }

    fn batch(&self, key: &str, size: usize, schedule: ScheduleKind) -> Outcome {
        let (l, micro) = (&self.run.layout, self.run.train.batching.micro);
        let step = micro * l.data;
        let product = "train.micro_batch * layout.data";
        self.divides(key, product, size, step, "change the batch, train.micro_batch or layout.data")?;
        if schedule != ScheduleKind::Interleaved || l.pipeline == 1 {
            return Ok(());
        }
        let fix = "interleaving advances in groups of layout.pipeline microbatches";
        let microbatches = size / step;
        let fits = microbatches.is_multiple_of(l.pipeline);
        let problem = format!("{microbatches} microbatches are not divisible by layout.pipeline = {}", l.pipeline);
        self.require(fits, key, problem, fix)
    }

    fn optimizer(&self) -> Outcome {
        let o = &self.run.train.optimizer;
        let key = "train.optimizer.min_lr";
        self.require(o.min_lr <= o.lr || o.decay == crate::Decay::Constant, key, "above lr", "lower it or raise lr")?;
        // Rows without gradient would divide nothing by nothing.
        self.require(o.eps > 0.0, "train.optimizer.eps", "must be above 0", "use 1e-8")?;
        self.require(o.beta1 < 1.0, "train.optimizer.beta1", "must be below 1", "use 0.9")?;
        self.require(o.beta2 < 1.0, "train.optimizer.beta2", "must be below 1", "use 0.95")
    }

    fn data(&self) -> Outcome {
        let data = &self.run.data;
        if self.run.task.is_some() {
            return self.task();
        }
        let none = self.run.model.task.is_none();
        self.require(none, "model.task", "only fine-tuning trains a task's head", "name the task under [task]")?;
        let some = !data.train.is_empty() || data.batches.is_some();
        self.require(
            some,
            "data.train",
            "there is nothing to train on",
            "name a corpus made by `henge data prepare`, as in train = [\"corpora/books\"]",
        )?;
        let both = !data.train.is_empty() && data.batches.is_some();
        self.require(!both, "data.batches", "replaces data.train", "remove one of the two")?;
        let eval = self.run.train.eval_every > 0 && data.batches.is_some() && data.valid.is_empty();
        self.require(!eval, "train.eval_every", "given batches have no validation share", "set data.valid or 0")?;
        self.stages()?;
        self.pairs()?;
        self.order()
    }

    /// A fine-tuning run reads its task's files and nothing else.
    fn task(&self) -> Outcome {
        let (run, head) = (self.run, self.run.model.task.expect("a task has a head"));
        let encoder = run.model.arch == Arch::Bert;
        self.require(encoder, "task.name", "asks for an encoder", "start from one, as in init.from = \"bert/\"")?;
        let problem = "is missing: examples are text";
        self.require(run.data.tokenizer.is_some(), "data.tokenizer", problem, "name the encoder's tokenizer")?;
        for key in ["data.train", "data.valid", "data.batches", "data.stages", "data.order", "data.order_samples"] {
            self.is_default(key, "a task has files of its own, task.train and task.valid")?;
        }
        let longest = run.model.seq_len;
        let fits = run.task.as_ref().and_then(|task| task.length).is_none_or(|length| length <= longest);
        let fix = format!("use at most model.seq_len = {longest}");
        self.require(fits, "task.length", "is more tokens than the model has positions for", fix)?;
        let (micro, group) = (run.train.batching.micro, head.group());
        let whole = micro.is_multiple_of(group);
        let problem = format!("= {micro} is not whole examples of {group} sequences");
        self.require(whole, "train.micro_batch", problem, format!("use a multiple of {group}"))
    }

    /// An encoder's samples are pairs of sentences, masked with its vocabulary.
    fn pairs(&self) -> Outcome {
        let data = &self.run.data;
        let reads_pairs = data.batches.is_none() || !data.valid.is_empty();
        if self.run.model.arch != Arch::Bert || !reads_pairs {
            return Ok(());
        }
        let types = self.run.model.token_types != 1;
        self.require(types, "model.token_types", "a pair has two types", "use 2, or 0 for none")?;
        let problem = "is missing: an encoder's samples are masked with its vocabulary";
        self.require(data.tokenizer.is_some(), "data.tokenizer", problem, "name the tokenizer of the corpus")?;
        self.require(data.stages.is_empty(), "data.stages", "an encoder has one blend", "remove the key")?;
        let formula = data.order == Order::Formula;
        self.require(formula, "data.order", "an encoder's samples have Henge's order", "use \"formula\"")?;
        let long = self.run.model.seq_len >= 16;
        self.require(long, "model.seq_len", "has no room for two sentences", "use 16 or more")
    }

    fn stages(&self) -> Outcome {
        let (stages, key) = (&self.run.data.stages, "data.stages");
        let rising = stages.windows(2).all(|pair| pair[0].from < pair[1].from) && stages.iter().all(|s| s.from > 0);
        self.require(rising, key, "does not begin later from stage to stage", "sort the stages, the first above 0")?;
        let named = stages.iter().all(|stage| !stage.train.is_empty());
        self.require(named, key, "has a stage without corpora", "name its corpora as data.train does")?;
        let formula = stages.is_empty() || self.run.data.order == Order::Formula;
        self.require(
            formula,
            key,
            "has no meaning in Megatron's order, which knows one blend",
            "use data.order = \"formula\"",
        )
    }

    fn order(&self) -> Outcome {
        let run = self.run;
        if run.data.order == Order::Formula {
            return self.is_default("data.order_samples", "only the megatron order is made for a number of samples");
        }
        let seed = u32::try_from(run.seed).is_ok();
        self.require(
            seed,
            "run.seed",
            "numpy's generator, which shuffles Megatron's order, takes 32 bits",
            "use less",
        )?;
        let taken = run.train.batching.consumed(run.train.steps);
        let enough = run.data.order_samples.is_none_or(|samples| samples >= taken);
        let problem = format!("the steps of this run take {taken} samples");
        self.require(enough, "data.order_samples", problem, "give the number that the run was begun for elsewhere")
    }
}

impl Run {
    /// Checks the size of one given batch, `sequences` long, against the layout.
    pub fn check_batch(&self, sequences: usize) -> Result<(), SpecError> {
        Rules { run: self, settings: self.settings() }.batch("data.batches", sequences, self.layout.schedule)
    }
}
