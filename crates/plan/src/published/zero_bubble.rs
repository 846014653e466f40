//! The zero-bubble paper's 1F1B and interleaved columns (arXiv 2401.10241): operation
//! times are given, so that only the simulator is on trial, not the cost model.

use crate::Jitter;
use crate::simulate::{Durations, simulate};
use crate::switches::Overlap;
use henge_schedule::{Kind, Program, Shape};

/// One row: printed and simulated step times, from bubble rates over the step.
#[derive(Clone, Debug, PartialEq)]
pub struct BubbleRow {
    /// Model, p and m.
    pub label: String,
    /// `1f1b` or `interleaved`.
    pub schedule: &'static str,
    /// Bubble over step as printed.
    pub published: f64,
    /// Bubble over step as simulated.
    pub simulated: f64,
}

impl BubbleRow {
    /// Relative error of the step's time that follows from the bubble rate.
    pub fn time_error(&self) -> f64 {
        (1.0 - self.published) / (1.0 - self.simulated) - 1.0
    }
}

struct Given {
    label: String,
    layers: usize,
    pipeline: usize,
    microbatches: usize,
    forward: f64,
    backward: f64,
    message: f64,
    rates: [f64; 2],
}

/// Simulates every row.
pub fn bubble_rows() -> Vec<BubbleRow> {
    given().iter().flat_map(|row| [plain(row), interleaved(row)]).collect()
}

fn given() -> Vec<Given> {
    let text = include_str!("../../published/zero_bubble.csv");
    text.lines().filter(|line| !line.starts_with('#')).map(read).collect()
}

/// The file is part of the program: a damaged line is our mistake.
fn read(line: &str) -> Given {
    let (model, numbers) = line.split_once(',').expect("model, then numbers");
    let numbers: Vec<f64> = numbers.split(',').map(|text| text.parse().expect("a number")).collect();
    let [layers, p, m, forward, input, weight, message, plain, interleaved] = numbers[..] else {
        panic!("nine numbers in `{line}`");
    };
    Given {
        label: format!("{model} p={p} m={m}"),
        layers: layers as usize,
        pipeline: p as usize,
        microbatches: m as usize,
        forward,
        backward: input + weight,
        message,
        rates: [plain, interleaved],
    }
}

fn plain(row: &Given) -> BubbleRow {
    simulated(row, Kind::OneForwardOneBackward, 1, "1f1b", row.rates[0])
}

/// One layer a chunk, as the paper ran it.
fn interleaved(row: &Given) -> BubbleRow {
    simulated(row, Kind::Interleaved, row.layers / row.pipeline, "interleaved", row.rates[1])
}

fn simulated(row: &Given, kind: Kind, chunks: usize, schedule: &'static str, published: f64) -> BubbleRow {
    let shape = Shape { kind, pipeline: row.pipeline, chunks, microbatches: row.microbatches };
    let program = Program::generate(shape).expect("a published shape");
    let share = 1.0 / chunks as f64;
    let overlap = Overlap { pipeline: true, ..Overlap::NONE };
    let (forward, backward) = (row.forward * share, row.backward * share);
    let durations = Durations::uniform(shape.stages(), row.pipeline, forward, backward, row.message, overlap);
    let seconds = simulate(&program, &durations, &Jitter::NONE, &mut ()).flush;
    let ideal = row.microbatches as f64 * (row.forward + row.backward);
    BubbleRow { label: row.label.clone(), schedule, published, simulated: 1.0 - ideal / seconds }
}
