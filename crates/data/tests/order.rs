//! Which tokens a sample holds.

use henge_data::indexed::{IndexedWriter, TokenType};
use henge_data::order::{BlendStage, Part, Piece, SampleOrder, Split};
use henge_data::{Corpus, DataError};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// A corpus whose token at position `p` is `p`, with documents of the given lengths.
fn corpus(folder: &Path, name: &str, lengths: &[u64]) -> Arc<Corpus> {
    let prefix = folder.join(name);
    let mut writer = IndexedWriter::create(&prefix, TokenType::I32).unwrap();
    let mut next = 0u32;
    for &length in lengths {
        let ids: Vec<u32> = (next..next + length as u32).collect();
        next += length as u32;
        writer.push(&ids).unwrap();
        writer.end_sequence().unwrap();
        writer.end_document().unwrap();
    }
    writer.finish().unwrap();
    Corpus::open(&prefix).unwrap()
}

fn split(shares: [f64; 3]) -> Split {
    Split::new(shares).unwrap()
}

#[test]
fn an_epoch_scores_every_target_once_and_the_next_in_another_order() {
    let folder = tempfile::tempdir().unwrap();
    let whole = corpus(folder.path(), "a", &[30, 1, 70, 29]).whole(Part::Train);
    let order = SampleOrder::shuffled(vec![(whole, 1.0)], 8, 5).unwrap();
    assert_eq!(order.distinct_samples(), 16);
    let epoch = |e: u64| (0..16).map(|i| order.sample(e * 16 + i).unwrap()).collect::<Vec<_>>();
    let (first, second) = (epoch(0), epoch(1));
    assert_ne!(first, second);
    for samples in [first, second] {
        let mut targets: Vec<u32> = samples.iter().flat_map(|s| s[1..].to_vec()).collect();
        targets.sort_unstable();
        assert_eq!(targets, (1..=128).collect::<Vec<_>>());
        assert!(samples.iter().all(|s| s.len() == 9 && s.windows(2).all(|w| w[1] == w[0] + 1)));
    }
    let again = SampleOrder::shuffled(vec![(corpus(folder.path(), "b", &[130]).whole(Part::Train), 1.0)], 8, 5);
    assert_eq!(order.sample(40).unwrap(), again.unwrap().sample(40).unwrap());
}

#[test]
fn sequential_order_walks_the_range_and_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let parts = vec![
        corpus(folder.path(), "a", &[10, 10]).whole(Part::Valid),
        corpus(folder.path(), "b", &[9]).whole(Part::Valid),
    ];
    let order = SampleOrder::sequential(parts, 4).unwrap();
    let firsts: Vec<_> = (0..8).map(|i| (order.locate(i).unwrap().corpus, order.sample(i).unwrap()[0])).collect();
    assert_eq!(firsts, [(0, 0), (0, 4), (0, 8), (0, 12), (1, 0), (1, 4), (0, 0), (0, 4)]);
}

#[test]
fn parts_are_document_ranges_or_token_ranges_of_a_single_text() {
    let folder = tempfile::tempdir().unwrap();
    let documents = corpus(folder.path(), "a", &[100; 10]);
    let cut = split([7.0, 2.0, 1.0]);
    let tokens = |corpus: &Arc<Corpus>, part| corpus.part(&cut, part).unwrap().tokens;
    assert_eq!(tokens(&documents, Part::Train), 0..700);
    assert_eq!(tokens(&documents, Part::Valid), 700..900);
    assert_eq!(tokens(&documents, Part::Test), 900..1000);
    let text = corpus(folder.path(), "b", &[1000]);
    assert_eq!(tokens(&text, Part::Train), 0..700);
    assert_eq!(tokens(&text, Part::Valid), 700..900);
    let order = SampleOrder::sequential(vec![text.part(&cut, Part::Valid).unwrap()], 50).unwrap();
    assert_eq!((order.distinct_samples(), order.sample(0).unwrap()[0]), (3, 700));
}

#[test]
fn a_part_without_a_full_sample_says_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let text = corpus(folder.path(), "a", &[1000]);
    let part = text.part(&split([99.0, 1.0, 0.0]), Part::Valid).unwrap();
    let error = SampleOrder::sequential(vec![part], 10).unwrap_err();
    assert!(matches!(error, DataError::NoFullSample { tokens: 10, needed: 11, .. }));
    assert!(error.to_string().contains("the validation part of"), "{error}");
}

