//! With dropout on, every layout trains the same model: weights, masks and order are functions
//! of the seed and a logical position.

mod common;

use common::{Place, number, relative};
use serde_json::json;

const LAYOUTS: &[(usize, usize, usize, usize, &str, usize)] = &[
    (1, 1, 1, 1, "1f1b", 8),
    (1, 1, 1, 1, "1f1b", 1),
    (2, 1, 1, 1, "1f1b", 2),
    (4, 1, 1, 1, "1f1b", 4),
    (1, 2, 1, 1, "1f1b", 2),
    (1, 4, 1, 1, "1f1b", 1),
    (1, 2, 1, 2, "interleaved", 1),
    (2, 2, 1, 2, "interleaved", 2),
    (1, 1, 2, 1, "1f1b", 1),
    (2, 2, 2, 1, "1f1b", 2),
    (1, 4, 1, 1, "gpipe", 2),
];

/// Twenty batches of eight sequences that a model can learn: each token follows from the last.
fn batches() -> String {
    let mut state = 12345u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut sequence = || -> (Vec<u64>, Vec<i64>) {
        let mut token = next(509);
        let tokens: Vec<u64> = (0..49)
            .map(|_| {
                token = if next(4) == 0 { next(509) } else { (token * 7 + 3) % 509 };
                token
            })
            .collect();
        let labels = tokens[1..].iter().map(|&token| if next(10) == 0 { -100 } else { token as i64 }).collect();
        (tokens[..48].to_vec(), labels)
    };
    let batches: Vec<_> = (0..20)
        .map(|_| {
            let (tokens, labels): (Vec<_>, Vec<_>) = (0..8).map(|_| sequence()).unzip();
            json!({ "tokens": tokens, "labels": labels })
        })
        .collect();
    json!({ "batches": batches }).to_string()
}

fn losses(layout: &(usize, usize, usize, usize, &str, usize), dropout: f64) -> Vec<f64> {
    let (t, p, d, v, schedule, micro_batch) = layout;
    let place = Place::new();
    place.write("batches.json", batches());
    place.write(
        "run.toml",
        format!(
            r#"
run = {{ dir = "run", seed = 7 }}
model = {{ layers = 4, hidden = 64, heads = 4, seq_len = 48, vocab_size = 509, dropout = {dropout} }}
layout = {{ tensor = {t}, pipeline = {p}, data = {d}, chunks = {v}, schedule = "{schedule}" }}
data = {{ batches = "batches.json" }}
[train]
steps = 20
micro_batch = {micro_batch}
precision = "f32"
optimizer = {{ lr = 3e-3, decay = "constant", weight_decay = 0.1 }}
"#
        ),
    );
    place.succeed(&["train", "run.toml"]);
    place.steps("run").iter().map(|step| number(step, "loss")).collect()
}

#[test]
fn twenty_losses_agree_over_every_layout() {
    let reference = losses(&LAYOUTS[0], 0.1);
    assert_eq!(reference.len(), 20);
    for layout in &LAYOUTS[1..] {
        for (step, (got, want)) in losses(layout, 0.1).iter().zip(&reference).enumerate() {
            let off = relative(*got, *want);
            assert!(off < 1e-5, "{layout:?}, step {}: {got} is off {want} by {off:e}", step + 1);
        }
    }
}

#[test]
fn dropout_is_on() {
    let (with, without) = (losses(&LAYOUTS[0], 0.1), losses(&LAYOUTS[0], 0.0));
    assert!(relative(with[0], without[0]) > 1e-4, "the first loss with and without dropout: {} {}", with[0], without[0]);
}
