//! `henge bench generate`: a token behind a prompt with cached keys and values, beside running
//! the whole prefix again, and the bytes of weights that it reads beside the memory's bandwidth.
//!
//! The ceiling is a plain sum over as many bytes as the weights have: that is as far away as they
//! lie. The same over 64 MiB a thread is shown beside it; where the last cache is large (this can
//! be hundreds of MiB on a server) that measures the cache.

use super::{COPY_BYTES, PEAK_SECONDS, median, positive};
use crate::failure::{Failure, print, print_json};
use henge_checkpoint::{Block, CheckpointError, Source, Weights};
use henge_comm::threads;
use henge_cpu::{Fast, Rounding, Team, ceiling};
use henge_eval::{Generation, Listener, Loaded, Sampling, generate};
use henge_random::{fill_normal, key};
use henge_spec::{Layout, Model, Parameter, parameters};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

#[derive(clap::Args)]
pub struct Args {
    /// A model to decode with [default: a GPT of the shape below, its weights drawn]
    #[arg(long, visible_alias = "model", value_name = "PATH")]
    checkpoint: Option<std::path::PathBuf>,
    /// Transformer layers
    #[arg(long, default_value_t = 12)]
    layers: usize,
    /// Width of the residual stream
    #[arg(long, default_value_t = 768)]
    hidden: usize,
    /// Attention heads
    #[arg(long, default_value_t = 12)]
    heads: usize,
    /// Rows of the vocabulary
    #[arg(long, default_value_t = 16_384)]
    vocab: usize,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 512)]
    prompt: usize,
    /// Tokens decoded behind it
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Prompts that are decoded together
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What was measured, in float32.
#[derive(Serialize)]
struct Report {
    model: String,
    threads: usize,
    prompt: usize,
    batch: usize,
    /// Median of a step of the whole batch.
    step_seconds: f64,
    tokens_per_second: f64,
    /// The same tokens without a cache: the whole prefix through the model for each.
    whole_prefix_seconds: f64,
    times_faster: f64,
    /// Weights that a step reads.
    weight_bytes: u64,
    weight_bytes_per_second: f64,
    /// Of a sum over as many bytes as the weights have.
    read_bytes_per_second: f64,
    share_of_read: f64,
    /// Of a sum over 64 MiB a thread.
    near_read_bytes_per_second: f64,
    share_of_near_read: f64,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let threads = positive("--threads", args.threads)?;
    let (prompt, batch) = (positive("--prompt", args.prompt)?, positive("--batch", args.batch)?);
    let tokens = positive("--tokens", args.tokens)?;
    let loaded = Arc::new(args.loaded()?);
    let model = loaded.model().clone();
    if prompt + tokens > model.seq_len {
        let (asked, longest) = (prompt + tokens, model.seq_len);
        return Err(Failure::request(format!(
            "--prompt and --tokens ask for {asked} tokens; the model reads {longest}"
        )));
    }
    let weight_bytes = weight_bytes(&model);
    let bandwidth = || {
        let (team, all) = (Team::new(threads), usize::try_from(weight_bytes).unwrap_or(usize::MAX));
        let read = |bytes| ceiling::read_bandwidth(&team, bytes, PEAK_SECONDS);
        (read(all.div_ceil(threads)), read(COPY_BYTES))
    };
    // The ceilings are sampled on both sides of what is measured; the better is kept.
    let before = bandwidth();
    let (whole_prefix_seconds, step_seconds) = measure(&loaded, prompt, tokens, batch, threads)?;
    let after = bandwidth();
    let (read, near) = (before.0.max(after.0), before.1.max(after.1));
    let rate = weight_bytes as f64 / step_seconds;
    let Model { arch, layers, hidden, heads, vocab_size, .. } = &model;
    let report = Report {
        model: format!("{arch}, {layers} layers, hidden {hidden}, {heads} heads, vocabulary {vocab_size}, f32"),
        threads,
        prompt,
        batch,
        step_seconds,
        tokens_per_second: batch as f64 / step_seconds,
        whole_prefix_seconds,
        times_faster: whole_prefix_seconds / step_seconds,
        weight_bytes,
        weight_bytes_per_second: rate,
        read_bytes_per_second: read,
        share_of_read: rate / read,
        near_read_bytes_per_second: near,
        share_of_near_read: rate / near,
    };
    if args.json { print_json(&report) } else { print(&report.lines()) }
}

