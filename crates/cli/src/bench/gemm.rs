//! `henge bench gemm`: the matrix products of a model, beside the peak of the same moment.

use super::{ShapeArgs, median, positive};
use crate::failure::{Failure, print, print_json};
use henge_cpu::Fast;
use henge_cpu::ceiling::Unit;
use henge_random::{fill_normal, key};
use henge_spec::Model;
use henge_tensor::{Backend, Buffer, Kind};
use serde::Serialize;
use std::time::Instant;

/// Seconds of one sample of the peak.
const PEAK_SECONDS: f64 = 0.005;
/// Share of the best peak below which the machine is busy with something else.
const QUIET: f64 = 0.8;
/// Tokens of a block of the vocabulary head, whose logits never exist whole.
const HEAD_TOKENS: usize = 512;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    shape: ShapeArgs,
    /// Sequences of a microbatch
    #[arg(long, default_value_t = 8)]
    micro_batch: usize,
    /// Times each product is run, the peak sampled before and after each; the median of those
    /// during which the machine was quiet is reported
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// `[tokens, input] -> [tokens, output]`.
struct Product {
    name: &'static str,
    tokens: usize,
    input: usize,
    output: usize,
}

/// One direction of a product.
#[derive(Serialize)]
struct Rate {
    product: &'static str,
    direction: &'static str,
    tokens: usize,
    input: usize,
    output: usize,
    seconds: f64,
    /// Repetitions with a quiet machine on both sides.
    quiet: usize,
    gflops_per_second: f64,
    peak_gflops_per_second: f64,
    share_of_peak: f64,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let rounds = positive("--rounds", args.rounds)?;
    let micro = positive("--micro-batch", args.micro_batch)?;
    let batch = [format!("train.micro_batch={micro}"), format!("train.global_batch={micro}")];
    let run = args.shape.run(&batch)?;
    let backend = Fast::new(args.shape.threads, args.shape.precision);
    let mut rates = Vec::new();
    for product in products(&run.model, micro * run.model.seq_len) {
        eprintln!("{} [{}, {}] -> [{}]", product.name, product.tokens, product.input, product.output);
        rates.extend(measure(&backend, &product, rounds, args.shape.unit()));
    }
    if args.json {
        return print_json(&serde_json::json!({
            "backend": backend.describe(), "threads": args.shape.threads,
            "peak_of": args.shape.unit().name(), "products": rates,
        }));
    }
    print(&text(&backend.describe(), args.shape.unit(), &rates))
}

fn products(model: &Model, tokens: usize) -> Vec<Product> {
    let (hidden, ffn) = (model.hidden, model.ffn_hidden);
    let attention = model.heads * model.head_dim;
    let qkv = attention + 2 * model.kv_heads * model.head_dim;
    let head = tokens.min(HEAD_TOKENS);
    vec![
        Product { name: "query, key, value", tokens, input: hidden, output: qkv },
        Product { name: "attention output", tokens, input: attention, output: hidden },
        Product { name: "mlp in", tokens, input: hidden, output: ffn },
        Product { name: "mlp out", tokens, input: ffn, output: hidden },
        Product { name: "head, a block", tokens: head, input: hidden, output: model.vocab_size },
    ]
}

fn measure(backend: &Fast, product: &Product, rounds: usize, unit: Unit) -> Vec<Rate> {
    let &Product { tokens, input, output, .. } = product;
    let random = |name: &str, len: usize| {
        let mut values = vec![0.0f32; len];
        fill_normal(key(1, name), 0, 1.0, &mut values);
        values
    };
    let mut master = backend.zeros(output * input, Kind::Weight);
    master.write(0, &random("weight", output * input));
    let weight = backend.prepare(&master, 0, output, input);
    // In the form in which the operations of a step leave them.
    let operand = |name: &str, columns: usize| {
        let mut ones = backend.zeros(columns, Kind::Weight);
        ones.write(0, &vec![1.0; columns]);
        let gain = backend.prepare_vector(&ones, 0, columns);
        backend.rms_norm(&backend.upload(tokens, columns, &random(name, tokens * columns)), &gain, 1e-5).0
    };
    let (x, dy) = (operand("input", input), operand("gradient", output));
    let mut grads = backend.zeros(output * input, Kind::Gradient);
    let time = |work: &mut dyn FnMut()| Repetitions::of(rounds, work, || unit.peak(backend.team(), PEAK_SECONDS));
    [
        ("forward", time(&mut || drop(backend.linear(&x, &weight, None)))),
        ("input gradient", time(&mut || drop(backend.linear_input_gradient(&dy, &weight)))),
        ("weight gradient", time(&mut || backend.linear_weight_gradient(&x, &dy, &mut grads, 0))),
    ]
    .map(|(direction, times)| product.rate(direction, &times))
    .into()
}

