//! Every published row against its prediction, by family and in all.

use super::rows::{Question, Row, Series, all_series};
use crate::PlanError;

/// A row with its prediction.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The row's name.
    pub label: String,
    /// As printed.
    pub published: f64,
    /// As predicted, with the settings that are known.
    pub predicted: f64,
    /// Relative error after the rounding of the printed value: zero where the prediction
    /// rounds to it, else the distance to the nearest value that does.
    pub error: f64,
    /// Smallest and largest prediction over what the source does not say.
    pub range: Option<(f64, f64)>,
    /// Whether it enters the figure.
    pub counted: bool,
    /// Bytes needed on the fullest device, and its capacity; absent for single layers.
    pub memory: Option<(f64, f64)>,
}

impl Judged {
    /// Whether the printed value lies in the range of the unknowns, give or take a tenth.
    pub fn within_range(&self) -> bool {
        self.range.is_none_or(|(low, high)| (0.9 * low..=1.1 * high).contains(&self.published))
    }
}

/// The rows of one series.
#[derive(Clone, Debug)]
pub struct Family {
    /// The series.
    pub series: Series,
    /// Its rows.
    pub rows: Vec<Judged>,
}

impl Family {
    /// Median and largest absolute error of the counted rows.
    pub fn median_and_worst(&self) -> Option<(f64, f64)> {
        let errors: Vec<f64> = self.rows.iter().filter(|row| row.counted).map(|row| row.error.abs()).collect();
        let worst = errors.iter().copied().reduce(f64::max)?;
        Some((median(errors), worst))
    }
}

/// Errors over all counted rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many rows.
    pub rows: usize,
    /// Median absolute error.
    pub median: f64,
    /// Share of rows within a tenth.
    pub within_tenth: f64,
    /// Largest absolute error.
    pub worst: f64,
}

/// Error of `predicted` against a value printed to `rounding`.
pub fn judge(published: f64, predicted: f64, rounding: f64) -> f64 {
    let beyond = ((predicted - published).abs() - rounding / 2.0).max(0.0);
    beyond.copysign(predicted - published) / published
}

/// Predicts every published row.
///
/// # Errors
/// When a row of the compiled-in file breaks a rule; a test reads them all.
pub fn validate() -> Result<Vec<Family>, PlanError> {
    all_series().into_iter().map(family).collect()
}

fn family(series: Series) -> Result<Family, PlanError> {
    let rows = series.rows.iter().map(|row| judged(&series, row)).collect::<Result<_, _>>()?;
    Ok(Family { series, rows })
}

fn judged(series: &Series, row: &Row) -> Result<Judged, PlanError> {
    let question = series.question(row)?;
    let predicted = question.answer()?;
    Ok(Judged {
        label: row.label.clone(),
        published: row.value,
        predicted,
        error: judge(row.value, predicted, series.rounding),
        range: range(series, row)?,
        counted: series.counts(row),
        memory: memory(&question),
    })
}

fn range(series: &Series, row: &Row) -> Result<Option<(f64, f64)>, PlanError> {
    let ways = series.possibilities(row);
    if ways.len() < 2 {
        return Ok(None);
    }
    let mut fitting = Vec::new();
    let mut legal = Vec::new();
    for way in ways {
        let question = series.question(&way)?;
        let Some((need, capacity)) = memory(&question) else { continue };
        let answer = question.answer()?;
        legal.push(answer);
        if need <= capacity {
            fitting.push(answer);
        }
    }
    // It ran, so that where the account lets nothing fit, the account is not believed.
    let answers = if fitting.is_empty() { legal } else { fitting };
    let low = answers.iter().copied().reduce(f64::min);
    Ok(low.zip(answers.into_iter().reduce(f64::max)))
}

/// Need and capacity of a whole step on a legal layout.
fn memory(question: &Question) -> Option<(f64, f64)> {
    if question.is_one_layer() {
        return None;
    }
    let step = crate::predict(&question.workload()).ok()?;
    Some((step.fullest().1, question.cluster.capacity()))
}

/// Sums up the counted rows of all families.
pub fn summary(families: &[Family]) -> Summary {
    let counted = families.iter().flat_map(|family| &family.rows).filter(|row| row.counted);
    let errors: Vec<f64> = counted.map(|row| row.error.abs()).collect();
    let rows = errors.len();
    Summary {
        rows,
        within_tenth: errors.iter().filter(|error| **error <= 0.1).count() as f64 / rows as f64,
        worst: errors.iter().copied().fold(0.0, f64::max),
        median: median(errors),
    }
}

fn median(mut errors: Vec<f64>) -> f64 {
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or(0.0)
}
