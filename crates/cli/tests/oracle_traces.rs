//! Twelve steps of a small GPT-2, Llama and BERT against PyTorch's losses, norms, gradients
//! and logits, over every kind of layout.

mod common;

use common::{Case, LAYOUTS, oracle};

fn check(model: &str, layouts: &[Case]) {
    oracle::check(model, layouts, |place, _, arguments| drop(place.succeed(arguments)));
}

#[test]
fn gpt2() {
    check("gpt2", LAYOUTS);
}

/// Two key and value heads: no more than two tensor ranks.
#[test]
fn llama() {
    let layouts: Vec<Case> = LAYOUTS.iter().filter(|case| case.0 <= 2).copied().collect();
    check("llama", &layouts);
}

/// Post-layer-norm, masked tokens and the order of sentences.
#[test]
fn bert() {
    check("bert", LAYOUTS);
}
