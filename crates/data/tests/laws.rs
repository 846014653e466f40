//! Draws against their laws, over corpora made for it: where pairs are cut and whether they are swapped,
//! which tokens are predicted and what stands there, and where a sample comes in an epoch.

use henge_data::Corpus;
use henge_data::bert::{BertSamples, BertVocabulary};
use henge_data::indexed::{IndexedWriter, TokenType};
use henge_data::order::{Part, SampleOrder};
use std::path::Path;
use std::sync::Arc;

/// Standard deviations of a chi-square statistic of `counts` from its mean, for the given shares.
fn deviation(counts: &[u64], shares: &[f64]) -> f64 {
    let n = counts.iter().sum::<u64>() as f64;
    let sum: f64 = shares.iter().sum();
    let term = |(&count, share): (&u64, &f64)| (count as f64 - n * share / sum).powi(2) / (n * share / sum);
    let chi: f64 = counts.iter().zip(shares).map(term).sum();
    let freedom = (counts.len() - 1) as f64;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

/// Documents of `sentences` sentences of `tokens` tokens; ids from 10 to 1009.
fn corpus(folder: &Path, documents: u32, sentences: u32, tokens: u32) -> Arc<Corpus> {
    let prefix = folder.join("laws");
    let mut writer = IndexedWriter::create(&prefix, TokenType::U16).unwrap();
    for document in 0..documents {
        for sentence in 0..sentences {
            let id = |token: u32| 10 + (document * 7919 + sentence * 31 + token * 7) % 1000;
            writer.push(&(0..tokens).map(id).collect::<Vec<_>>()).unwrap();
            writer.end_sequence().unwrap();
        }
        writer.end_document().unwrap();
    }
    writer.finish().unwrap();
    Corpus::open(&prefix).unwrap()
}

/// A vocabulary of whole words.
fn vocabulary() -> BertVocabulary {
    BertVocabulary { cls: 0, sep: 1, mask: 2, pad: 3, continues: vec![false; 1010] }
}

#[test]
fn pairs_are_cut_anywhere_alike_and_swapped_half_of_the_time_whatever_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    // Targets are never reached, so every document is one sample; a short one is truncated and not counted.
    let corpus = corpus(folder.path(), 1000, 6, 4);
    let samples = BertSamples::new(&corpus.whole(Part::Train), vocabulary(), 512, 3).unwrap();
    let mut counts = [[0u64; 5]; 2];
    for i in 0..20_000 {
        let sample = samples.sample(i).unwrap();
        if sample.tokens.len() < 24 + 3 {
            continue;
        }
        let first = sample.types.iter().filter(|&&kind| kind == 0).count() - 2;
        let cut = if sample.is_swapped { 24 - first } else { first };
        assert_eq!(cut % 4, 0);
        counts[usize::from(sample.is_swapped)][cut / 4 - 1] += 1;
    }
    let cells = counts.concat();
    assert!(cells.iter().sum::<u64>() > 15_000, "{counts:?}");
    assert!(deviation(&cells, &[1.0; 10]) < 5.0, "{counts:?}");
}

#[test]
fn predicted_tokens_are_a_share_of_each_sample_spread_over_its_places() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = corpus(folder.path(), 300, 8, 16);
    let samples = BertSamples::new(&corpus.whole(Part::Train), vocabulary(), 512, 4).unwrap();
    let mut places = [0u64; 16];
    let mut outcomes = [0u64; 3];
    let mut random = [0u64; 10];
    for i in 0..6000 {
        let sample = samples.sample(i).unwrap();
        let n = sample.tokens.len();
        // The budget is met exactly wherever single words are there to meet it.
        assert_eq!(sample.masked.len(), ((n as f64 * 0.15).round() as usize).max(1), "sample {i} of {n}");
        for token in &sample.masked {
            let now = sample.tokens[token.position];
            // A mask drawn at random or the id itself counts as what it looks like: once in a thousand each.
            outcomes[if now == 2 {
                0
            } else if now == token.id {
                1
            } else {
                2
            }] += 1;
            if now != 2 && now != token.id {
                random[now as usize * 10 / 1010] += 1;
            }
            if n == 131 && token.position % 8 != 0 {
                places[token.position / 8 % 16] += 1;
            }
        }
    }
    assert!(deviation(&outcomes, &[0.8001, 0.1001, 0.0998]) < 5.0, "{outcomes:?}");
    assert!(deviation(&random, &[1.0; 10]) < 5.0, "{random:?}");
    // The separator lies in any of the inner sixteenths; the outer ones hold fewer runs of several words.
    let inner = &places[2..14];
    assert!(inner.iter().sum::<u64>() > 30_000, "{places:?}");
    let mean = inner.iter().sum::<u64>() as f64 / inner.len() as f64;
    assert!(inner.iter().all(|&count| (count as f64 / mean - 1.0).abs() < 0.08), "{places:?}");
}

#[test]
fn a_sample_comes_anywhere_in_an_epoch_over_seeds_and_over_epochs() {
    let folder = tempfile::tempdir().unwrap();
    let whole = corpus(folder.path(), 1, 1, 8 * 12 + 1).whole(Part::Train);
    let place_of_first = |order: &SampleOrder, epoch: u64| {
        let all: Vec<_> = (0..12).map(|i| order.sample(epoch * 12 + i).unwrap()).collect();
        all.iter().position(|tokens| tokens[0] == 10).unwrap()
    };
    let (mut seeds, mut epochs) = ([0u64; 12], [0u64; 12]);
    for seed in 0..6000 {
        let order = SampleOrder::shuffled(vec![(whole.clone(), 1.0)], 8, seed).unwrap();
        seeds[place_of_first(&order, 0)] += 1;
    }
    let order = SampleOrder::shuffled(vec![(whole.clone(), 1.0)], 8, 5).unwrap();
    (0..6000).for_each(|epoch| epochs[place_of_first(&order, epoch)] += 1);
    assert!(deviation(&seeds, &[1.0; 12]) < 5.0, "{seeds:?}");
    assert!(deviation(&epochs, &[1.0; 12]) < 5.0, "{epochs:?}");
}
