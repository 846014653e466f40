//! Runs of sentences that make samples.

use super::draws::Draws;
use crate::error::DataError;
use crate::indexed::IndexedCorpus;
use henge_random::mix;

/// One in so many samples is made shorter than it could be.
const SHORT_ONE_IN: u64 = 10;

/// Consecutive sentences of one document, at least two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentenceSpan {
    pub(super) first: u64,
    pub(super) end: u64,
    /// Tokens of both segments together are cut to this.
    pub(super) target: u64,
}

impl SentenceSpan {
    pub(super) fn sentences(&self) -> u64 {
        self.end - self.first
    }
}

/// All spans of a corpus: sentences are taken until the target is reached, never leaving one alone at the
/// end of a document.
pub(super) fn sentence_spans(indexed: &IndexedCorpus, longest: u64, key: u64) -> Result<Vec<SentenceSpan>, DataError> {
    let mut spans = Vec::new();
    for document in 0..indexed.documents() {
        let sentences = indexed.document(document)?;
        if sentences.end - sentences.start < 2 {
            continue;
        }
        let mut draws = Draws::new(mix(key, document));
        let (mut first, mut tokens, mut target) = (sentences.start, 0, draw_target(longest, &mut draws));
        for sentence in sentences.clone() {
            tokens += u64::from(indexed.length(sentence));
            let (taken, left) = (sentence + 1 - first, sentences.end - sentence - 1);
            if left == 0 || (tokens >= target && taken >= 2 && left > 1) {
                spans.push(SentenceSpan { first, end: sentence + 1, target });
                (first, tokens, target) = (sentence + 1, 0, draw_target(longest, &mut draws));
            }
        }
    }
    Ok(spans)
}

fn draw_target(longest: u64, draws: &mut Draws) -> u64 {
    match draws.below(SHORT_ONE_IN) {
        0 => 2 + draws.below(longest - 1),
        _ => longest,
    }
}
