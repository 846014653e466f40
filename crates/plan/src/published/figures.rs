//! The papers' figures and tables: published and predicted series side by side.

use super::rows::{Series, all_series};
use crate::simulate::{Durations, simulate};
use crate::switches::Overlap;
use crate::{Jitter, PlanError};
use henge_schedule::{Kind, Program, Shape};
use henge_spec::formulas::{batch_seconds, bubble_against_data};

/// A line of a figure: points in order of its horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureSeries {
    /// Its name in the legend.
    pub name: String,
    /// Horizontal label, published value, predicted value.
    pub points: Vec<(String, f64, f64)>,
}

/// A figure or a table of arXiv 2104.04473.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it shows, with the unit.
    pub title: String,
    /// What a reader must know.
    pub note: String,
    /// Its lines.
    pub series: Vec<FigureSeries>,
}

const FIGURES: [u32; 10] = [6, 7, 8, 10, 11, 12, 13, 16, 17, 18];

/// Numbers of the figures that can be drawn.
pub fn figure_numbers() -> &'static [u32] {
    &FIGURES
}

/// A figure of arXiv 2104.04473 by its number.
///
/// # Errors
/// [`PlanError::UnknownFigure`] for a number that is not in [`figure_numbers`].
pub fn figure(number: u32) -> Result<Figure, PlanError> {
    match number {
        6 => figure_6(),
        8 => figure_8(),
        10 => of_families(&["table-2", "table-2-zero3"]),
        7 | 11 | 12 | 13 | 16 | 17 | 18 => of_families(&[&format!("figure-{number}")]),
        _ => Err(PlanError::UnknownFigure {
            what: "figure",
            number: number.to_string(),
            known: FIGURES.map(|known| known.to_string()).join(", "),
        }),
    }
}

/// A table of arXiv 2104.04473 by its number.
///
/// # Errors
/// [`PlanError::UnknownFigure`] for a number other than 1 and 2.
pub fn table(number: u32) -> Result<Figure, PlanError> {
    match number {
        1 => of_families(&["table-1"]),
        2 => of_families(&["table-2", "table-2-zero3"]),
        _ => Err(PlanError::UnknownFigure { what: "table", number: number.to_string(), known: "1, 2".to_string() }),
    }
}

fn of_families(families: &[&str]) -> Result<Figure, PlanError> {
    let all: Vec<Series> =
        all_series().into_iter().filter(|series| families.contains(&series.family.as_str())).collect();
    let mut figure = Figure {
        title: all.iter().map(|series| series.title.as_str()).collect::<Vec<_>>().join("; "),
        note: all
            .iter()
            .map(|series| series.note.as_str())
            .filter(|note| !note.is_empty())
            .collect::<Vec<_>>()
            .join("; "),
        series: Vec::new(),
    };
    for series in &all {
        for row in &series.rows {
            let (name, label) = row.label.rsplit_once(' ').unwrap_or(("", &row.label));
            let name = if families.len() > 1 { format!("{} {name}", series.family) } else { name.to_string() };
            let point = (label.to_string(), row.value, series.question(row)?.answer()?);
            match figure.series.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => figure.series.push(FigureSeries { name, points: vec![point] }),
            }
        }
    }
    Ok(figure)
}

/// Bubble against d: the formula as published, a simulation without communication as predicted.
fn figure_6() -> Result<Figure, PlanError> {
    let mut series = Vec::new();
    for (gpus, batch) in [(32, 32), (32, 128), (128, 128), (128, 512)] {
        let mut points = Vec::new();
        for power in 0..=7 {
            let data = 1usize << power;
            if data <= gpus && batch >= data {
                let formula = bubble_against_data(gpus as f64, data as f64, batch as f64);
                points.push((format!("d={data}"), formula, simulated_bubble(gpus / data, batch / data)?));
            }
        }
        series.push(FigureSeries { name: format!("n={gpus}, b'={batch}"), points });
    }
    let title = "Figure 6: bubble over ideal time against data parallel size".to_string();
    let note = "published: (n-d)/b'; predicted: the simulated 1F1B program without communication".to_string();
    Ok(Figure { title, note, series })
}

fn simulated_bubble(pipeline: usize, microbatches: usize) -> Result<f64, PlanError> {
    let shape = Shape { kind: Kind::OneForwardOneBackward, pipeline, chunks: 1, microbatches };
    let program = Program::generate(shape)?;
    let durations = Durations::uniform(pipeline, pipeline, 1.0, 2.0, 0.0, Overlap::NONE);
    Ok(simulate(&program, &durations, &Jitter::NONE, &mut ()).bubble_fraction())
}

/// Equation 1 over figure 7's rates: published over published, predicted over predicted.
fn figure_8() -> Result<Figure, PlanError> {
    let sizes = [1.0, 2.0, 4.0, 8.0, 16.0];
    let published = [(128.0, [1.00, 1.09, 1.09, 0.95, 0.75]), (512.0, [1.00, 1.13, 1.21, 1.19, 1.11])];
    let rates: Vec<f64> = figure(7)?.series[0].points.iter().map(|(_, _, predicted)| *predicted).collect();
    let time = |batch: f64, at: usize| batch_seconds(batch, sizes[at], 8.0, sizes[at] / rates[at]);
    let line = |(batch, values): (f64, [f64; 5])| FigureSeries {
        name: format!("B={batch}"),
        points: (0..5).map(|at| (format!("b={}", sizes[at]), values[at], time(batch, 0) / time(batch, at))).collect(),
    };
    let title = "Figure 8: throughput against microbatch size by equation 1, (p, t) = (8, 8), normalised".to_string();
    let note = "predicted: equation 1 over the predicted figure 7".to_string();
    Ok(Figure { title, note, series: published.map(line).to_vec() })
}
