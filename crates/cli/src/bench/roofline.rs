//! The roofline of a step (Williams, Waterman and Patterson, 2009): each operation's rate
//! over its arithmetic intensity, under the machine's two ceilings.

use super::breakdown::{Ceiling, Row};
use crate::failure::Failure;
use plotters::prelude::*;
use std::error::Error;

const SIZE: (u32, u32) = (900, 560);
/// FLOP a byte at the picture's two edges.
const INTENSITY: (f64, f64) = (0.5, 4096.0);

/// The picture as SVG.
pub fn svg(rows: &[Row], ceiling: Ceiling) -> Result<String, Failure> {
    let mut picture = String::new();
    let points = points(rows);
    draw(&points, ceiling, SVGBackend::with_string(&mut picture, SIZE)).map_err(Failure::run)?;
    Ok(picture)
}

/// An operation's number in the legend, its name, FLOP a byte and GFLOP a second.
struct Point<'a> {
    number: usize,
    name: &'a str,
    intensity: f64,
    rate: f64,
}

/// Operations that multiply; those that only move bytes have no place on a roofline.
fn points<'a>(rows: &'a [Row]) -> Vec<Point<'a>> {
    let multiplies = rows.iter().filter(|row| row.flops > 0.0 && row.bytes > 0.0 && row.seconds > 0.0);
    let point = |(index, row): (usize, &'a Row)| Point {
        number: index + 1,
        name: &row.operation,
        intensity: row.flops / row.bytes,
        rate: row.flops / row.seconds / 1e9,
    };
    multiplies.enumerate().map(point).collect()
}

/// GFLOP a second that the ceilings allow at an intensity.
fn roof(ceiling: Ceiling, intensity: f64) -> f64 {
    ceiling.flops.min(ceiling.bandwidth * intensity) / 1e9
}

fn draw(points: &[Point], ceiling: Ceiling, backend: SVGBackend) -> Result<(), Box<dyn Error>> {
    let area = backend.into_drawing_area();
    area.fill(&WHITE)?;
    let (plot, legend) = area.split_horizontally(600);
    let top = 2.0 * ceiling.flops / 1e9;
    let low = roof(ceiling, INTENSITY.0) / 2.0;
    let mut chart = ChartBuilder::on(&plot)
        .caption("Operations of a step under this machine's ceilings", ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((INTENSITY.0..INTENSITY.1).log_scale(), (low..top).log_scale())?;
    chart.configure_mesh().light_line_style(TRANSPARENT).x_desc("FLOP a byte").y_desc("GFLOP a second").draw()?;
    let ridge = ceiling.flops / ceiling.bandwidth;
    let corners = [INTENSITY.0, ridge.clamp(INTENSITY.0, INTENSITY.1), INTENSITY.1];
    chart.draw_series(LineSeries::new(corners.map(|x| (x, roof(ceiling, x))), BLACK.stroke_width(2)))?;
    for point in points {
        let place = (point.intensity.clamp(INTENSITY.0, INTENSITY.1), point.rate.clamp(low, top));
        let colour = Palette99::pick(point.number).filled();
        let label = Text::new(point.number.to_string(), (6, -6), ("sans-serif", 12));
        chart.draw_series([EmptyElement::at(place) + Circle::new((0, 0), 4, colour) + label])?;
    }
    for point in points {
        let text = format!("{}  {} ({:.0} GFLOP/s)", point.number, point.name, point.rate);
        legend.draw(&Text::new(text, (4, 24 + 18 * point.number as i32), ("sans-serif", 12)))?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roof_is_the_lower_ceiling() {
        let ceiling = Ceiling { flops: 100e9, bandwidth: 10e9 };
        assert_eq!((roof(ceiling, 1.0), roof(ceiling, 10.0), roof(ceiling, 1000.0)), (10.0, 100.0, 100.0));
    }

    #[test]
    fn operations_that_multiply_are_drawn_and_named() {
        let row = |operation: &str, flops| Row {
            operation: operation.to_string(),
            calls: 1.0,
            seconds: 1.0,
            share_of_step: 0.5,
            flops,
            bytes: 1e9,
            share_of_ceiling: None,
            bound: "compute",
        };
        let rows = [row("a product", 50e9), row("a norm", 0.0)];
        let picture = svg(&rows, Ceiling { flops: 100e9, bandwidth: 10e9 }).expect("a picture");
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
        assert!(picture.contains("a product (50 GFLOP/s)") && !picture.contains("a norm"));
        assert_eq!(picture.matches("<circle").count(), 1);
    }
}
