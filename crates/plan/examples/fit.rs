//! Fits the constants of a cluster on the published series that are marked `fitted` and
//! were measured on it, and prints them for its file.
//!
//! ```text
//! cargo run --release -p henge-plan --example fit -- dgx-a100
//! cargo run --release -p henge-plan --example fit -- dgx-2h 0.1
//! ```
//!
//! The second argument is the error from which a row counts as odd: 0.02, or more where the
//! rows come from several years of software. The lower bound of `message_efficiency` is what one pair of
//! peers gets from half a card's channels.
//!
//! A pattern search over the logarithms, within bounds that come from what such hardware is
//! known to do; a robust loss, so that one odd point does not bend the rest.

use henge_plan::published::{Question, all_series};
use henge_plan::{Cluster, Constants};

/// A constant: its name, how to reach it, and the range that is believed.
type Knob = (&'static str, fn(&mut Constants) -> &mut f64, f64, f64);

const KNOBS: [Knob; 12] = [
    ("matrix_efficiency", |c| &mut c.matrix_efficiency, 0.60, 0.92),
    ("matrix_fill", |c| &mut c.matrix_fill, 32.0, 512.0),
    ("wave_tail", |c| &mut c.wave_tail, 0.25, 1.0),
    ("memory_efficiency", |c| &mut c.memory_efficiency, 0.70, 0.92),
    ("launch", |c| &mut c.launch, 2e-6, 12e-6),
    ("thin_head", |c| &mut c.thin_head, 16.0, 160.0),
    ("link_efficiency", |c| &mut c.link_efficiency, 0.15, 0.82),
    ("link_latency", |c| &mut c.link_latency, 0.5e-6, 10e-6),
    ("card_efficiency", |c| &mut c.card_efficiency, 0.75, 0.95),
    ("message_efficiency", |c| &mut c.message_efficiency, 0.50, 0.95),
    ("network_latency", |c| &mut c.network_latency, 5e-6, 80e-6),
    ("message_latency", |c| &mut c.message_latency, 20e-6, 400e-6),
];

fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "dgx-a100".to_string());
    let mut cluster = Cluster::named(&name).expect("a catalogue name");
    let odd = std::env::args().nth(2).map_or(0.02, |text| text.parse().expect("a share, as 0.05"));
    let rows = Rows { rows: rows(&name), odd };
    let mut best = rows.loss(&cluster);
    println!("{} rows, loss {best:.5}", rows.rows.len());
    let mut step = 0.2;
    while step > 0.002 {
        let before = best;
        for knob in &KNOBS {
            best = try_both_ways(&mut cluster, knob, step, best, &rows);
        }
        if best > before * 0.9999 {
            step /= 2.0;
        }
    }
    println!("loss {best:.5}");
    for (name, reach, ..) in &KNOBS {
        println!("{name} = {:.4e}", reach(&mut cluster.constants));
    }
}

fn rows(name: &str) -> Vec<(Question, f64)> {
    let mut rows = Vec::new();
    for series in all_series().into_iter().filter(|series| series.fitted && series.cluster == name) {
        for row in &series.rows {
            rows.push((series.question(row).expect("a published row"), row.value));
        }
    }
    rows
}

/// What is fitted on, and the error from which a row counts as odd.
struct Rows {
    rows: Vec<(Question, f64)>,
    odd: f64,
}

impl Rows {
    /// Mean Cauchy loss: an odd row pulls the less the odder it is.
    fn loss(&self, cluster: &Cluster) -> f64 {
        let of = |(question, value): &(Question, f64)| {
            let answer = question.on(cluster.clone()).answer().expect("a published row");
            let error = (answer / value).ln() / self.odd;
            error.mul_add(error, 1.0).ln()
        };
        self.rows.iter().map(of).sum::<f64>() / self.rows.len() as f64
    }
}

fn try_both_ways(cluster: &mut Cluster, knob: &Knob, step: f64, best: f64, rows: &Rows) -> f64 {
    let (_, reach, low, high) = knob;
    let old = *reach(&mut cluster.constants);
    for factor in [step.exp(), (-step).exp()] {
        *reach(&mut cluster.constants) = (old * factor).clamp(*low, *high);
        let tried = rows.loss(cluster);
        if tried < best {
            return tried;
        }
    }
    *reach(&mut cluster.constants) = old;
    best
}
