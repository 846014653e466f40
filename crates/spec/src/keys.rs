//! Every key of a run file: one table for parsing, defaults and printing.

/// A key of the run file.
pub(crate) struct Key {
    /// Dotted name.
    pub name: &'static str,
    /// Default as TOML, empty where there is none or it is derived from other keys.
    pub default: &'static str,
}

const fn key(name: &'static str, default: &'static str) -> Key {
    Key { name, default }
}

/// In the order in which they are printed.
pub(crate) const KEYS: &[Key] = &[
    key("run.dir", ""),
    key("run.seed", "1234"),
    key("run.threads", "0"),
    key("run.timeout", "600"),
    key("run.heartbeat_timeout", "30"),
    key("model.preset", ""),
    key("model.arch", "\"gpt\""),
    key("model.layers", ""),
    key("model.hidden", ""),
    key("model.heads", ""),
    key("model.kv_heads", ""),
    key("model.head_dim", ""),
    key("model.ffn_hidden", ""),
    key("model.seq_len", ""),
    key("model.vocab_size", ""),
    key("model.dropout", ""),
    key("model.embedding_dropout", ""),
    key("model.attention_dropout", ""),
    key("model.hidden_dropout", ""),
    key("model.init_std", "0.02"),
    key("model.tie_embeddings", ""),
    key("model.norm", "\"pre\""),
    key("model.activation", ""),
    key("model.norm_eps", "1e-5"),
    key("model.rope.theta", ""),
    key("model.rope.scaling", ""),
    key("model.rope.factor", ""),
    key("model.rope.low_freq_factor", ""),
    key("model.rope.high_freq_factor", ""),
    key("model.rope.beta_fast", ""),
    key("model.rope.beta_slow", ""),
    key("model.rope.original_len", ""),
    key("model.token_types", ""),
    key("model.qkv_bias", ""),
    key("model.task", ""),
    key("model.task_classes", ""),
    key("layout.tensor", "1"),
    key("layout.pipeline", "1"),
    key("layout.data", "1"),
    key("layout.chunks", "1"),
    key("layout.schedule", "\"1f1b\""),
    key("layout.recompute", "\"none\""),
    key("layout.recompute.every", ""),
    key("train.steps", "1000"),
    key("train.global_batch", "64"),
    key("train.micro_batch", "4"),
    key("train.precision", "\"f32\""),
    key("train.optimizer.lr", "1.5e-4"),
    key("train.optimizer.min_lr", "1e-5"),
    key("train.optimizer.warmup_steps", "0"),
    key("train.optimizer.decay", "\"cosine\""),
    key("train.optimizer.decay_steps", ""),
    key("train.optimizer.beta1", "0.9"),
    key("train.optimizer.beta2", "0.95"),
    key("train.optimizer.eps", "1e-8"),
    key("train.optimizer.weight_decay", "0.01"),
    key("train.optimizer.clip", "1.0"),
    key("train.loss_scale.initial", "65536.0"),
    key("train.loss_scale.growth_interval", "1000"),
    key("train.loss_scale.hysteresis", "2"),
    key("train.loss_scale.min", "1.0"),
    key("train.ramp_up.start", ""),
    key("train.ramp_up.increment", ""),
    key("train.ramp_up.samples", ""),
    key("train.eval_every", "0"),
    key("train.eval_steps", "10"),
    key("data.train", "[]"),
    key("data.stages", "[]"),
    key("data.order", "\"formula\""),
    key("data.order_samples", ""),
    key("data.valid", "[]"),
    key("data.split", "[969, 30, 1]"),
    key("data.tokenizer", ""),
    key("data.batches", ""),
    key("task.name", ""),
    key("task.train", ""),
    key("task.valid", "[]"),
    key("task.seeds", "5"),
    key("task.epochs", ""),
    key("task.length", ""),
    key("checkpoint.every", "0"),
    key("checkpoint.keep", "3"),
    key("init.from", ""),
];

/// Every name, for a person to choose from.
pub(crate) fn names() -> String {
    KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// The table's entry of a name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known key most like `name`, if any is close: by the whole dotted name or by its
/// last part in another table.
pub(crate) fn nearest(name: &str) -> Option<String> {
    let last = |dotted: &str| dotted.rsplit('.').next().unwrap_or_default().to_string();
    let score = |known: &str| {
        let whole = strsim::jaro_winkler(name, known);
        let tail = strsim::jaro_winkler(&last(name), &last(known));
        whole.max(0.98 * tail)
    };
    KEYS.iter()
        .map(|key| (score(key.name), key.name))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(score, _)| *score > 0.8)
        .map(|(_, name)| name.to_string())
}
