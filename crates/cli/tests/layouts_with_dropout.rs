//! With dropout on, every layout trains the same model: weights, masks and order are functions
//! of the seed and a logical position.

mod common;

use common::{Case, LAYOUTS, Place, number, relative};

fn losses(layout: &Case, dropout: f64) -> Vec<f64> {
    let (t, p, d, v, schedule, micro_batch) = layout;
    let place = Place::new();
    place.write("batches.json", common::batches(20, 8));
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
    let apart = with.iter().zip(&without).fold(0.0f64, |most, (a, b)| most.max(relative(*a, *b)));
    assert!(apart > 1e-3, "losses with and without dropout are {apart:e} apart at most");
}
