//! Drawings that stand alone: a step's timeline, a paper's figure.

use crate::published::Figure;
use crate::simulate::Span;
use henge_schedule::Op;
use std::fmt::Write;

/// Kinds of time in a timeline: name and colour, safe for colour-blind readers (Okabe-Ito).
pub(crate) const KINDS: [(&str, &str); 6] = [
    ("forward", "#0072b2"),
    ("backward", "#e69f00"),
    ("message", "#999999"),
    ("reduction", "#cc79a7"),
    ("optimizer", "#009e73"),
    ("forwards and backwards too fine to tell apart", "#a39a6b"),
];

/// Places in [`KINDS`].
const FORWARD: usize = 0;
const BACKWARD: usize = 1;
const BOTH: usize = 5;

fn kind(op: &Op) -> Option<usize> {
    match op {
        Op::Forward { .. } => Some(FORWARD),
        Op::Backward { .. } => Some(BACKWARD),
        Op::Send { .. } => Some(2),
        Op::ReduceGradients { .. } | Op::SyncEmbedding => Some(3),
        Op::Step => Some(4),
        Op::PostRecv { .. } | Op::WaitRecv { .. } | Op::WaitSend { .. } => None,
    }
}

/// Where a timeline begins and ends, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// First moment drawn.
    pub start: f64,
    /// Last moment drawn.
    pub end: f64,
}

/// Cells a row is cut into: runs of one kind become one rectangle, so that a step of any
/// size makes a drawing of bounded size.
pub(crate) const CELLS: usize = 900;

/// The timeline of a step, one row a rank, gaps idle.
pub fn timeline_svg(spans: &[Span], ranks: usize, window: Window) -> String {
    let row = (220 / ranks.max(1)).clamp(3, 16);
    let height = ranks * row;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {CELLS} {height}\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"timeline of {ranks} ranks\">\n"
    );
    let mut rows: Vec<Vec<Option<usize>>> = vec![vec![None; CELLS]; ranks];
    for span in spans {
        paint(span, window, &mut rows[span.rank]);
    }
    let fine = finest(spans, window) < FINE as f64;
    let mut shapes = vec![String::new(); KINDS.len()];
    for (rank, cells) in rows.iter_mut().enumerate() {
        if fine {
            blend(cells);
        }
        let (y, tall) = (rank * row, row - usize::from(row > 4));
        for (from, width, kind) in runs(cells) {
            if let Some(kind) = kind {
                let _ = write!(shapes[kind], "M{from} {y}h{width}v{tall}h-{width}z");
            }
        }
    }
    for ((_, colour), shape) in KINDS.iter().zip(shapes).filter(|(_, shape)| !shape.is_empty()) {
        let _ = writeln!(svg, "<path fill=\"{colour}\" d=\"{shape}\"/>");
    }
    svg + "</svg>\n"
}

/// A stretch of equal cells: where it begins, how wide it is, and of which kind.
type Stretch = (usize, usize, Option<usize>);

fn runs(cells: &[Option<usize>]) -> Vec<Stretch> {
    let mut from = 0;
    let stretch = |same: &[Option<usize>]| {
        let found = (from, same.len(), same[0]);
        from += same.len();
        found
    };
    cells.chunk_by(|a, b| a == b).map(stretch).collect()
}

/// Fewest cells that an eye can follow.
pub(crate) const FINE: usize = 4;

/// Where forwards and backwards take turns, one colour says so; drawn apart they would make
/// a pattern that the step does not have. Filling and draining are left as they are.
fn blend(cells: &mut [Option<usize>]) {
    let runs = runs(cells);
    for group in runs.chunk_by(|a, b| a.1 < 4 * FINE && b.1 < 4 * FINE) {
        let begin = group.iter().position(|run| run.2 == Some(BACKWARD));
        let end = group.iter().rposition(|run| run.2 == Some(FORWARD));
        if let (Some(begin), Some(end)) = (begin, end)
            && begin < end
        {
            let (first, last) = (group[begin.saturating_sub(1)], group[(end + 1).min(group.len() - 1)]);
            cells[first.0..last.0 + last.1].fill(Some(BOTH));
        }
    }
}

/// Cells of the shortest forward.
fn finest(spans: &[Span], window: Window) -> f64 {
    let forwards = spans.iter().filter(|span| matches!(span.op, Op::Forward { .. }));
    let shortest = forwards.map(|span| span.end - span.start).fold(f64::INFINITY, f64::min);
    shortest / (window.end - window.start) * CELLS as f64
}

/// Marks the cells of a span, but for a hair at its end where there is room, so that
/// neighbours of one kind stay apart.
fn paint(span: &Span, window: Window, cells: &mut [Option<usize>]) {
    let cell =
        |time: f64| ((time - window.start) / (window.end - window.start) * CELLS as f64).clamp(0.0, CELLS as f64);
    let (from, to) = (cell(span.start) as usize, cell(span.end) as usize);
    let Some(kind) = kind(&span.op) else { return };
    // Work that is finer than a cell still shows, and keeps its cell from what comes next.
    let least = if kind <= BACKWARD { (from + 1).min(CELLS) } else { from };
    let to = if to > from + 6 { to - 1 } else { to.max(least) };
    let shared = to > from + 1 && cells[from].is_some();
    cells[from + usize::from(shared)..to].fill(Some(kind));
}

/// A figure as pairs of bars, published and predicted, one group a point.
pub fn figure_svg(figure: &Figure) -> String {
    let points: usize = figure.series.iter().map(|series| series.points.len()).sum();
    let lines = points + 2 * figure.series.len();
    let height = 22 * lines + 40;
    let values = figure.series.iter().flat_map(|series| &series.points).map(|point| point.1.max(point.2));
    let scale = 380.0 / values.fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"640\" height=\"{height}\" fill=\"#ffffff\"/>\n<text x=\"8\" y=\"16\" font-size=\"12\">{}</text>\n\
         <text x=\"8\" y=\"32\"><tspan fill=\"#999999\">published</tspan> and <tspan fill=\"#0072b2\">predicted</tspan></text>\n",
        escape(&figure.title)
    );
    let mut y = 42;
    for series in &figure.series {
        y += 22;
        let _ = writeln!(svg, "<text x=\"8\" y=\"{y}\" font-weight=\"bold\">{}</text>", escape(&series.name));
        y += 6;
        for (label, published, predicted) in &series.points {
            svg += &pair(label, *published, *predicted, scale, y);
            y += 22;
        }
    }
    svg + "</svg>\n"
}

fn pair(label: &str, published: f64, predicted: f64, scale: f64, y: usize) -> String {
    let (wide, narrow) = (published * scale, predicted * scale);
    let (text, below) = (y + 13, y + 9);
    let end = 158.0 + wide.max(narrow);
    format!(
        "<text x=\"8\" y=\"{text}\">{}</text>\
         <rect x=\"150\" y=\"{y}\" width=\"{wide:.1}\" height=\"8\" fill=\"#999999\"/>\
         <rect x=\"150\" y=\"{below}\" width=\"{narrow:.1}\" height=\"8\" fill=\"#0072b2\"/>\
         <text x=\"{end:.1}\" y=\"{text}\">{published:.2} | {predicted:.2}</text>\n",
        escape(label)
    )
}

/// Text safe between tags and in attributes.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