#[test]
fn blends_count_within_one_sample_and_documents_know_their_samples() {
    let folder = tempfile::tempdir().unwrap();
    let lengths: Vec<u64> = (1..40).collect();
    let parts = vec![
        (corpus(folder.path(), "a", &lengths).whole(Part::Train), 0.3),
        (corpus(folder.path(), "b", &[500, 3, 2]).whole(Part::Train), 0.7),
    ];
    let order = SampleOrder::shuffled(parts, 16, 9).unwrap();
    let limit = 400;
    let mut readers: HashMap<(usize, u64), Vec<u64>> = HashMap::new();
    let mut taken = [0u64; 2];
    for i in 0..limit {
        let location = order.locate(i).unwrap();
        taken[location.corpus] += 1;
        assert!((taken[0] as f64 - 0.3 * (i + 1) as f64).abs() < 1.0);
        let pieces = order.pieces(&location).unwrap();
        assert_eq!(pieces.iter().map(|piece| piece.tokens).sum::<u64>(), 17);
        for Piece { document, .. } in pieces {
            readers.entry((location.corpus, document)).or_default().push(i);
        }
    }
    for (corpus, document) in [(0, 0), (0, 1), (0, 17), (0, 38), (1, 0), (1, 1), (1, 2)] {
        let found = order.samples_of_document(corpus, document, limit).unwrap();
        assert_eq!(found, readers.get(&(corpus, document)).cloned().unwrap_or_default());
    }
}

#[test]
fn a_document_or_corpus_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let part = corpus(folder.path(), "a", &[50, 50]).whole(Part::Train);
    let orders = [
        SampleOrder::shuffled(vec![(part.clone(), 1.0)], 16, 9).unwrap(),
        SampleOrder::sequential(vec![part], 16).unwrap(),
    ];
    for order in orders {
        let error = |corpus, document| order.samples_of_document(corpus, document, 100).unwrap_err().to_string();
        assert!(error(0, 2).contains("document 2 is asked for of") && error(0, 2).contains("0 to 1"));
        assert!(error(1, 0).contains("corpus 1 is asked for of 1"));
    }
}

/// A stage changes which corpus comes when and nothing else: each goes on with its next sample.
#[test]
fn stages_read_on_where_the_stage_before_left_each_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let parts = [("a", 700), ("b", 900), ("c", 300)].map(|(name, n)| corpus(folder.path(), name, &[n; 3]));
    let parts: Vec<_> = parts.iter().map(|corpus| corpus.whole(Part::Train)).collect();
    let stages = [
        BlendStage { from: 0, weights: vec![(0, 1.0)] },
        BlendStage { from: 40, weights: vec![(0, 1.0), (1, 3.0)] },
        BlendStage { from: 100, weights: vec![(2, 1.0)] },
    ];
    let order = SampleOrder::staged(parts.clone(), &stages, 16, 3).unwrap();
    let alone = SampleOrder::shuffled(parts.into_iter().map(|part| (part, 1.0)).collect(), 16, 3).unwrap();
    // In an even blend of three the samples of each corpus come in its own order too.
    let own = |order: &SampleOrder, limit: u64, corpus: usize| {
        let all = (0..limit).filter(|&i| order.locate(i).unwrap().corpus == corpus);
        all.map(|i| order.sample(i).unwrap()).collect::<Vec<_>>()
    };
    for (corpus, taken) in [(0, 55), (1, 45), (2, 60)] {
        let staged = own(&order, 160, corpus);
        assert_eq!(staged.len(), taken);
        assert_eq!(staged[..], own(&alone, 600, corpus)[..taken]);
        let mut read: Vec<u64> = (0..3).flat_map(|d| order.samples_of_document(corpus, d, 160).unwrap()).collect();
        read.sort_unstable();
        read.dedup();
        assert_eq!(read.len(), taken);
        assert!(read.iter().all(|&i| order.locate(i).unwrap().corpus == corpus));
    }
}

#[test]
fn an_empty_corpus_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("none");
    IndexedWriter::create(&prefix, TokenType::U16).unwrap().finish().unwrap();
    assert!(matches!(Corpus::open(&prefix).unwrap_err(), DataError::EmptyCorpus { .. }));
}
