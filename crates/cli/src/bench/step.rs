//! `henge bench step`: whole training steps on random tokens.

use super::breakdown::{self, Ceiling, Totals};
use super::peer::{self, PeerArgs};
use super::{ShapeArgs, median, positive, roofline, sample_bandwidth, sample_peak, step_flops};
use crate::failure::{Failure, print, print_json};
use henge_comm::threads;
use henge_cpu::Fast;
use henge_plan::parse_layout;
use henge_random::{Philox, key, uniform};
use henge_spec::{Layout, Run, ScheduleKind};
use henge_tensor::{Backend, Entry, Ledger, Operation, Timed};
use henge_train::{EvaluationReport, Job, Observer, Options, Receipt, Sequence, Source, StepReport, TrainError};
use indicatif::HumanBytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    shape: ShapeArgs,
    /// Sequences of a step
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Sequences of a microbatch
    #[arg(long, default_value_t = 8)]
    micro_batch: usize,
    /// Ranks of each axis, and chunks of a pipeline rank (v)
    #[arg(long, default_value = "t=1,p=1,d=1")]
    layout: String,
    /// gpipe, 1f1b or interleaved [default: interleaved with v above 1, else 1f1b]
    #[arg(long)]
    schedule: Option<ScheduleKind>,
    /// Steps that are measured; the median is reported
    #[arg(long, default_value_t = 5)]
    steps: usize,
    /// Steps before them
    #[arg(long, default_value_t = 2)]
    warmup: usize,
    #[command(flatten)]
    peer: PeerArgs,
    /// Draw the step's operations under the machine's ceilings, as SVG
    #[arg(long, value_name = "FILE")]
    roofline: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    positive("--steps", args.steps)?;
    let run = resolve(&args)?;
    let threads = crate::cores::threads_per_rank(args.shape.threads, run.layout.ranks());
    let busy = threads * run.layout.ranks();
    let mut peers = Vec::from_iter(args.peer.measure(&args.shape, args.batch)?);
    let mut peaks = sample_peak(args.shape.unit(), busy);
    let bandwidth = sample_bandwidth(busy);
    let steps = measure(run.clone(), threads)?;
    peaks.extend(sample_peak(args.shape.unit(), busy));
    peers.extend(args.peer.measure(&args.shape, args.batch)?);
    let measured = steps.get(args.warmup..).unwrap_or_default();
    let figures = Figures { args: &args, run: &run, steps: measured, peaks: &peaks, bandwidth, peers: &peers };
    // First: a picture that cannot be written must not cost the figures.
    if args.json { print_json(&figures.json()) } else { print(&figures.text()) }?;
    let Some(path) = &args.roofline else { return Ok(()) };
    crate::planning::write(path, &roofline::svg(&figures.rows(), figures.ceiling())?)
}

fn resolve(args: &Args) -> Result<Run, Failure> {
    if args.layout.split(',').any(|part| part.trim_start().starts_with('b')) {
        return Err(Failure::request(format!("--layout {}: give b by --micro-batch", args.layout)));
    }
    let (layout, _) = parse_layout(&args.layout)?;
    let Layout { tensor, pipeline, data, chunks, schedule, .. } = layout;
    let schedule = args.schedule.unwrap_or(schedule);
    let steps = args.warmup + args.steps;
    let rest = [
        format!("layout.tensor={tensor}"),
        format!("layout.pipeline={pipeline}"),
        format!("layout.data={data}"),
        format!("layout.chunks={chunks}"),
        format!("layout.schedule=\"{schedule}\""),
        format!("train.global_batch={}", args.batch),
        format!("train.micro_batch={}", args.micro_batch),
        format!("train.steps={steps}"),
    ];
    args.shape.run(&rest)
}

/// Trains in a folder that is gone afterwards; the trainer's last checkpoint is written
/// there, after the last step that is measured.
fn measure(run: Run, threads: usize) -> Result<Vec<Step>, Failure> {
    let folder = tempfile::tempdir().map_err(Failure::run)?;
    let (ranks, precision) = (run.layout.ranks(), run.train.precision);
    let tokens = RandomTokens {
        philox: Philox::new(key(run.seed, "bench tokens")),
        seq_len: run.model.seq_len,
        vocab_size: run.model.vocab_size,
        batch: run.train.batching.global,
    };
    let ledgers: Vec<Ledger> = (0..ranks).map(|_| Ledger::default()).collect();
    let collected = Arc::new(Collected { ledger: ledgers[0].clone(), steps: Mutex::default() });
    let job = Arc::new(Job {
        folder: folder.path().to_path_buf(),
        train: Arc::new(tokens),
        predict: vec![],
        valid: Vec::new(),
        weights: None,
        resume: None,
        stop: Arc::new(AtomicBool::new(false)),
        options: Options { ledgers: ledgers.clone(), ..Options::default() },
        observer: collected.clone(),
        run,
    });
    let device = move |rank: usize| {
        let fast = Fast::new(threads, precision);
        let bytes = fast.element_bytes();
        Timed::new(fast, ledgers[rank].clone(), bytes)
    };
    henge_train::launch(job, threads::Options::new(ranks, threads), device)?;
    let mut steps = collected.steps.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut steps))
}

/// Tokens and targets without any order to learn, a function of their place.
struct RandomTokens {
    philox: Philox,
    seq_len: usize,
    vocab_size: usize,
    batch: usize,
}

impl Source for RandomTokens {
    fn batch(&self, _step: u64, _consumed: u64) -> Option<usize> {
        Some(self.batch)
    }

    fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
        let place = [position as u32, (position >> 32) as u32];
        let pair = |index: usize| {
            let [a, b, c, d] = self.philox.block([place[0], place[1], index as u32, 0]);
            [[a, b], [c, d]].map(|words| uniform::below(words, self.vocab_size as u64))
        };
        let (tokens, labels) = (0..self.seq_len).map(pair).map(|[token, label]| (token as u32, label as i64)).unzip();
        Ok(Sequence { tokens, labels, pair: None })
    }
}

/// A step and what its operations on rank 0 cost.
struct Step {
    report: StepReport,
    entries: BTreeMap<Operation, Entry>,
}

/// The steps so far, and where rank 0 writes what the next one costs.
struct Collected {
    ledger: Ledger,
    steps: Mutex<Vec<Step>>,
}

impl Observer for Collected {
    fn step(&self, report: &StepReport) {
        eprintln!("step {}: {:.3} s", report.step, report.step_seconds);
        let step = Step { report: report.clone(), entries: self.ledger.take() };
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    }

    fn evaluation(&self, _report: &EvaluationReport) {}
    fn saved(&self, _step: u64, _folder: &Path) {}
    fn resumed(&self, _receipt: &Receipt) {}
}

/// What was measured, and what follows from it.
struct Figures<'a> {
    args: &'a Args,
    run: &'a Run,
    steps: &'a [Step],
    peaks: &'a [f64],
    bandwidth: f64,
    peers: &'a [Value],
}

impl Figures<'_> {
    fn seconds(&self) -> Vec<f64> {
        self.steps.iter().map(|step| step.report.step_seconds).collect()
    }

    fn rate(&self) -> f64 {
        step_flops(&self.run.model, self.args.batch) / median(&self.seconds())
    }

    fn tokens_per_second(&self) -> f64 {
        (self.args.batch * self.run.model.seq_len) as f64 / median(&self.seconds())
    }

    fn held_bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.report.held_bytes).max().unwrap_or(0)
    }

    /// One rank's share of what all ranks reach at best.
    fn ceiling(&self) -> Ceiling {
        let ranks = self.run.layout.ranks() as f64;
        Ceiling { flops: median(self.peaks) / ranks, bandwidth: self.bandwidth / ranks }
    }

    fn rows(&self) -> Vec<breakdown::Row> {
        let mut totals = Totals::default();
        self.steps.iter().for_each(|step| totals.add(step.report.step_seconds, &step.entries));
        totals.rows(&self.run.model, self.run.layout.tensor, self.ceiling())
    }

    /// Seconds of the peer's step at the better of its two turns, so that a busy moment
    /// does not count against it.
    fn peer_seconds(&self) -> Option<f64> {
        self.peers.iter().filter_map(peer::seconds).min_by(f64::total_cmp)
    }

    fn json(&self) -> Value {
        let (seconds, peak) = (self.seconds(), median(self.peaks));
        let layout = &self.run.layout;
        let mut document = json!({
            "layers": self.run.model.layers, "hidden": self.run.model.hidden, "heads": self.run.model.heads,
            "seq": self.run.model.seq_len, "vocab": self.run.model.vocab_size,
            "batch": self.args.batch, "micro_batch": self.args.micro_batch,
            "precision": self.args.shape.precision.to_string(), "threads": self.args.shape.threads,
            "layout": {
                "tensor": layout.tensor, "pipeline": layout.pipeline, "data": layout.data, "chunks": layout.chunks,
                "schedule": layout.schedule.to_string(),
            },
            "step_seconds": median(&seconds),
            "step_seconds_all": seconds,
            "tokens_per_second": self.tokens_per_second(),
            "model_gflops_per_second": self.rate() / 1e9,
            "peak_gflops_per_second": peak / 1e9,
            "peak_of": self.args.shape.unit().name(),
            "peak_samples": self.peaks.iter().map(|peak| peak / 1e9).collect::<Vec<_>>(),
            "share_of_peak": self.rate() / peak,
            "held_bytes": self.held_bytes(),
            "ceiling_of_a_rank": self.ceiling(),
            "breakdown": self.rows(),
        });
        if let Some(peer) = self.peer_seconds() {
            document["peer"] = json!(self.peers);
            document["rate_over_peer"] = json!(peer / median(&seconds));
        }
        document
    }

    fn text(&self) -> String {
        let (seconds, peak) = (median(&self.seconds()), median(self.peaks));
        let least = self.seconds().into_iter().fold(f64::INFINITY, f64::min);
        let mut text = format!(
            "{}, batch {}, microbatch {}, layout {}\n\
             step       {seconds:.4} s (median of {}; least {least:.4})\n\
             rate       {:.0} tokens/s, {:.1} GFLOP/s of the model\n\
             peak       {:.1} GFLOP/s, {} on all its threads, around the steps\n\
             share      {:.1}%\n\
             held       {} on rank 0 at most\n",
            self.args.shape.words(),
            self.args.batch,
            self.args.micro_batch,
            self.args.layout,
            self.steps.len(),
            self.tokens_per_second(),
            self.rate() / 1e9,
            peak / 1e9,
            self.args.shape.unit().name(),
            100.0 * self.rate() / peak,
            HumanBytes(self.held_bytes()),
        );
        if let Some(peer) = self.peer_seconds() {
            text += &format!("peer       {peer:.4} s a step; this rate is {:.2} of the peer's\n", peer / seconds);
        }
        text + &breakdown::text(&self.rows(), self.ceiling())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_a_function_of_their_place_and_fit_the_vocabulary() {
        let source = RandomTokens { philox: Philox::new(7), seq_len: 64, vocab_size: 100, batch: 2 };
        let first = source.sequence(0).unwrap();
        assert_eq!(first, source.sequence(0).unwrap());
        assert_ne!(first, source.sequence(1).unwrap());
        assert!(first.tokens.iter().all(|&token| token < 100));
        assert!(first.labels.iter().all(|&label| (0..100).contains(&label)));
    }
}
