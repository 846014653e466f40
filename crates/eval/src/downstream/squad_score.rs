//! SQuAD's official scores, by the definitions of the two evaluation scripts that its authors publish.
//!
//! Texts are compared in lower case without ASCII punctuation, articles (`a`, `an`, `the`) and superfluous
//! white space. Exact match is whether they are then equal; F1 is the harmonic mean of precision and recall of
//! their words as bags. Of several accepted answers the best counts.

use super::examples::{Answer, SpanQuestion};
use super::spans::Prediction;
use super::squad::Squad;
use serde::Serialize;
use std::collections::HashMap;

/// One answer's scores, each 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpanScore {
    /// 1 where the normalised texts are equal.
    pub exact_match: f64,
    /// Overlap of words.
    pub f1: f64,
}

/// Mean scores of some questions, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpanMeans {
    /// How many.
    pub questions: usize,
    /// Percentage matched exactly.
    pub exact_match: f64,
    /// Mean F1, percent.
    pub f1: f64,
}

/// The best scores over all thresholds for giving no answer, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BestThresholds {
    /// Best exact match.
    pub exact_match: f64,
    /// Its threshold: an answer is given where the null difference is at most this.
    pub exact_match_threshold: f64,
    /// Best F1.
    pub f1: f64,
    /// Its threshold.
    pub f1_threshold: f64,
}

/// The scores of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SquadReport {
    /// How it was measured.
    pub protocol: &'static str,
    /// Which SQuAD.
    pub version: Squad,
    /// Of all questions.
    #[serde(flatten)]
    pub all: SpanMeans,
    /// Of the questions with an answer (2.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<SpanMeans>,
    /// Of the questions without (2.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<SpanMeans>,
    /// Null difference above which no answer was given (2.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// What the best threshold would give (2.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<BestThresholds>,
}

impl Squad {
    /// A prediction's score against the accepted answers; none of them means that no answer (an empty text) is
    /// right.
    pub fn score(self, prediction: &str, answers: &[Answer]) -> SpanScore {
        let mut truths: Vec<&str> = answers.iter().map(|answer| answer.text.as_str()).collect();
        if self == Squad::V2 {
            truths.retain(|truth| !normalise_answer(truth).is_empty());
        }
        if truths.is_empty() {
            truths.push("");
        }
        let scores = truths.into_iter().map(|truth| self.score_one(prediction, truth));
        scores.fold(SpanScore::default(), |best, score| SpanScore {
            exact_match: best.exact_match.max(score.exact_match),
            f1: best.f1.max(score.f1),
        })
    }

    fn score_one(self, prediction: &str, truth: &str) -> SpanScore {
        let (prediction, truth) = (normalise_answer(prediction), normalise_answer(truth));
        let exact_match = f64::from(u8::from(prediction == truth));
        let has_empty = prediction.is_empty() || truth.is_empty();
        // 1.1's script finds no common word in two empty texts; 2.0's calls them equal.
        let f1 = if has_empty && self == Squad::V2 { exact_match } else { word_f1(&prediction, &truth) };
        SpanScore { exact_match, f1 }
    }

    /// The scores of a file: `predictions[i]` answers `questions[i]`. Of 2.0 no answer is given where the null
    /// difference is above `threshold`; of 1.1 the best answer always is.
    ///
    /// # Panics
    /// When the lists are empty or not as long as each other.
    pub fn report(self, questions: &[SpanQuestion], predictions: &[Prediction], threshold: f64) -> SquadReport {
        assert!(!questions.is_empty() && questions.len() == predictions.len(), "a prediction for each question");
        let pairs = questions.iter().zip(predictions);
        let given = |prediction: &Prediction| match self {
            Squad::V1 => prediction.answer().to_string(),
            Squad::V2 => prediction.answer_or_none(threshold).to_string(),
        };
        let score = |(question, prediction): (&SpanQuestion, &Prediction)| {
            (!question.answers.is_empty(), self.score(&given(prediction), &question.answers))
        };
        let scores: Vec<(bool, SpanScore)> = pairs.map(score).collect();
        let part = |answered: bool| means(scores.iter().filter(|(has, _)| *has == answered).map(|(_, score)| score));
        let is_v2 = self == Squad::V2;
        SquadReport {
            protocol: self.protocol(),
            version: self,
            all: means(scores.iter().map(|(_, score)| score)).expect("there are questions"),
            answered: part(true).filter(|_| is_v2),
            unanswered: part(false).filter(|_| is_v2),
            threshold: is_v2.then_some(threshold),
            best: is_v2.then(|| best_thresholds(questions, predictions)),
        }
    }

