//! `henge bench gemm`: the matrix products of a model, beside the peak of the same moment.

use super::{ShapeArgs, median, positive, sample_peak};
use crate::failure::{Failure, print, print_json};
use henge_cpu::Fast;
use henge_random::{fill_normal, key};
use henge_spec::Model;
use henge_tensor::{Backend, Buffer, Kind};
use serde::Serialize;
use std::time::Instant;

/// Tokens of a block of the vocabulary head, whose logits never exist whole.
const HEAD_TOKENS: usize = 512;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    shape: ShapeArgs,
    /// Sequences of a microbatch
    #[arg(long, default_value_t = 8)]
    micro_batch: usize,
    /// Times each product is run; the median is reported
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
        rates.extend(measure(&backend, &product, rounds, args.shape.threads));
    }
    if args.json {
        return print_json(&serde_json::json!({
            "backend": backend.describe(), "threads": args.shape.threads, "products": rates,
        }));
    }
    print(&text(&backend.describe(), &rates))
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

fn measure(backend: &Fast, product: &Product, rounds: usize, threads: usize) -> Vec<Rate> {
    let &Product { tokens, input, output, .. } = product;
    let random = |name: &str, len: usize| {
        let mut values = vec![0.0f32; len];
        fill_normal(key(1, name), 0, 1.0, &mut values);
        values
    };
    let mut master = backend.zeros(output * input, Kind::Weight);
    master.write(0, &random("weight", output * input));
    let weight = backend.prepare(&master, 0, output, input);
    let x = backend.upload(tokens, input, &random("input", tokens * input));
    let dy = backend.upload(tokens, output, &random("gradient", tokens * output));
    let mut grads = backend.zeros(output * input, Kind::Gradient);
    let mut peaks = sample_peak(threads);
    let seconds = [
        ("forward", time(rounds, || drop(backend.linear(&x, &weight, None)))),
        ("input gradient", time(rounds, || drop(backend.linear_input_gradient(&dy, &weight)))),
        ("weight gradient", time(rounds, || backend.linear_weight_gradient(&x, &dy, &mut grads, 0))),
    ];
    peaks.extend(sample_peak(threads));
    let peak = median(&peaks);
    seconds.map(|(direction, seconds)| product.rate(direction, seconds, peak)).into()
}

impl Product {
    fn rate(&self, direction: &'static str, seconds: f64, peak: f64) -> Rate {
        let &Self { name, tokens, input, output } = self;
        let rate = 2.0 * (tokens * input * output) as f64 / seconds;
        Rate {
            product: name,
            direction,
            tokens,
            input,
            output,
            seconds,
            gflops_per_second: rate / 1e9,
            peak_gflops_per_second: peak / 1e9,
            share_of_peak: rate / peak,
        }
    }
}

/// Median seconds, after one round to warm up.
fn time(rounds: usize, mut work: impl FnMut()) -> f64 {
    work();
    let once = |_| {
        let begin = Instant::now();
        work();
        begin.elapsed().as_secs_f64()
    };
    median(&(0..rounds).map(once).collect::<Vec<_>>())
}

fn text(backend: &str, rates: &[Rate]) -> String {
    let mut text = format!("{backend}; the peak is that of float32 multiply-adds on as many threads\n");
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
        let rate = product.rate("forward", 0.5, 4e9);
        assert_eq!((rate.gflops_per_second, rate.share_of_peak), (2.0, 0.5));
    }
}
