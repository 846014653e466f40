//! What a person sees of a run: a header, a line now and then, every evaluation.

use henge_spec::{Recompute, Run};
use henge_train::{EvaluationReport, Observer, Receipt, StepReport};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines on standard error: the first steps, then one a few seconds, and the last.
pub struct Lines {
    steps: u64,
    last: Mutex<Option<Instant>>,
}

const PAUSE: Duration = Duration::from_secs(5);
const FIRST: u64 = 3;

impl Lines {
    pub fn new(steps: u64) -> Self {
        Self { steps, last: Mutex::new(None) }
    }

    /// What will run, on what.
    pub fn begin(&self, run: &Run, threads: usize) {
        let (m, l) = (&run.model, &run.layout);
        let parameters: usize = henge_spec::parameters(m).iter().map(|parameter| parameter.len()).sum();
        let recompute = if l.recompute == Recompute::None { "" } else { ", recomputing" };
        eprintln!(
            "{} of {parameters} parameters: {} layers, hidden {}, {} heads, sequence {}, vocabulary {}",
            m.arch, m.layers, m.hidden, m.heads, m.seq_len, m.vocab_size
        );
        eprintln!(
            "{} ranks of {threads} threads: tensor {}, pipeline {} x {} chunks ({}{recompute}), data {}; {}",
            l.ranks(),
            l.tensor,
            l.pipeline,
            l.chunks,
            l.schedule,
            l.data,
            run.train.precision
        );
        eprintln!("metrics: {}/metrics.jsonl", run.dir);
    }

    fn is_due(&self, step: u64) -> bool {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let due = step <= FIRST || step == self.steps || last.is_none_or(|last| last.elapsed() >= PAUSE);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

impl Observer for Lines {
    fn step(&self, report: &StepReport) {
        if self.is_due(report.step) {
            let left = Duration::from_secs_f64(report.step_seconds * (self.steps - report.step) as f64);
            eprintln!(
                "step {}/{}  loss {:.4}  lr {:.3e}  grad {:.3}{}  {:.0} tokens/s  {:.3} TFLOP/s  {} left",
                report.step,
                self.steps,
                report.loss,
                report.lr,
                report.grad_norm,
                if report.skipped { "  skipped" } else { "" },
                report.tokens_per_second,
                report.model_tflops,
                clock(left)
            );
        }
    }

    fn saved(&self, _step: u64, folder: &Path) {
        eprintln!("saved {}", folder.display());
    }

    fn resumed(&self, receipt: &Receipt) {
        eprintln!(
            "goes on from {}: step {}, {} samples, {} updates, next learning rate {:.3e}{}",
            receipt.folder.display(),
            receipt.step,
            receipt.samples,
            receipt.updates,
            receipt.lr,
            receipt.loss.map_or_else(String::new, |loss| format!(", last loss {loss:.4}"))
        );
        if receipt.step >= self.steps {
            eprintln!("all {} steps are done; raise train.steps to train on", self.steps);
        }
    }

    fn evaluation(&self, report: &EvaluationReport) {
        eprintln!(
            "step {}  {}: loss {:.4}, perplexity {:.2} over {} targets",
            report.step, report.set, report.eval_loss, report.perplexity, report.targets
        );
    }
}

/// `1:02:03` or `2:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}