impl Product {
    fn rate(&self, direction: &'static str, times: &Repetitions) -> Rate {
        let &Self { name, tokens, input, output } = self;
        let flop = 2.0 * (tokens * input * output) as f64;
        let quiet = times.quiet();
        let (peaks, seconds): (Vec<f64>, Vec<f64>) = quiet.iter().map(|time| (time.peak(), time.seconds)).unzip();
        let shares: Vec<f64> = quiet.iter().map(|time| flop / time.seconds / time.peak()).collect();
        Rate {
            product: name,
            direction,
            tokens,
            input,
            output,
            seconds: median(&seconds),
            quiet: quiet.len(),
            gflops_per_second: flop / median(&seconds) / 1e9,
            peak_gflops_per_second: median(&peaks) / 1e9,
            share_of_peak: median(&shares),
        }
    }
}

/// One run of a product between two samples of the peak.
#[derive(Clone, Copy)]
struct Repetition {
    before: f64,
    seconds: f64,
    after: f64,
}

impl Repetition {
    fn peak(self) -> f64 {
        (self.before + self.after) / 2.0
    }
}

struct Repetitions(Vec<Repetition>);

impl Repetitions {
    /// `rounds` runs, after one to warm up.
    fn of(rounds: usize, work: &mut dyn FnMut(), peak: impl Fn() -> f64) -> Self {
        work();
        let mut before = peak();
        let once = |_| {
            let begin = Instant::now();
            work();
            let seconds = begin.elapsed().as_secs_f64();
            let after = peak();
            Repetition { before: std::mem::replace(&mut before, after), seconds, after }
        };
        Self((0..rounds).map(once).collect())
    }

    /// Those with both samples near the best of all; all where there are none.
    fn quiet(&self) -> Vec<Repetition> {
        let best = self.0.iter().map(|time| time.before.max(time.after)).fold(0.0, f64::max);
        let quiet: Vec<_> = self.0.iter().copied().filter(|time| time.before.min(time.after) > QUIET * best).collect();
        if quiet.is_empty() { self.0.clone() } else { quiet }
    }
}

fn text(backend: &str, unit: Unit, rates: &[Rate]) -> String {
    let mut text = format!("{backend}; the peak is that of {} on as many threads\n", unit.name());
    text += "product            direction         tokens  input  output        ms  GFLOP/s   peak  share\n";
    for r in rates {
        text += &format!(
            "{:<18} {:<16} {:>7} {:>6} {:>7} {:>9.2} {:>8.1} {:>6.1} {:>5.1}%\n",
            r.product,
            r.direction,
            r.tokens,
            r.input,
            r.output,
            r.seconds * 1e3,
            r.gflops_per_second,
            r.peak_gflops_per_second,
            100.0 * r.share_of_peak
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_counts_two_operations_a_multiply_add() {
        let product = Product { name: "x", tokens: 1000, input: 1000, output: 500 };
        let of = |seconds, after| Repetition { before: 4e9, seconds, after };
        // The second was disturbed, and counts for nothing.
        let times = Repetitions(vec![of(0.5, 4e9), of(3.0, 1e9), of(0.5, 4e9)]);
        let rate = product.rate("forward", &times);
        assert_eq!((rate.gflops_per_second, rate.share_of_peak, rate.quiet), (2.0, 0.5, 2));
    }
}
