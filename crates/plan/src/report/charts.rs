//! Pieces of the page: stacked bars in HTML, which keep their text at any width, and small
//! column charts in SVG.

use super::svg::escape;
use std::fmt::Write;

/// One part of a stacked bar: name, share of the full width from 0 to 1, colour.
pub(crate) type Part = (&'static str, f64, &'static str);

/// A bar with its label before and its value behind, and a mark at `limit` of the width.
pub(crate) fn stacked_bar(label: &str, value: &str, parts: &[Part], limit: Option<f64>) -> String {
    let mut bar = format!("<div class=\"bar\"><span class=\"label\">{}</span><span class=\"track\">", escape(label));
    for (name, share, colour) in parts.iter().filter(|(_, share, _)| *share > 0.0005) {
        let width = 100.0 * share;
        let _ = write!(bar, "<i style=\"width:{width:.2}%;background:{colour}\" title=\"{name}\"></i>");
    }
    if let Some(limit) = limit {
        let _ = write!(bar, "<b style=\"left:{:.2}%\"></b>", 100.0 * limit);
    }
    let _ = writeln!(bar, "</span><span class=\"value\">{}</span></div>", escape(value));
    bar
}

/// Colour squares with their names.
pub(crate) fn legend(entries: &[(&str, &str)]) -> String {
    let entry =
        |(name, colour): &(&str, &str)| format!("<span><i style=\"background:{colour}\"></i>{}</span>", escape(name));
    format!("<p class=\"legend\">{}</p>\n", entries.iter().map(entry).collect::<String>())
}

/// Columns over categories with their values on top; the smallest stands out.
pub(crate) fn column_chart(title: &str, unit: &str, columns: &[(String, f64)]) -> String {
    let highest = columns.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let lowest = columns.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let step = 304.0 / columns.len().max(1) as f64;
    let mut svg = format!(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 320 170\" role=\"img\" aria-label=\"{}\">\n",
        escape(title),
        escape(title)
    );
    for (place, (label, value)) in columns.iter().enumerate() {
        let tall = 115.0 * value / highest;
        let x = 8.0 + step * place as f64;
        let (middle, top) = (x + step / 2.0, 140.0 - tall);
        let class = if *value == lowest { "best" } else { "column" };
        let wide = (step - 4.0).clamp(2.0, 48.0);
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\"/>\
             <text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{middle:.1}\" y=\"154\" text-anchor=\"middle\">{}</text>",
            middle - wide / 2.0,
            top - 4.0,
            short(*value),
            escape(label)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"312\" y=\"168\" text-anchor=\"end\" class=\"unit\">{}</text></svg></figure>",
        escape(unit)
    );
    svg
}

fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