impl Args {
    fn loaded(&self) -> Result<Loaded, Failure> {
        if let Some(path) = &self.checkpoint {
            return Ok(Loaded::open(path)?);
        }
        let heads = positive("--heads", self.heads)?;
        if !self.hidden.is_multiple_of(heads) || self.hidden == 0 {
            let (hidden, heads) = (self.hidden, self.heads);
            return Err(Failure::request(format!("--hidden {hidden} is not divisible into --heads {heads}")));
        }
        let (layers, vocab) = (positive("--layers", self.layers)?, positive("--vocab", self.vocab)?);
        let longest = self.prompt + self.tokens;
        Ok(Loaded::of(Box::new(Drawn(Model::gpt(layers, self.hidden, heads, longest, vocab))))?)
    }
}

impl Report {
    fn lines(&self) -> String {
        let Self { model, threads, prompt, batch, .. } = self;
        let giga = |bytes: f64| bytes / 1e9;
        format!(
            "{model}, {threads} threads, {batch} prompts of {prompt} tokens\n\
             a step with the cache     {:8.2} ms, {:.1} tokens/s\n\
             the whole prefix again    {:8.2} ms, {:.1} times as long\n\
             weights read              {:8.2} GB/s\n\
             as many bytes summed      {:8.2} GB/s, of which the weights are {:.0}%\n\
             64 MiB a thread summed    {:8.2} GB/s, of which the weights are {:.0}%\n",
            1e3 * self.step_seconds,
            self.tokens_per_second,
            1e3 * self.whole_prefix_seconds,
            self.times_faster,
            giga(self.weight_bytes_per_second),
            giga(self.read_bytes_per_second),
            1e2 * self.share_of_read,
            giga(self.near_read_bytes_per_second),
            1e2 * self.share_of_near_read,
        )
    }
}

/// Seconds of the whole prompts through the model, and the median of a step behind them. The first
/// batch warms up; the prompts of the second begin when the first has ended.
fn measure(
    loaded: &Arc<Loaded>,
    prompt: usize,
    tokens: usize,
    batch: usize,
    threads: usize,
) -> Result<(f64, f64), Failure> {
    let clock = Arc::new(Clock::default());
    let vocab = loaded.model().vocab_size;
    let job = Generation {
        loaded: Arc::clone(loaded),
        tokenizer: None,
        layout: Layout::ONE,
        prompts: (0..2 * batch).map(|_| (0..prompt).map(|i| (i * 37 % vocab) as u32).collect()).collect(),
        batch,
        sampling: Sampling::Greedy,
        max_tokens: tokens + 1,
        end: None,
        stops: Vec::new(),
        listener: Arc::clone(&clock) as Arc<dyn Listener>,
    };
    generate(job, threads::Options::new(1, threads), move |_| Fast::new(threads, Rounding::Exact))?;
    let times = clock.0.lock().unwrap_or_else(PoisonError::into_inner);
    // When the last prompt of a batch has its token, the batch's step is done.
    let steps: Vec<Instant> = times.chunks(batch).map(|step| step[step.len() - 1]).collect();
    let seconds: Vec<f64> = steps[tokens..].windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    Ok((seconds[0], median(&seconds[1..])))
}

/// When each token was chosen.
#[derive(Default)]
struct Clock(Mutex<Vec<Instant>>);

impl Listener for Clock {
    fn chosen(&self, _prompt: usize, _token: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    }
}

/// Bytes that one step reads: every matrix, but of tables that are looked up in only a row.
fn weight_bytes(model: &Model) -> u64 {
    let is_looked_up =
        |p: &&Parameter| p.name.contains("position") || (p.name == "embedding.token.weight" && !model.tie_embeddings);
    parameters(model).iter().filter(|p| !is_looked_up(p)).map(|p| 4 * p.len() as u64).sum()
}

/// Weights that are drawn where they are read.
struct Drawn(Model);

impl Weights for Drawn {
    fn read(&self, parameter: &Parameter, block: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        let (_, width) = parameter.matrix();
        let rows = out.chunks_mut(block.columns.max(1)).zip(block.row..);
        rows.for_each(|(out, row)| {
            fill_normal(key(1, &parameter.name), (row * width + block.column) as u64, 0.02, out);
        });
        Ok(())
    }
}

impl Source for Drawn {
    fn path(&self) -> &Path {
        Path::new("drawn weights")
    }

    fn facts(&self) -> BTreeMap<String, toml::Value> {
        self.0.facts()
    }
}
