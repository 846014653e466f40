//! The formulas against the numbers that the papers print.

use super::*;
use crate::preset;

fn model(layers: usize, hidden: usize, heads: usize) -> Model {
    Model::gpt(layers, hidden, heads, 2048, 51_200)
}

fn billions(layers: f64, hidden: f64, sequence: f64) -> f64 {
    published_parameters(layers, hidden, sequence, 51_200.0) / 1e9
}

#[test]
fn parameters_of_table_1_to_the_printed_digit() {
    let rows = [
        (24.0, 2304.0, 1.7),
        (30.0, 3072.0, 3.6),
        (36.0, 4096.0, 7.5),
        (40.0, 6144.0, 18.4),
        (48.0, 8192.0, 39.1),
        (60.0, 10_240.0, 76.1),
        (80.0, 12_288.0, 145.6),
        (96.0, 16_384.0, 310.1),
        (105.0, 20_480.0, 529.6),
        (128.0, 25_600.0, 1008.0),
    ];
    for (layers, hidden, printed) in rows {
        let counted = billions(layers, hidden, 2048.0);
        assert!((counted - printed).abs() <= 0.0501, "{printed}B: {counted}");
    }
}

#[test]
fn parameters_of_figures_and_of_the_first_paper() {
    for (layers, hidden, sequence, printed) in [
        (32.0, 20_480.0, 2048.0, 162.16),
        (32.0, 15_360.0, 2048.0, 91.42),
        (24.0, 20_480.0, 2048.0, 121.9),
        (40.0, 1536.0, 1024.0, 1.213),
        (54.0, 1920.0, 1024.0, 2.490),
        (64.0, 2304.0, 1024.0, 4.199),
        (72.0, 3072.0, 1024.0, 8.317),
    ] {
        let counted = billions(layers, hidden, sequence);
        assert!((counted / printed - 1.0).abs() < 5e-4, "{printed}: {counted}");
    }
}

#[test]
fn exact_count_is_the_formula_but_for_the_last_norm() {
    let gpt = model(80, 12_288, 96);
    let published = published_parameters(80.0, 12_288.0, 2048.0, 51_200.0);
    assert_eq!(parameters(&gpt) - published, 2.0 * 12_288.0);
}

#[test]
fn counts_agree_with_the_list_of_tensors() {
    for name in ["gpt2-124m", "llama3-1b", "llama3-8b"] {
        let model = preset(name).unwrap();
        let listed: usize = crate::parameters(&model).iter().map(crate::Parameter::len).sum();
        assert_eq!(parameters(&model), listed as f64, "{name}");
    }
}

#[test]
fn training_days_of_table_2_within_a_day() {
    let gpt = |layers, hidden, heads| model(layers, hidden, heads);
    let rows = [
        (gpt(96, 12_288, 96), 1536.0, 384.0, 153e12, 84.0),
        (gpt(96, 12_288, 96), 1536.0, 768.0, 149e12, 43.0),
        (gpt(96, 12_288, 96), 1536.0, 1536.0, 141e12, 23.0),
        (gpt(105, 20_480, 128), 2240.0, 560.0, 171e12, 156.0),
        (gpt(105, 20_480, 128), 2240.0, 1120.0, 167e12, 80.0),
        (gpt(105, 20_480, 128), 2240.0, 2240.0, 159e12, 42.0),
    ];
    for (gpt, batch, gpus, rate, days) in rows {
        let flops = hardware_flops(&gpt, batch, Recompute::FULL);
        let counted = training_seconds(&gpt, 300e9, batch, flops, gpus, rate) / 86_400.0;
        assert!((counted - days).abs() <= 1.0, "{days}: {counted}");
    }
}

#[test]
fn rule_of_thumb_days() {
    let days = |parameters, tokens, gpus, rate| training_seconds_estimate(parameters, tokens, gpus, rate) / 86_400.0;
    assert!((days(175e9, 300e9, 1024.0, 140e12) - 33.9).abs() < 0.05);
    assert!((days(1e12, 450e9, 3072.0, 163e12) - 83.2).abs() < 0.1);
    assert!((days(1.008e12, 450e9, 3072.0, 163e12) - 83.9).abs() < 0.1);
}

#[test]
fn figure_8_follows_from_figure_7() {
    let rates = [(1.0, 68.0), (2.0, 78.0), (4.0, 86.0), (8.0, 89.0), (16.0, 91.0)];
    let published = [(128.0, [1.00, 1.09, 1.09, 0.95, 0.75]), (512.0, [1.00, 1.13, 1.21, 1.19, 1.11])];
    for (batch, series) in published {
        let time = |(b, rate): (f64, f64)| batch_seconds(batch, b, 8.0, b / rate);
        for (pair, value) in rates.into_iter().zip(series) {
            let normalised = time(rates[0]) / time(pair);
            assert!((normalised - value).abs() < 0.011, "B {batch} b {}: {normalised}", pair.0);
        }
    }
}

#[test]
fn figure_6_is_n_minus_d_over_b() {
    assert_eq!(bubble_against_data(32.0, 8.0, 32.0), 0.75);
    assert_eq!(bubble_against_data(128.0, 64.0, 512.0), 0.125);
    // The same bubble by the other formula: p = n/d, m = b'/d.
    assert_eq!(bubble_fraction(16, 1, 4), bubble_against_data(32.0, 2.0, 8.0));
}

