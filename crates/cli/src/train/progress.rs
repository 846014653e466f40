//! What a person sees of a run: a header, every evaluation and save, and the steps: as a bar on
//! a terminal, as a line now and then elsewhere.

use henge_spec::{Recompute, Run};
use henge_train::{Again, EvaluationReport, KindReport, Observer, Receipt, StepReport, TrainError};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines on standard error: the first steps, then one a few seconds, and the last.
pub struct Lines {
    steps: u64,
    last: Mutex<Option<Instant>>,
    bar: ProgressBar,
}

const PAUSE: Duration = Duration::from_secs(5);
const FIRST: u64 = 3;

impl Lines {
    pub fn new(steps: u64) -> Self {
        let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {elapsed_precise}, {eta_precise} left  {msg}");
        let bar = ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { steps, last: Mutex::new(None), bar }
    }

    /// What will run, on what.
    pub fn begin(&self, run: &Run, kind: &str, threads: usize) {
        let (m, l) = (&run.model, &run.layout);
        let parameters: usize = henge_spec::parameters(m).iter().map(|parameter| parameter.len()).sum();
        let recompute = if l.recompute == Recompute::None { "" } else { ", recomputing" };
        eprintln!(
            "{} of {parameters} parameters: {} layers, hidden {}, {} heads, sequence {}, vocabulary {}",
            m.arch, m.layers, m.hidden, m.heads, m.seq_len, m.vocab_size
        );
        eprintln!(
            "{} ranks ({kind}), {threads} computing threads each: tensor {}, pipeline {} x {} chunks ({}{recompute}), data {}; {}",
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

    /// A line, above the bar where there is one.
    fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
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

/// The eyes of a rank whose run another shows.
pub struct Quiet;

impl Observer for Quiet {
    fn step(&self, _: &StepReport) {}
    fn evaluation(&self, _: &EvaluationReport) {}
    fn saved(&self, _: u64, _: &Path) {}
    fn resumed(&self, _: &Receipt) {}
}

impl Observer for Lines {
    fn step(&self, report: &StepReport) {
        let numbers = format!(
            "loss {:.4}  lr {:.3e}  grad {:.3}{}  {:.0} tokens/s  {:.3} TFLOP/s",
            report.loss,
            report.lr,
            report.grad_norm,
            if report.skipped { "  skipped" } else { "" },
            report.tokens_per_second,
            report.model_tflops,
        );
        self.bar.set_position(report.step);
        self.bar.set_message(numbers.clone());
        if self.bar.is_hidden() && self.is_due(report.step) {
            let left = Duration::from_secs_f64(report.step_seconds * (self.steps - report.step) as f64);
            eprintln!("step {}/{}  {numbers}  {} left", report.step, self.steps, clock(left));
        }
        if report.step == self.steps {
            self.bar.finish();
        }
    }

    fn memory(&self, kinds: &[KindReport]) {
        let bytes = |bytes: u64| HumanBytes(bytes).to_string();
        let said = |kind: &KindReport| match kind.forecast {
            Some(forecast) => format!("{} {} (forecast {})", kind.kind, bytes(kind.held), bytes(forecast)),
            None => format!("{} {}", kind.kind, bytes(kind.held)),
        };
        let kinds: Vec<String> = kinds.iter().map(said).collect();
        self.say(&format!("rank 0 holds at most: {}", kinds.join(", ")));
    }

    fn saved(&self, _step: u64, folder: &Path) {
        self.say(&format!("saved {}", folder.display()));
    }

    fn save_failed(&self, error: &TrainError) {
        self.say(&format!("the save in flight failed too: {error}"));
    }

    fn resumed(&self, receipt: &Receipt) {
        self.say(&format!(
            "goes on from {}: step {}, {} samples, {} updates, next learning rate {:.3e}{}",
            receipt.folder.display(),
            receipt.step,
            receipt.samples,
            receipt.updates,
            receipt.lr,
            receipt.loss.map_or_else(String::new, |loss| format!(", last loss {loss:.4}"))
        ));
        let (next, norms) = (&receipt.next, &receipt.norms);
        if !next.is_empty() {
            self.say(&format!("  next samples {} to {}", next.start, next.end - 1));
        }
        self.say(&format!(
            "  norms as loaded: weights {:.6e}, first moments {:.6e}, second moments {:.6e}",
            norms.weight, norms.first_moment, norms.second_moment
        ));
        self.say(&match receipt.again {
            Again::Same { sample, loss, recorded } => {
                format!("  loss of sample {sample} again: {loss:.6}, {recorded:.6} when it was saved")
            }
            Again::OtherData { sample } => {
                format!("  sample {sample} has other tokens than when it was saved: the data or its order changed")
            }
            Again::NotRecorded => "  no loss is recorded to compute again: saved by an earlier Henge".to_string(),
        });
        if receipt.step >= self.steps {
            self.say(&format!("all {} steps are done; raise train.steps to train on", self.steps));
        }
    }

    fn evaluation(&self, report: &EvaluationReport) {
        // A fine-tuning task has no tokens to predict.
        let tokens = match report.targets {
            0 => String::new(),
            targets => format!(", perplexity {:.2} over {targets} targets", report.perplexity),
        };
        self.say(&format!("step {}  {}: loss {:.4}{tokens}", report.step, report.set, report.eval_loss));
    }
}

/// `1:02:03` or `2:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}
