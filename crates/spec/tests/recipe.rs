//! Learning rate, batch ramp-up and the list of parameters against the papers.

use henge_spec::{Batching, Decay, Layout, Model, Optimizer, RampUp, Split, parameters};

/// GPT-2 of 1909.08053: warm-up 3k of 300k steps to 1.5e-4, cosine to 1e-5.
fn gpt2(decay: Decay) -> Optimizer {
    Optimizer {
        lr: 1.5e-4,
        min_lr: 1e-5,
        warmup_steps: 3000,
        decay,
        decay_steps: 300_000,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.01,
        clip: 1.0,
    }
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-12, "{a} against {b}");
}

#[test]
fn the_rate_warms_up_then_decays_to_its_floor() {
    let cosine = gpt2(Decay::Cosine);
    close(cosine.rate(1), 1.5e-4 / 3000.0);
    close(cosine.rate(3000), 1.5e-4);
    close(cosine.rate(3000 + 297_000 / 2), (1.5e-4 + 1e-5) / 2.0);
    close(cosine.rate(300_000), 1e-5);
    close(cosine.rate(400_000), 1e-5);
    close(gpt2(Decay::Linear).rate(3000 + 297_000 / 4), 1e-5 + 1.4e-4 * 0.75);
    close(gpt2(Decay::Constant).rate(299_999), 1.5e-4);
}

/// GPT-3 of the 2104.04473 artifact: 16 to 1536 by 16 over 5,859,375 samples.
#[test]
fn the_batch_ramps_up_in_equal_shares_of_samples() {
    let ramp_up = Some(RampUp { start: 16, increment: 16, samples: 5_859_375 });
    let batching = Batching { global: 1536, micro: 1, ramp_up };
    assert_eq!(batching.sizes().len(), 96);
    assert_eq!((batching.at(0), batching.at(61_677), batching.at(61_678)), (16, 16, 32));
    assert_eq!((batching.at(5_859_374), batching.at(5_859_375)), (1520, 1536));
}

/// Equation 2 of 2104.04473, `12 l h^2 + 13 l h + (V + s) h`, leaves out the final norm.
#[test]
fn the_list_of_parameters_adds_up_to_the_papers_formula() {
    for (l, h, a, s, v) in [(4, 64, 4, 48, 509), (24, 1024, 16, 1024, 50257)] {
        let count: usize = parameters(&Model::gpt(l, h, a, s, v)).iter().map(|p| p.len()).sum();
        assert_eq!(count, 12 * l * h * h + 13 * l * h + (v + s) * h + 2 * h);
    }
}

#[test]
fn blocks_of_all_tensor_ranks_cover_each_parameter_once() {
    let model = Model::gpt(2, 64, 4, 48, 509);
    for tensor in [1, 2, 4] {
        for parameter in parameters(&model) {
            let blocks = (0..tensor).map(|rank| parameter.block(&model, rank, tensor));
            let held: usize = blocks.map(|(_, rows, _, columns)| rows * columns).sum();
            let copies = if parameter.split == Split::Whole { tensor } else { 1 };
            assert_eq!(held, copies * parameter.len(), "{} over {tensor}", parameter.name);
        }
    }
}

#[test]
fn the_vocabulary_is_cut_as_if_padded() {
    let model = Model::gpt(1, 8, 1, 8, 50257);
    assert_eq!((model.padded_vocab(1), model.padded_vocab(8)), (50304, 51200));
    assert_eq!(model.vocab_range(7, 8), (44800, 50257));
    let small = Model::gpt(1, 8, 1, 8, 100);
    assert_eq!([0, 1, 2, 3].map(|rank| small.vocab_range(rank, 4)), [(0, 100), (100, 100), (100, 100), (100, 100)]);
    assert_eq!(Layout::ONE.ranks(), 1);
}
