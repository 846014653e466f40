//! `henge bench`: what Henge reaches on this machine, beside what the machine could do at
//! best, measured in the same run.

mod breakdown;
mod comm;
mod data;
mod gemm;
mod generate;
mod peer;
mod roofline;
mod step;

use crate::failure::Failure;
use henge_cpu::Team;
use henge_cpu::ceiling::{self, Unit};
use henge_spec::{Model, Precision, Run, Settings};

/// Seconds of one sample of the peak.
const PEAK_SECONDS: f64 = 0.2;
/// Bytes that each thread copies to sample the bandwidth: more than its caches hold.
const COPY_BYTES: usize = 64 << 20;
/// Samples of the peak on each side of what is measured.
const PEAK_SAMPLES: usize = 3;

#[derive(clap::Subcommand)]
pub enum Command {
    /// All-reduce over ranks of one thread, beside a copy by the same threads
    Comm(comm::Args),
    /// Tokenizing, preparing and reading text, beside the `tokenizers` library on the same cores
    Data(data::Args),
    /// The products of a model's shapes: forward, input gradient, weight gradient
    Gemm(gemm::Args),
    /// Decoding with cached keys and values, beside the whole prefix again and the memory's bandwidth
    Generate(generate::Args),
    /// Whole training steps on random tokens
    Step(step::Args),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Comm(args) => comm::run(args),
        Command::Data(args) => data::run(args),
        Command::Gemm(args) => gemm::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Step(args) => step::run(args),
    }
}

/// The model that is measured.
#[derive(clap::Args)]
struct ShapeArgs {
    /// Transformer layers
    #[arg(long, default_value_t = 6)]
    layers: usize,
    /// Width of the residual stream
    #[arg(long, default_value_t = 512)]
    hidden: usize,
    /// Attention heads
    #[arg(long, default_value_t = 8)]
    heads: usize,
    /// Tokens of a sequence
    #[arg(long, default_value_t = 512)]
    seq: usize,
    /// Rows of the vocabulary
    #[arg(long, default_value_t = 50304)]
    vocab: usize,
    /// Precision of products: f32, bf16 or f16
    #[arg(long, default_value = "bf16")]
    precision: Precision,
    /// Threads of all ranks together
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

impl ShapeArgs {
    /// A run of this model, without dropout, held to every rule of a run file; `rest` are
    /// more lines `key = value`.
    fn run(&self, rest: &[String]) -> Result<Run, Failure> {
        let Self { layers, hidden, heads, seq, vocab, precision, threads: _ } = self;
        // No file is read by this name; a run file must name a corpus.
        let mut settings = Settings::parse("data.train = [\"random tokens\"]\nmodel.dropout = 0.0\n", "henge bench")?;
        let own = [
            format!("model.layers={layers}"),
            format!("model.hidden={hidden}"),
            format!("model.heads={heads}"),
            format!("model.seq_len={seq}"),
            format!("model.vocab_size={vocab}"),
            format!("train.precision=\"{precision}\""),
        ];
        own.iter().chain(rest).try_for_each(|text| settings.set(text))?;
        Ok(Run::resolve(settings)?)
    }

    /// What its products could run on at best.
    fn unit(&self) -> Unit {
        Unit::of(self.precision)
    }

    /// What names the shape in reports.
    fn words(&self) -> String {
        let Self { layers, hidden, heads, seq, vocab, precision, threads } = self;
        format!(
            "{layers} layers, hidden {hidden}, {heads} heads, sequence {seq}, vocabulary {vocab}, {precision}, \
             {threads} threads"
        )
    }
}

/// FLOP of one training step of `batch` sequences: 72 b s l h^2 (1 + s/6h + V/12lh).
fn step_flops(model: &Model, batch: usize) -> f64 {
    henge_spec::formulas::model_flops(model, batch as f64)
}

/// What a unit does at most a second on `threads` threads, sampled some times.
fn sample_peak(unit: Unit, threads: usize) -> Vec<f64> {
    let team = Team::new(threads.max(1));
    (0..PEAK_SAMPLES).map(|_| unit.peak(&team, PEAK_SECONDS)).collect()
}

/// Bytes a second, read plus written, of a copy by `threads` threads.
fn sample_bandwidth(threads: usize) -> f64 {
    ceiling::copy_bandwidth(&Team::new(threads.max(1)), COPY_BYTES, PEAK_SECONDS)
}

/// The middle value, the upper of two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Refuses a zero where something is counted.
fn positive(flag: &str, value: usize) -> Result<usize, Failure> {
    if value > 0 { Ok(value) } else { Err(Failure::request(format!("{flag} 0: give at least 1"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> ShapeArgs {
        ShapeArgs { layers: 6, hidden: 512, heads: 8, seq: 512, vocab: 50304, precision: Precision::F32, threads: 2 }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 3.0);
    }

    #[test]
    fn a_shape_becomes_a_run_and_its_flop_are_the_papers() {
        let run = shape().run(&["train.global_batch=8".to_string(), "train.micro_batch=8".to_string()]).unwrap();
        let (b, s, l, h, v) = (8.0, 512.0, 6.0, 512.0, 50304.0);
        let paper = 72.0 * b * s * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * l * h));
        assert!((step_flops(&run.model, 8) / paper - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_shape_that_cannot_be_is_refused() {
        let shape = ShapeArgs { heads: 7, ..shape() };
        assert!(shape.run(&[]).is_err());
    }
}