    fn protocol(self) -> &'static str {
        match self {
            Squad::V1 => "SQuAD 1.1, official exact match and F1 in percent",
            Squad::V2 => {
                "SQuAD 2.0, official exact match and F1 in percent; no answer where its score exceeds the best \
                 answer's by more than the threshold"
            }
        }
    }
}

fn means<'a>(scores: impl Iterator<Item = &'a SpanScore>) -> Option<SpanMeans> {
    let (mut questions, mut sum) = (0, SpanScore::default());
    for score in scores {
        questions += 1;
        sum.exact_match += score.exact_match;
        sum.f1 += score.f1;
    }
    let mean = |sum: f64| 100.0 * sum / questions as f64;
    (questions > 0).then(|| SpanMeans { questions, exact_match: mean(sum.exact_match), f1: mean(sum.f1) })
}

/// The thresholds that would have given the best scores: those of 2.0's script, but that questions of equal null
/// difference are accepted together, and that a threshold below all of them stands for giving no answer.
pub fn best_thresholds(questions: &[SpanQuestion], predictions: &[Prediction]) -> BestThresholds {
    let mut by_difference: Vec<(f64, SpanScore)> = Vec::new();
    for (question, prediction) in questions.iter().zip(predictions) {
        let gain = if question.answers.is_empty() {
            // Giving no answer is right; giving one is not.
            let lost = -f64::from(u8::from(!prediction.answer().is_empty()));
            SpanScore { exact_match: lost, f1: lost }
        } else {
            Squad::V2.score(prediction.answer(), &question.answers)
        };
        by_difference.push((prediction.null_difference(), gain));
    }
    by_difference.sort_by(|a, b| a.0.total_cmp(&b.0));
    let without = questions.iter().filter(|question| question.answers.is_empty()).count() as f64;
    let (exact_match, exact_match_threshold) = best_cut(&by_difference, without, |score| score.exact_match);
    let (f1, f1_threshold) = best_cut(&by_difference, without, |score| score.f1);
    let percent = |sum: f64| 100.0 * sum / questions.len().max(1) as f64;
    BestThresholds { exact_match: percent(exact_match), exact_match_threshold, f1: percent(f1), f1_threshold }
}

/// The largest sum of `without` and the gains of a head of the list, and the difference at which that head ends.
fn best_cut(by_difference: &[(f64, SpanScore)], without: f64, value: impl Fn(&SpanScore) -> f64) -> (f64, f64) {
    let below_all = by_difference.first().map_or(0.0, |(difference, _)| difference - 1.0);
    let (mut sum, mut best) = (without, (without, below_all));
    for group in by_difference.chunk_by(|a, b| a.0 == b.0) {
        sum += group.iter().map(|(_, gain)| value(gain)).sum::<f64>();
        if sum > best.0 {
            best = (sum, group[0].0);
        }
    }
    best
}

fn word_f1(prediction: &str, truth: &str) -> f64 {
    let mut words: HashMap<&str, usize> = HashMap::new();
    for word in truth.split(' ').filter(|word| !word.is_empty()) {
        *words.entry(word).or_default() += 1;
    }
    let predicted: Vec<&str> = prediction.split(' ').filter(|word| !word.is_empty()).collect();
    let true_words: usize = words.values().sum();
    let is_common = |word: &&&str| words.get_mut(**word).filter(|left| **left > 0).map(|left| *left -= 1).is_some();
    let common = predicted.iter().filter(is_common).count();
    if common == 0 {
        return 0.0;
    }
    let (precision, recall) = (common as f64 / predicted.len() as f64, common as f64 / true_words as f64);
    2.0 * precision * recall / (precision + recall)
}

/// A text as SQuAD compares it: lower case, without ASCII punctuation, articles and superfluous white space.
pub fn normalise_answer(text: &str) -> String {
    let lower = text.to_lowercase();
    let bare: String = lower.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let words = remove_articles(&bare);
    // Python's `split` also parts at the four information separators.
    let is_space = |c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c);
    let words: Vec<&str> = words.split(is_space).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Puts a blank for each article that stands between characters which are no part of a word.
fn remove_articles(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while !rest.is_empty() {
        let word = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        out.push_str(if matches!(&rest[..word], "a" | "an" | "the") { " " } else { &rest[..word] });
        rest = &rest[word..];
        let between = rest.find(char::is_alphanumeric).unwrap_or(rest.len());
        out.push_str(&rest[..between]);
        rest = &rest[between..];
    }
    out
}
