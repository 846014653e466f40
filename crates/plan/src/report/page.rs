//! The report: one page, self-contained, for a screen, a phone and paper.

use super::charts::{Part, column_chart, legend, stacked_bar};
use super::svg::{CELLS, FINE, KINDS, Window, escape, timeline_svg};
use super::text::recompute_name;
use crate::explain::Neighbour;
use crate::fit::gib;
use crate::predict::Breakdown;
use crate::search::{Candidate, Ranked, Ranking, Request};
use crate::simulate::Span;
use henge_schedule::Op;
use std::fmt::Write;

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The model's name, as the user gave it.
    pub model: &'a str,
    /// The question.
    pub request: &'a Request<'a>,
    /// The answer.
    pub ranking: &'a Ranking,
    /// The best layout's neighbours.
    pub neighbours: &'a [Neighbour],
    /// Every legal layout by closed form, for the sensitivity plots.
    pub candidates: &'a [Candidate],
    /// The best layout's step.
    pub spans: &'a [Span],
    /// Step time with faster or slower network cards: factor and seconds.
    pub network: &'a [(f64, f64)],
    /// Sentences on cost, tokens and days; may be empty.
    pub answers: &'a [String],
}

const TIME: [(&str, &str); 8] = [
    ("products and attention", "#0072b2"),
    ("element-wise", "#56b4e9"),
    ("recomputation", "#f0e442"),
    ("tensor parallel all-reduces", "#d55e00"),
    ("messages between stages", "#999999"),
    ("pipeline bubble", "#dddddd"),
    ("data parallel reduction", "#cc79a7"),
    ("optimizer", "#009e73"),
];

const MEMORY: [(&str, &str); 5] = [
    ("weights", "#0072b2"),
    ("gradients", "#56b4e9"),
    ("optimizer", "#009e73"),
    ("activations", "#e69f00"),
    ("buffers", "#999999"),
];

const STYLE: &str = include_str!("page.css");

/// The page as HTML.
pub fn page(page: &Page) -> String {
    let title = format!(
        "{} on {} x {}, batch {}",
        page.model, page.request.gpus, page.request.cluster.device.name, page.request.batch
    );
    let body = [
        tiles(page),
        section("Ranking", &ranking(page)),
        section("Why the first", &reasons(page)),
        section("Where the time goes", &time(page)),
        section("Memory per GPU of each pipeline rank", &memory(page)),
        section("One step", &timeline(page)),
        section("Sensitivity", &sensitivity(page)),
        footer(page),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{0}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n<h1>{0}</h1>\n{1}</main></body></html>\n",
        escape(&title),
        body.concat()
    )
}

fn section(title: &str, body: &str) -> String {
    format!("<section><h2>{title}</h2>\n{body}</section>\n")
}

fn best<'a>(page: &Page<'a>) -> &'a Ranked {
    &page.ranking.best[0]
}

fn tiles(page: &Page) -> String {
    let Ranked { candidate, prediction } = best(page);
    let work = page.request.workload(candidate);
    let peak = page.request.cluster.peak(candidate.switches.precision);
    let tokens = (page.request.batch * page.request.model.seq_len) as f64;
    let (stage, need) = prediction.fullest();
    let tiles = [
        ("best layout", work.words().replace(',', " ")),
        ("step", format!("{:.3} s", prediction.seconds)),
        ("tokens per second", format!("{:.0}", tokens / prediction.seconds)),
        (
            "model FLOP/s per GPU",
            format!("{:.0} T ({:.0}% of peak)", prediction.model_rate / 1e12, 100.0 * prediction.model_rate / peak),
        ),
        ("pipeline bubble", format!("{:.1}% of the step", 100.0 * prediction.bubble_share)),
        ("fullest GPU", format!("{} of {}, rank {stage}", gib(need), gib(page.request.cluster.capacity()))),
    ];
    let tile =
        |(name, value): &(&str, String)| format!("<div><span>{name}</span><strong>{}</strong></div>", escape(value));
    let answers: String = page.answers.iter().map(|answer| format!("<p>{}</p>\n", escape(answer))).collect();
    format!("<div class=\"tiles\">{}</div>\n{answers}", tiles.iter().map(tile).collect::<String>())
}

