//! Where a step's time goes: its operations beside what this machine could do at best.

use henge_spec::{Activation, Model};
use henge_tensor::{Entry, Operation};
use serde::Serialize;
use std::collections::BTreeMap;

/// What the machine could do at best, measured around the steps.
#[derive(Clone, Copy, Serialize)]
pub struct Ceiling {
    /// Floating-point operations a second of one rank's threads.
    pub flops: f64,
    /// Bytes a second, read plus written, of a copy by one rank's threads.
    pub bandwidth: f64,
}

/// One operation of a step.
#[derive(Clone, Serialize)]
pub struct Row {
    pub operation: String,
    /// Calls a step.
    pub calls: f64,
    /// Seconds a step.
    pub seconds: f64,
    pub share_of_step: f64,
    /// FLOP a step; 0 where nothing is multiplied.
    pub flops: f64,
    /// Bytes a step of operands and results, each counted once a call.
    pub bytes: f64,
    /// The time that the ceiling allows over the time that it took; none where neither
    /// arithmetic nor bytes are counted.
    pub share_of_ceiling: Option<f64>,
    /// Which ceiling is the nearer: `compute` or `memory`.
    pub bound: &'static str,
}

/// Sums over the steps that are measured.
#[derive(Default)]
pub struct Totals {
    steps: usize,
    seconds: f64,
    entries: BTreeMap<Operation, Entry>,
}

impl Totals {
    /// Adds a step of so many seconds.
    pub fn add(&mut self, seconds: f64, entries: &BTreeMap<Operation, Entry>) {
        self.steps += 1;
        self.seconds += seconds;
        for (&operation, &entry) in entries {
            *self.entries.entry(operation).or_default() += entry;
        }
    }

    /// The operations of a mean step in a forward's order, then what no operation took.
    pub fn rows(&self, model: &Model, tensor: usize, ceiling: Ceiling) -> Vec<Row> {
        let steps = self.steps.max(1) as f64;
        let whole = self.seconds / steps;
        let names = Names::of(model, tensor);
        let row = |(&operation, entry): (&Operation, &Entry)| {
            let of_step = |sum: f64| sum / steps;
            let mean = Entry {
                calls: 0,
                seconds: of_step(entry.seconds),
                flops: of_step(entry.flops),
                bytes: of_step(entry.bytes),
            };
            Row::new(names.name(operation), of_step(entry.calls as f64), mean, whole, ceiling)
        };
        let mut rows: Vec<Row> = self.entries.iter().map(row).collect();
        let timed: f64 = rows.iter().map(|row| row.seconds).sum();
        let rest = Entry { seconds: (whole - timed).max(0.0), ..Entry::default() };
        rows.push(Row::new("rest".to_string(), 0.0, rest, whole, ceiling));
        rows
    }
}

impl Row {
    fn new(operation: String, calls: f64, mean: Entry, whole: f64, ceiling: Ceiling) -> Self {
        let (compute, memory) = (mean.flops / ceiling.flops, mean.bytes / ceiling.bandwidth);
        let best = compute.max(memory);
        Self {
            operation,
            calls,
            seconds: mean.seconds,
            share_of_step: if whole > 0.0 { mean.seconds / whole } else { 0.0 },
            flops: mean.flops,
            bytes: mean.bytes,
            share_of_ceiling: (best > 0.0 && mean.seconds > 0.0).then(|| best / mean.seconds),
            bound: if compute >= memory { "compute" } else { "memory" },
        }
    }
}