/// The four models of arXiv 2205.05198, table 3: (model, microbatch, pipeline, chunks, GPUs, batch).
fn activation_models() -> [(Model, usize, usize, usize, f64, f64); 4] {
    [
        (model(48, 6144, 64), 4, 1, 1, 8.0, 4.0),
        (model(96, 12_288, 96), 1, 8, 3, 64.0, 64.0),
        (model(105, 20_480, 128), 1, 35, 3, 280.0, 280.0),
        (model(128, 25_600, 160), 1, 64, 1, 512.0, 512.0),
    ]
}

#[test]
fn activation_fractions_of_2205_05198() {
    let published = [[67, 49, 16, 8], [62, 57, 18, 9], [58, 62, 20, 10], [58, 62, 20, 10]];
    for ((gpt, b, ..), percents) in activation_models().into_iter().zip(published) {
        let of = |sequence, recompute| {
            let layer = layer_activations(&gpt, b, 8, sequence, Attention::Plain);
            let input = 2.0 * (b * gpt.seq_len * gpt.hidden) as f64;
            kept_activation_bytes(&layer, input, recompute)
        };
        let base = of(SequenceParallel::Off, Recompute::None);
        let fractions = [
            of(SequenceParallel::On, Recompute::None),
            of(SequenceParallel::Off, Recompute::Selective),
            of(SequenceParallel::On, Recompute::Selective),
            of(SequenceParallel::Off, Recompute::FULL),
        ];
        for (bytes, percent) in fractions.into_iter().zip(percents) {
            let counted = 100.0 * bytes / base;
            assert!((counted - f64::from(percent)).abs() < 1.0, "h {}: {counted} against {percent}", gpt.hidden);
        }
    }
}

#[test]
fn activation_gibibytes_of_2205_05198() {
    let published = [59.2, 66.9, 114.0, 131.2];
    for ((gpt, b, p, v, ..), gib) in activation_models().into_iter().zip(published) {
        let layer = layer_activations(&gpt, b, 8, SequenceParallel::Off, Attention::Plain);
        let mut bytes = layer.total() * first_rank_layers(gpt.layers as f64, p, v);
        let sbh = (gpt.seq_len * b * gpt.hidden) as f64;
        // Embedding dropout of the microbatches in flight; head and logits where p = 1 (section 4.3).
        bytes += sbh * p as f64 / 8.0;
        if p == 1 {
            bytes += 4.0 * sbh / 8.0 * (1.0 + gpt.vocab_size as f64 / gpt.hidden as f64);
        }
        let counted = bytes / f64::from(1 << 30);
        assert!((counted / gib - 1.0).abs() < 0.01, "h {}: {counted} against {gib}", gpt.hidden);
    }
}

#[test]
fn utilisations_of_2205_05198() {
    let published = [(1.10, 41.5, 43.7), (13.75, 51.4, 52.8), (37.83, 56.0, 57.0), (71.49, 56.3, 57.0)];
    for ((gpt, _, _, _, gpus, batch), (seconds, mfu, hfu)) in activation_models().into_iter().zip(published) {
        let percent = |flops: f64| 100.0 * flops / (gpus * seconds * 312e12);
        let tolerance = if gpt.layers == 48 { 0.25 } else { 0.06 };
        assert!((percent(model_flops(&gpt, batch)) - mfu).abs() < tolerance, "MFU {mfu}");
        let hardware = percent(hardware_flops(&gpt, batch, Recompute::Selective));
        assert!((hardware - hfu).abs() < tolerance, "HFU {hfu}: {hardware}");
    }
}

#[test]
fn rates_of_other_runs_by_the_formula() {
    let rate = |gpt: &Model, batch: f64, gpus: f64, seconds: f64| {
        hardware_flops(gpt, batch, Recompute::FULL) / (gpus * seconds) / 1e12
    };
    let mt_nlg = model(105, 20_480, 128);
    assert!((rate(&mt_nlg, 1920.0, 2240.0, 60.1) - 125.7).abs() < 0.1);
    assert!((rate(&preset("bloom-176b").unwrap(), 2048.0, 384.0, 105.0) - 149.3).abs() < 0.1);
}

#[test]
fn optimizer_bytes_of_megatron_core() {
    assert_eq!(StateFormat::F16.bytes_with_sharded_optimizer(1), 20.0);
    assert_eq!(StateFormat::BF16.bytes_with_sharded_optimizer(4), 6.0 + 3.0);
    assert_eq!(StateFormat::F32.bytes_with_sharded_optimizer(8), 8.0 + 1.0);
}

#[test]
fn volumes() {
    let gpt = model(96, 12_288, 96);
    let bsh = 2048.0 * 12_288.0;
    assert_eq!(tensor_parallel_volume(&gpt, 1, 8, Recompute::None), 8.0 * bsh * 7.0 / 8.0);
    assert_eq!(tensor_parallel_volume(&gpt, 1, 8, Recompute::FULL), 12.0 * bsh * 7.0 / 8.0);
    assert_eq!(pipeline_volume(&gpt, 2, 8), 2.0 * bsh / 8.0);
    assert_eq!(data_parallel_volume(1e9, 4), 1.5e9);
    assert_eq!(best_checkpoints(16.0, 36.0, 1.0), 24.0);
}
