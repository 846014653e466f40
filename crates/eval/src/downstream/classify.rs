//! Scores of classification and of multiple choice.

use super::examples::{Level, MultipleChoice};
use serde::Serialize;

/// The scores of a file, each 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClassScores {
    /// Examples.
    pub examples: usize,
    /// Share predicted right.
    pub accuracy: f64,
    /// Of two classes: F1 of class 1, GLUE's other score of QQP; 0 where class 1 is neither true nor predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f1: Option<f64>,
}

/// RACE's accuracy, each 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RaceScores {
    /// Of all questions.
    pub all: ClassScores,
    /// Of middle schools' (RACE-m).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub middle: Option<ClassScores>,
    /// Of high schools' (RACE-h).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<ClassScores>,
}

/// The class of largest logit, the first of equals; logits that are no numbers come last.
///
/// # Panics
/// Without a class.
pub fn predicted_class(logits: &[f32]) -> usize {
    assert!(!logits.is_empty(), "no class to choose");
    let best = |best: usize, class: usize| {
        let is_better = logits[class] > logits[best] || (logits[best].is_nan() && !logits[class].is_nan());
        if is_better { class } else { best }
    };
    (0..logits.len()).fold(0, best)
}

impl ClassScores {
    /// Scores of predicted and true classes; `classes` of them exist.
    ///
    /// # Panics
    /// When the lists are empty or not as long as each other.
    pub fn new(predicted: &[usize], truth: &[usize], classes: usize) -> Self {
        assert!(!truth.is_empty() && predicted.len() == truth.len(), "a prediction for each example");
        let count = |wanted: fn(usize, usize) -> bool| {
            predicted.iter().zip(truth).filter(|&(&predicted, &truth)| wanted(predicted, truth)).count()
        };
        let accuracy = count(|predicted, truth| predicted == truth) as f64 / truth.len() as f64;
        // F1 = 2 tp / (2 tp + fp + fn)
        let hits = count(|predicted, truth| predicted == 1 && truth == 1);
        let errors = count(|predicted, truth| (predicted == 1) != (truth == 1));
        let f1 = 2.0 * hits as f64 / (2 * hits + errors).max(1) as f64;
        Self { examples: truth.len(), accuracy, f1: (classes == 2).then_some(f1) }
    }
}

impl RaceScores {
    /// Scores of the predicted options, all together and by level.
    ///
    /// # Panics
    /// When the lists are empty or not as long as each other.
    pub fn new(predicted: &[usize], questions: &[MultipleChoice]) -> Self {
        assert!(predicted.len() == questions.len(), "a prediction for each question");
        let scores = |wanted: &dyn Fn(&MultipleChoice) -> bool| {
            let chosen = predicted.iter().zip(questions).filter(|(_, question)| wanted(question));
            let (predicted, truth): (Vec<usize>, Vec<usize>) = chosen.map(|(&p, question)| (p, question.label)).unzip();
            (!truth.is_empty()).then(|| ClassScores::new(&predicted, &truth, 4))
        };
        let of = |level: Level| scores(&|question| question.level == Some(level));
        let all = scores(&|_| true).expect("there are questions");
        Self { all, middle: of(Level::Middle), high: of(Level::High) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accuracy and F1 by scikit-learn's definitions, counted by hand: 3 hits, 1 false alarm, 2 misses, 4 others.
    #[test]
    fn accuracy_and_f1_of_a_table_of_counts() {
        let truth = [1, 1, 1, 1, 1, 0, 0, 0, 0, 0];
        let predicted = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0];
        let scores = ClassScores::new(&predicted, &truth, 2);
        assert_eq!((scores.examples, scores.accuracy), (10, 0.7));
        // Precision 3/4, recall 3/5.
        assert!((scores.f1.unwrap() - 2.0 * 0.75 * 0.6 / (0.75 + 0.6)).abs() < 1e-15);
        assert_eq!(ClassScores::new(&[0, 0], &[0, 0], 2).f1, Some(0.0));
        assert_eq!(ClassScores::new(&[2, 1, 0], &[2, 1, 1], 3).f1, None);
    }

    #[test]
    fn the_first_of_the_largest_logits_is_predicted() {
        assert_eq!(predicted_class(&[0.5, 2.0, 2.0, -1.0]), 1);
        assert_eq!(predicted_class(&[f32::NAN, -3.0]), 1);
        assert_eq!(predicted_class(&[f32::NEG_INFINITY, f32::NAN]), 0);
    }
}