/// Names of the model's products by their sizes on one tensor rank.
struct Names(Vec<((usize, usize), &'static str)>);

impl Names {
    fn of(model: &Model, tensor: usize) -> Self {
        let (hidden, width) = (model.hidden, model.heads * model.head_dim / tensor);
        let fused = width + 2 * model.kv_heads * model.head_dim / tensor;
        let ffn = model.ffn_hidden / tensor;
        let gates = if model.activation == Activation::SwiGlu { 2 } else { 1 };
        Self(vec![
            ((hidden, fused), "query, key, value"),
            ((width, hidden), "attention output"),
            ((hidden, gates * ffn), "mlp in"),
            ((ffn, hidden), "mlp out"),
        ])
    }

    fn name(&self, operation: Operation) -> String {
        let product = |inputs, outputs, direction: &str| {
            let known: Vec<&str> =
                self.0.iter().filter(|(sizes, _)| *sizes == (inputs, outputs)).map(|(_, name)| *name).collect();
            match known.is_empty() {
                true => format!("{inputs} to {outputs}, {direction}"),
                false => format!("{}, {direction}", known.join(" or ")),
            }
        };
        match operation {
            Operation::Forward { inputs, outputs } => product(inputs, outputs, "forward"),
            Operation::InputGradient { inputs, outputs } => product(inputs, outputs, "input gradient"),
            Operation::WeightGradient { inputs, outputs } => product(inputs, outputs, "weight gradient"),
            Operation::Attention => "attention forward".to_string(),
            Operation::AttentionBackward => "attention backward".to_string(),
            Operation::Norm => "norms forward".to_string(),
            Operation::NormBackward => "norms backward".to_string(),
            Operation::ActivationBackward => "non-linearity and bias backward".to_string(),
            Operation::Residual => "residual stream".to_string(),
            Operation::Embedding => "embedding".to_string(),
            Operation::Head => "head and loss, forward".to_string(),
            Operation::HeadBackward => "head and loss, backward".to_string(),
            Operation::Optimizer => "optimizer".to_string(),
            Operation::Prepare => "weights packed again".to_string(),
            Operation::Communication => "communication".to_string(),
        }
    }
}

/// The rows as a table.
pub fn text(rows: &[Row], ceiling: Ceiling) -> String {
    let mut text = format!(
        "\na mean step of rank 0 by operation; the ceiling is {:.1} GFLOP/s (multiply-adds) and {:.1} GB/s (copy)\n\
         operation                          calls        ms  of step    GFLOP  GFLOP/s       GB    GB/s  of ceiling\n",
        ceiling.flops / 1e9,
        ceiling.bandwidth / 1e9
    );
    for row in rows {
        let share = match row.share_of_ceiling {
            Some(share) => format!("{:>5.1}% {}", 100.0 * share, row.bound),
            None => "    -".to_string(),
        };
        let rate = |amount: f64| if row.seconds > 0.0 { amount / row.seconds / 1e9 } else { 0.0 };
        text += &format!(
            "{:<34} {:>5.0} {:>9.2} {:>7.1}% {:>8.2} {:>8.1} {:>8.3} {:>7.1}  {share}\n",
            row.operation,
            row.calls,
            1e3 * row.seconds,
            100.0 * row.share_of_step,
            row.flops / 1e9,
            rate(row.flops),
            row.bytes / 1e9,
            rate(row.bytes),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CEILING: Ceiling = Ceiling { flops: 100.0, bandwidth: 10.0 };

    fn model() -> Model {
        let shape = "layers=2,hidden=64,heads=4,seq_len=32,vocab_size=100";
        henge_plan::parse_shape(shape).expect("a sound shape")
    }

    #[test]
    fn a_mean_step_is_named_and_what_is_left_is_the_rest() {
        let mut totals = Totals::default();
        let product = Operation::WeightGradient { inputs: 64, outputs: 192 };
        let entry = Entry { calls: 4, seconds: 3.0, flops: 150.0, bytes: 6.0 };
        let norm = Entry { calls: 2, seconds: 1.0, flops: 0.0, bytes: 5.0 };
        for _ in 0..2 {
            totals.add(5.0, &BTreeMap::from([(product, entry), (Operation::Norm, norm)]));
        }
        let rows = totals.rows(&model(), 1, CEILING);
        let names: Vec<&str> = rows.iter().map(|row| row.operation.as_str()).collect();
        assert_eq!(names, ["query, key, value, weight gradient", "norms forward", "rest"]);
        assert_eq!((rows[0].calls, rows[0].seconds, rows[0].share_of_step), (4.0, 3.0, 0.6));
        assert_eq!((rows[0].share_of_ceiling, rows[0].bound), (Some(0.5), "compute"));
        assert_eq!((rows[1].share_of_ceiling, rows[1].bound), (Some(0.5), "memory"));
        assert_eq!((rows[2].seconds, rows[2].share_of_ceiling), (1.0, None));
        assert_eq!(text(&rows, CEILING).lines().count(), 3 + rows.len());
    }

    /// Sizes are those of one tensor rank; what no name fits is called by its sizes.
    #[test]
    fn products_are_named_by_their_local_sizes() {
        let names = Names::of(&model(), 2);
        assert_eq!(names.name(Operation::Forward { inputs: 64, outputs: 96 }), "query, key, value, forward");
        assert_eq!(names.name(Operation::InputGradient { inputs: 128, outputs: 64 }), "mlp out, input gradient");
        assert_eq!(names.name(Operation::Forward { inputs: 5, outputs: 7 }), "5 to 7, forward");
    }
}
