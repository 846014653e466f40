//! BERT samples of a real sentence corpus against the laws they are drawn by.

mod common;

use common::test_data;
use henge_data::Corpus;
use henge_data::bert::{BertSamples, BertVocabulary};
use henge_data::order::Part;
use std::fs;

const LENGTH: usize = 128;

fn samples() -> Option<(BertSamples, BertVocabulary)> {
    let folder = test_data()?.join("megatron-bin-idx/bert-sentences");
    let vocabulary = fs::read_to_string(folder.join("bert-large-cased-vocab.txt")).unwrap();
    let tokens: Vec<&str> = vocabulary.lines().collect();
    let id = |token: &str| tokens.iter().position(|t| *t == token).unwrap() as u32;
    let vocabulary = BertVocabulary {
        cls: id("[CLS]"),
        sep: id("[SEP]"),
        mask: id("[MASK]"),
        pad: id("[PAD]"),
        continues: tokens.iter().map(|t| t.starts_with("##")).collect(),
    };
    let corpus = Corpus::open(&folder.join("my-bert_text_sentence")).unwrap();
    Some((BertSamples::new(&corpus.whole(Part::Train), vocabulary.clone(), LENGTH as u64, 1234).unwrap(), vocabulary))
}

/// Fails when `share` of `n` draws is more than five standard errors from `expected`.
fn assert_share(what: &str, hits: usize, n: usize, expected: f64) {
    let error = 5.0 * (expected * (1.0 - expected) / n as f64).sqrt();
    let share = hits as f64 / n as f64;
    assert!((share - expected).abs() < error, "{what}: {share} of {n}, expected {expected} +- {error}");
}

#[test]
fn samples_are_framed_pairs_and_repeat_by_position() {
    let Some((samples, vocabulary)) = samples() else { return };
    for i in 0..samples.distinct_samples() {
        let sample = samples.sample(i).unwrap();
        assert_eq!(sample, samples.sample(i).unwrap());
        let n = sample.tokens.len();
        assert!((5..=LENGTH).contains(&n) && sample.types.len() == n);
        assert_eq!((sample.tokens[0], sample.tokens[n - 1]), (vocabulary.cls, vocabulary.sep));
        let first = sample.types.iter().filter(|&&t| t == 0).count();
        assert_eq!(sample.tokens[first - 1], vocabulary.sep);
        assert!(sample.masked.iter().all(|m| m.id != vocabulary.cls && m.id != vocabulary.sep));
        assert!(sample.masked.windows(2).all(|pair| pair[0].position < pair[1].position));
        assert!(sample.masked.len() <= ((n as f64 * 0.15).round() as usize).max(1));
    }
    let epoch = samples.distinct_samples();
    assert_ne!(samples.sample(0).unwrap(), samples.sample(epoch).unwrap());
}

#[test]
fn shares_follow_their_laws() {
    let Some((samples, vocabulary)) = samples() else { return };
    let n = 20_000;
    let (mut swapped, mut tokens, mut predicted, mut masked, mut kept) = (0, 0, 0, 0, 0);
    for i in 0..n {
        let sample = samples.sample(i).unwrap();
        swapped += usize::from(sample.is_swapped);
        tokens += sample.tokens.len();
        predicted += sample.masked.len();
        for token in &sample.masked {
            masked += usize::from(sample.tokens[token.position] == vocabulary.mask);
            kept += usize::from(sample.tokens[token.position] == token.id);
        }
    }
    assert_share("swapped", swapped, n as usize, 0.5);
    // A random id is the old one, or the mask, once in 28,996.
    assert_share("masked", masked, predicted, 0.8);
    assert_share("kept", kept, predicted, 0.1);
    let share = predicted as f64 / tokens as f64;
    assert!((share - 0.15).abs() < 0.005, "{share}");
}

#[test]
fn words_are_masked_whole() {
    let Some((samples, vocabulary)) = samples() else { return };
    for i in 0..2000 {
        let sample = samples.sample(i).unwrap();
        let mut original = sample.tokens.clone();
        sample.masked.iter().for_each(|token| original[token.position] = token.id);
        let is_masked = |at: usize| sample.masked.iter().any(|token| token.position == at);
        for at in 1..original.len() {
            let before_is_mark = original[at - 1] == vocabulary.cls || original[at - 1] == vocabulary.sep;
            if vocabulary.continues[original[at] as usize] && !before_is_mark {
                assert_eq!(is_masked(at), is_masked(at - 1), "sample {i}, position {at}");
            }
        }
    }
}