fn ranking(page: &Page) -> String {
    let mut table = format!(
        "<p>{} legal layouts, {} fit; the best {} by closed form were simulated.</p>\n\
         <table><thead><tr><th>layout</th><th class=\"wide\">schedule</th><th>recompute</th><th>step s</th>\
         <th>TFLOP/s</th><th class=\"wide\">bubble</th><th>memory</th></tr></thead><tbody>\n",
        page.ranking.legal,
        page.ranking.fitting,
        page.ranking.best.len()
    );
    for ranked in page.ranking.best.iter().take(12) {
        let (candidate, prediction) = (&ranked.candidate, &ranked.prediction);
        let _ = writeln!(
            table,
            "<tr><td>{}</td><td class=\"wide\">{}</td><td>{}</td><td>{:.3}</td><td>{:.0}</td>\
             <td class=\"wide\">{:.1}%</td><td>{}</td></tr>",
            page.request.workload(candidate).words().replace(',', " "),
            candidate.layout.schedule,
            recompute_name(candidate.layout.recompute),
            prediction.seconds,
            prediction.model_rate / 1e12,
            100.0 * prediction.bubble_fraction,
            gib(prediction.fullest().1)
        );
    }
    table + "</tbody></table>\n"
}

fn reasons(page: &Page) -> String {
    let mut list = String::from("<p>One step away from it on one axis:</p>\n<ul class=\"reasons\">\n");
    for neighbour in page.neighbours {
        let verdict = match neighbour.slowdown {
            Some(factor) => format!("{:+.1}% time", 100.0 * (factor - 1.0)),
            None => "impossible".to_string(),
        };
        let _ = writeln!(
            list,
            "<li><strong>{}</strong> <em>{verdict}</em> {}</li>",
            escape(&neighbour.change),
            escape(&neighbour.because)
        );
    }
    list + "</ul>\n"
}

fn time(page: &Page) -> String {
    let longest = page.ranking.best.iter().take(8).map(|ranked| ranked.prediction.seconds).fold(0.0, f64::max);
    let mut html = legend(&TIME);
    for ranked in page.ranking.best.iter().take(8) {
        let label = page.request.workload(&ranked.candidate).words();
        let parts = time_parts(&ranked.prediction.breakdown, longest);
        html += &stacked_bar(&label, &format!("{:.3} s", ranked.prediction.seconds), &parts, None);
    }
    html
}

fn time_parts(breakdown: &Breakdown, longest: f64) -> Vec<Part> {
    let named = breakdown.named().into_iter().zip(TIME);
    named.map(|((name, seconds), (_, colour))| (name, seconds / longest, colour)).collect()
}

fn memory(page: &Page) -> String {
    let prediction = &best(page).prediction;
    let capacity = page.request.cluster.capacity();
    let (fullest, need) = prediction.fullest();
    let full = need.max(capacity) * 1.02;
    let mut html = legend(&MEMORY);
    let last = prediction.memory.len() - 1;
    for (rank, memory) in prediction.memory.iter().enumerate() {
        // Inner ranks of a long pipeline differ only in what is in flight.
        if last > 23 && rank != fullest && rank != last && rank % last.div_ceil(16) != 0 {
            continue;
        }
        let bytes = [memory.weights, memory.gradients, memory.optimizer, memory.activations, memory.buffers];
        let parts: Vec<Part> =
            bytes.iter().zip(MEMORY).map(|(bytes, (name, colour))| (name, bytes / full, colour)).collect();
        let label = match (rank == fullest, memory.peak.1) {
            (true, _) => format!("rank {rank} decides"),
            (false, Op::Step) => format!("rank {rank} in the step"),
            _ => format!("rank {rank}"),
        };
        html += &stacked_bar(&label, &gib(memory.total()), &parts, Some(capacity / full));
    }
    let _ = writeln!(
        html,
        "<p>Each bar is a rank's fullest moment; in the optimizer's step there are no activations. The line marks {}: \
         {} of the device less {} kept back for driver, communication and fragments.</p>",
        gib(capacity),
        gib(page.request.cluster.device.memory),
        gib(page.request.cluster.device.reserved)
    );
    html
}

