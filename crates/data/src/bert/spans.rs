//! Runs of sentences that make samples.

use super::draws::Draws;
use crate::error::DataError;
use crate::indexed::IndexedCorpus;
use henge_random::mix;
use std::ops::Range;

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

/// All spans of the documents that begin within `tokens`: sentences are taken until the target is reached,
/// never leaving one alone at the end of a document.
pub(super) fn sentence_spans(
    indexed: &IndexedCorpus,
    tokens: &Range<u64>,
    longest: u64,
    key: u64,
) -> Result<Vec<SentenceSpan>, DataError> {
    let mut spans = Vec::new();
    for document in 0..indexed.documents() {
        let sentences = indexed.document(document)?;
        if sentences.end - sentences.start < 2 || !tokens.contains(&indexed.sequence_start(sentences.start)?) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Nine in ten are as long as they may be, the others uniform from 2 on.
    #[test]
    fn targets_follow_their_law() {
        let (longest, n) = (21u64, 100_000);
        let mut counts = vec![0u32; longest as usize + 1];
        (0..n).for_each(|i| counts[draw_target(longest, &mut Draws::new(i)) as usize] += 1);
        assert_eq!(counts[..2], [0, 0]);
        for (target, &count) in counts.iter().enumerate().skip(2) {
            let share = 0.1 / (longest - 1) as f64 + if target as u64 == longest { 0.9 } else { 0.0 };
            let error = 5.0 * (share * (1.0 - share) / n as f64).sqrt();
            assert!((f64::from(count) / n as f64 - share).abs() < error, "{count} of {target}");
        }
    }
}
