//! Whole-word n-gram masking.

use super::BertVocabulary;
use super::draws::Draws;

/// A token to predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedToken {
    pub position: usize,
    /// The id that stood there.
    pub id: u32,
}

/// The shares of masking.
#[derive(Clone, Copy, Debug)]
pub struct Masking {
    /// Share of all tokens to predict.
    pub share: f64,
    /// Of those, the share replaced by `[MASK]`, and the share left as it is; the rest is replaced by a
    /// random id.
    pub masked: f64,
    pub kept: f64,
    /// Words in the longest run; a run of `n` has probability proportional to `1 / n`.
    pub longest_run: usize,
}

impl Masking {
    /// Megatron's: 15%, 80/10/10, runs of up to three words.
    pub const MEGATRON: Masking = Masking { share: 0.15, masked: 0.8, kept: 0.1, longest_run: 3 };

    /// Masks `tokens` in place; returns what is to be predicted, by position.
    ///
    /// Words are visited in random order; at each a run length is drawn and shortened to what the budget
    /// leaves, and a run that overlaps an earlier one is passed over.
    pub(super) fn apply(&self, tokens: &mut [u32], vocabulary: &BertVocabulary, draws: &mut Draws) -> Vec<MaskedToken> {
        let words = words(tokens, vocabulary);
        let budget = ((tokens.len() as f64 * self.share).round() as usize).max(1);
        let mut chosen = vec![false; tokens.len()];
        let mut masked = Vec::new();
        for start in shuffled(words.len(), draws) {
            if masked.len() >= budget {
                break;
            }
            let longest = self.longest_run.min(words.len() - start);
            let run = (1..=self.draw_run(longest, draws)).rev().map(|n| words[start].start..words[start + n - 1].end);
            let fits = run.into_iter().find(|run| masked.len() + run.len() <= budget);
            let Some(run) = fits.filter(|run| !chosen[run.clone()].contains(&true)) else { continue };
            for position in run {
                // A separator between two words of a run is neither masked nor predicted.
                if is_mark(tokens[position], vocabulary) {
                    continue;
                }
                chosen[position] = true;
                masked.push(MaskedToken { position, id: tokens[position] });
            }
        }
        masked.sort_unstable_by_key(|token| token.position);
        for token in &masked {
            tokens[token.position] = self.replacement(token.id, vocabulary, draws);
        }
        masked
    }

    fn replacement(&self, id: u32, vocabulary: &BertVocabulary, draws: &mut Draws) -> u32 {
        let draw = draws.unit();
        if draw < self.masked {
            vocabulary.mask
        } else if draw < self.masked + self.kept {
            id
        } else {
            draws.below(vocabulary.continues.len() as u64) as u32
        }
    }

    /// A run length of at most `longest` words.
    fn draw_run(&self, longest: usize, draws: &mut Draws) -> usize {
        let sum: f64 = (1..=longest).map(|n| 1.0 / n as f64).sum();
        let mut left = draws.unit() * sum;
        for n in 1..longest {
            left -= 1.0 / n as f64;
            if left < 0.0 {
                return n;
            }
        }
        longest
    }
}

fn is_mark(id: u32, vocabulary: &BertVocabulary) -> bool {
    id == vocabulary.cls || id == vocabulary.sep
}

/// The tokens of each word.
fn words(tokens: &[u32], vocabulary: &BertVocabulary) -> Vec<std::ops::Range<usize>> {
    let mut words: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, &id) in tokens.iter().enumerate() {
        if is_mark(id, vocabulary) {
            continue;
        }
        let goes_on = vocabulary.continues.get(id as usize).copied().unwrap_or(false);
        match words.last_mut() {
            Some(word) if goes_on && word.end == at => word.end += 1,
            _ => words.push(at..at + 1),
        }
    }
    words
}

fn shuffled(count: usize, draws: &mut Draws) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        order.swap(i, draws.below(i as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of `n` words comes with probability proportional to `1 / n`.
    #[test]
    fn run_lengths_follow_their_law() {
        let mut draws = Draws::new(11);
        for longest in 1..=3 {
            let mut counts = vec![0; longest];
            let n = 60_000;
            (0..n).for_each(|_| counts[Masking::MEGATRON.draw_run(longest, &mut draws) - 1] += 1);
            let sum: f64 = (1..=longest).map(|n| 1.0 / n as f64).sum();
            for (i, &count) in counts.iter().enumerate() {
                let share = 1.0 / ((i + 1) as f64 * sum);
                let error = 5.0 * (share * (1.0 - share) / f64::from(n)).sqrt();
                let found = f64::from(count) / f64::from(n);
                assert!((found - share).abs() <= error, "runs of {} of {longest}: {found}, not {share}", i + 1);
            }
        }
    }
}