fn timeline(page: &Page) -> String {
    let Ranked { candidate, prediction } = best(page);
    let ranks = candidate.layout.pipeline;
    let whole = Window { start: 0.0, end: prediction.seconds };
    // The beginning shows the fill and single operations: no more of it than leaves them visible.
    let share = (3.0 * ranks as f64 / page.request.workload(candidate).microbatches() as f64).min(0.5);
    let shortest = prediction.cost.forward.iter().map(|parts| parts.total()).fold(f64::INFINITY, f64::min);
    let visible = shortest * (CELLS / (FINE + 1)) as f64;
    let begin = Window { start: 0.0, end: visible.min(share * prediction.seconds) };
    let mut html = legend(&KINDS);
    let _ = write!(
        html,
        "<p>{ranks} pipeline ranks from top to bottom, {:.3} s from left to right; white is idle.</p>\n\
         <div class=\"timeline\">{}</div>\n",
        prediction.seconds,
        timeline_svg(page.spans, ranks, whole)
    );
    if ranks > 1 {
        let _ = write!(
            html,
            "<p>Its first {:.3} s:</p>\n<div class=\"timeline\">{}</div>\n",
            begin.end,
            timeline_svg(page.spans, ranks, begin)
        );
    }
    html
}

/// An axis of the search: its name, and a candidate's place on it.
type Axis = (&'static str, fn(&Candidate) -> usize);

const AXES: [Axis; 5] = [
    ("tensor parallel size t", |candidate| candidate.layout.tensor),
    ("pipeline size p", |candidate| candidate.layout.pipeline),
    ("data parallel size d", |candidate| candidate.layout.data),
    ("chunks per rank v", |candidate| candidate.layout.chunks),
    ("microbatch b", |candidate| candidate.microbatch),
];

fn sensitivity(page: &Page) -> String {
    let mut html = String::from(
        "<p>Seconds of the best step that fits with one axis held, all others free (closed form).</p>\n<div class=\"charts\">\n",
    );
    for (name, place) in AXES {
        html += &column_chart(name, "seconds a step", &best_by(page, place));
    }
    let network: Vec<(String, f64)> =
        page.network.iter().map(|(factor, seconds)| (format!("{factor}x"), *seconds)).collect();
    if !network.is_empty() {
        html += &column_chart("speed of the network cards", "seconds a step", &network);
    }
    html + "</div>\n"
}

/// Best time of the fitting candidates at each place of an axis, at most nine places.
fn best_by(page: &Page, place: fn(&Candidate) -> usize) -> Vec<(String, f64)> {
    let capacity = page.request.cluster.capacity();
    let mut places = std::collections::BTreeMap::new();
    for candidate in page.candidates.iter().filter(|candidate| candidate.estimate.memory <= capacity) {
        let seconds = places.entry(place(candidate)).or_insert(f64::INFINITY);
        *seconds = candidate.estimate.seconds.min(*seconds);
    }
    let mut fastest: Vec<(usize, f64)> = places.into_iter().collect();
    fastest.sort_by(|a, b| a.1.total_cmp(&b.1));
    fastest.truncate(9);
    fastest.sort_by_key(|(place, _)| *place);
    fastest.into_iter().map(|(place, seconds)| (place.to_string(), seconds)).collect()
}

fn footer(page: &Page) -> String {
    let switches = best(page).candidate.switches;
    let constants = &page.request.cluster.constants;
    format!(
        "<footer><p>Cluster: {}. Precision {}, sharding {}, overlap {}, scatter/gather {}. Cost model constants: {}.</p>\
         <p>Made by henge plan.</p></footer>\n",
        escape(&page.request.cluster.describes),
        switches.precision,
        switches.sharding,
        switches.overlap,
        switches.scatter_gather,
        escape(&constants.fitted_on)
    )
}
