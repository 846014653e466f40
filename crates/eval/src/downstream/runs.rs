//! Several runs of one task: the median over seeds, and ensembles.

use crate::EvalError;

/// The run in the middle, by score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The median score; of an even number of runs the mean of the two in the middle.
    pub score: f64,
    /// The run with that score, whose checkpoint is then used; of an even number the lower of the two, of equal
    /// scores the earlier.
    pub run: usize,
}

/// The median of the runs' scores on the development set [1909.08053, section 5.3].
///
/// # Panics
/// Without a run.
pub fn median_run(scores: &[f64]) -> Median {
    assert!(!scores.is_empty(), "no run to choose");
    let mut runs: Vec<usize> = (0..scores.len()).collect();
    runs.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let (lower, upper) = (runs[(runs.len() - 1) / 2], runs[runs.len() / 2]);
    Median { score: (scores[lower] + scores[upper]) / 2.0, run: lower }
}

/// The mean of several models' logits, element by element, for spans, whose scores are sums of logits.
///
/// # Errors
/// No model, or outputs of different sizes.
pub fn ensemble_logits(models: &[&[f32]]) -> Result<Vec<f32>, EvalError> {
    let size = common_size(models)?;
    let mean = |at: usize| models.iter().map(|logits| f64::from(logits[at])).sum::<f64>() / models.len() as f64;
    Ok((0..size).map(|at| mean(at) as f32).collect())
}

/// The mean of several models' probabilities, the softmax of each row of `classes` logits.
///
/// # Errors
/// No model, outputs of different sizes or not of whole rows.
pub fn ensemble_probabilities(models: &[&[f32]], classes: usize) -> Result<Vec<f32>, EvalError> {
    let size = common_size(models)?;
    if classes == 0 || size % classes != 0 {
        return Err(mismatch(format!("{size} logits"), "whole rows of one logit for each class"));
    }
    let mut sums = vec![0.0; size];
    for row in models.iter().flat_map(|logits| (0..size / classes).map(move |row| (row, *logits))) {
        let (at, logits) = (row.0 * classes, &row.1[row.0 * classes..][..classes]);
        for (sum, probability) in sums[at..][..classes].iter_mut().zip(softmax(logits)) {
            *sum += probability / models.len() as f64;
        }
    }
    Ok(sums.into_iter().map(|probability: f64| probability as f32).collect())
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|&logit| f64::from(logit - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

fn common_size(models: &[&[f32]]) -> Result<usize, EvalError> {
    let sizes: Vec<usize> = models.iter().map(|logits| logits.len()).collect();
    match sizes.first() {
        Some(&size) if sizes.iter().all(|&other| other == size) => Ok(size),
        _ => Err(mismatch(
            format!("outputs of {sizes:?} numbers"),
            "one or more models, run over the same examples with the same tokenizer and lengths",
        )),
    }
}

fn mismatch(value: String, expected: &'static str) -> EvalError {
    EvalError::Setting { setting: "ensemble", value, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_names_its_run() {
        assert_eq!(median_run(&[0.7, 0.9, 0.8, 0.6, 0.85]), Median { score: 0.8, run: 2 });
        assert_eq!(median_run(&[0.5, 0.5, 0.4]), Median { score: 0.5, run: 0 });
        assert_eq!(median_run(&[1.0, 0.0]), Median { score: 0.5, run: 1 });
    }

    /// Softmax of (0, ln 3) is (1/4, 3/4), of (ln 4, 0) is (4/5, 1/5), of equal logits (1/2, 1/2).
    #[test]
    fn ensembles_are_means() {
        let (ln3, ln4) = (3f32.ln(), 4f32.ln());
        let (first, second) = ([0.0, ln3, 0.0, 0.0], [ln4, 0.0, 5.0, 5.0]);
        let mean = ensemble_probabilities(&[&first, &second], 2).unwrap();
        for (found, expected) in mean.iter().zip([0.525, 0.475, 0.5, 0.5]) {
            assert!((found - expected).abs() < 1e-6, "{mean:?}");
        }
        assert_eq!(ensemble_logits(&[&[1.0, -2.0], &[3.0, 4.0]]).unwrap(), [2.0, 1.0]);
        let error = ensemble_logits(&[&[1.0], &[1.0, 2.0]]).unwrap_err().to_string();
        assert!(error.contains("[1, 2] numbers: one or more models, run over the same examples"), "{error}");
        assert!(ensemble_logits(&[]).is_err());
        assert!(ensemble_probabilities(&[&[1.0, 2.0, 3.0]], 2).is_err());
    }
}
