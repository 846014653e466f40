//! From the scores of tokens as first and last of an answer to the answer's text.

use super::examples::SpanQuestion;
use super::windows::Window;
use std::cmp::Ordering;

/// What is searched for [Devlin et al. 2018, the published SQuAD code].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanSearch {
    /// Answers kept.
    pub best: usize,
    /// Tokens of the longest answer.
    pub longest_answer: usize,
}

impl SpanSearch {
    /// BERT's: 20 answers of at most 30 tokens.
    pub const BERT: Self = Self { best: 20, longest_answer: 30 };
}

/// The model's output for one window.
#[derive(Clone, Copy, Debug)]
pub struct WindowScores<'a> {
    /// The window.
    pub window: &'a Window,
    /// `[s]`, or more where padded: logits of each position as the answer's first.
    pub start: &'a [f32],
    /// As `start`, of its last.
    pub end: &'a [f32],
}

/// A stretch of the passage with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its text, as it stands in the passage.
    pub text: String,
    /// Sum of the logits of its first and its last token.
    pub score: f64,
    /// Softmax of the score among the candidates kept.
    pub probability: f64,
}

/// What a model says to one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The best answers with different texts, best first; never empty.
    pub candidates: Vec<Candidate>,
    /// The least score, over the windows, of there being no answer.
    pub null_score: f64,
}

impl Prediction {
    /// How much more the model believes that there is no answer than in its best one. An answer is given
    /// where this is not above a threshold.
    pub fn null_difference(&self) -> f64 {
        self.null_score - self.candidates[0].score
    }

    /// The best answer.
    pub fn answer(&self) -> &str {
        &self.candidates[0].text
    }

    /// The best answer, or none (an empty text) where the null difference is above `threshold`.
    pub fn answer_or_none(&self, threshold: f64) -> &str {
        if self.null_difference() > threshold { "" } else { self.answer() }
    }
}

impl SpanSearch {
    /// The best answers to `question` over all of its windows.
    ///
    /// An answer begins at a token whose best context is that window. All spans are compared; the published
    /// code only pairs the best starts with the best ends and may find none.
    ///
    /// # Panics
    /// Without a window, with scores for fewer positions than the window has tokens, or with a window of
    /// another question.
    pub fn answer(&self, question: &SpanQuestion, windows: &[WindowScores<'_>]) -> Prediction {
        assert!(!windows.is_empty() && self.best > 0 && self.longest_answer > 0, "nothing to search in or for");
        let mut spans: Vec<Span> = windows.iter().flat_map(|scores| self.best_of_window(scores)).collect();
        spans.sort_by(Span::by_score);
        let mut candidates: Vec<Candidate> = Vec::new();
        for Span { score, start, end } in spans {
            let text = &question.passage[start as usize..end as usize];
            if candidates.len() < self.best && candidates.iter().all(|candidate| candidate.text != text) {
                candidates.push(Candidate { text: text.to_string(), score, probability: 0.0 });
            }
        }
        set_probabilities(&mut candidates);
        let null = |scores: &WindowScores<'_>| f64::from(scores.start[0]) + f64::from(scores.end[0]);
        Prediction { candidates, null_score: windows.iter().map(null).fold(f64::INFINITY, f64::min) }
    }

    /// The best spans of a window, twice as many as are wanted: a text that stands there twice fills one place.
    fn best_of_window(&self, scores: &WindowScores<'_>) -> Vec<Span> {
        let Window { first, places, is_best_context, .. } = scores.window;
        let ends = |start: usize| start..(start + self.longest_answer).min(places.len());
        let score = |token: usize, logits: &[f32]| f64::from(logits[first + token]);
        let starts = (0..places.len()).filter(|&start| is_best_context[start]);
        let pairs = starts.flat_map(|start| ends(start).map(move |end| (start, end)));
        let mut spans: Vec<Span> = pairs
            .map(|(start, end)| Span {
                score: score(start, scores.start) + score(end, scores.end),
                start: places[start].start,
                end: places[end].end,
            })
            .collect();
        let kept = 2 * self.best;
        if spans.len() > kept {
            spans.select_nth_unstable_by(kept, Span::by_score);
            spans.truncate(kept);
        }
        spans
    }
}

/// Bytes of the passage with their score.
struct Span {
    score: f64,
    start: u32,
    end: u32,
}

impl Span {
    /// Best first; of equals the earlier, then the shorter, so that no order of work shows.
    fn by_score(a: &Self, b: &Self) -> Ordering {
        b.score.total_cmp(&a.score).then((a.start, a.end).cmp(&(b.start, b.end)))
    }
}

fn set_probabilities(candidates: &mut [Candidate]) {
    let Some(best) = candidates.first().map(|candidate| candidate.score) else { return };
    let sum: f64 = candidates.iter().map(|candidate| (candidate.score - best).exp()).sum();
    for candidate in candidates {
        candidate.probability = (candidate.score - best).exp() / sum;
    }
}
