//! Predictions, rankings, figures and validations for a terminal.

use crate::explain::Neighbour;
use crate::fit::gib;
use crate::predict::Prediction;
use crate::published::{ArtifactRow, BubbleRow, Family, Figure, Judged, summary};
use crate::search::{Ranking, Request};
use crate::{Cluster, Constants, Workload};
use henge_spec::Recompute;
use std::fmt::Write;

/// A recomputation mode as `--recompute` takes it.
pub(crate) fn recompute_name(recompute: Recompute) -> String {
    match recompute {
        Recompute::None => "none".to_string(),
        Recompute::Selective => "selective".to_string(),
        Recompute::Every(1) => "full".to_string(),
        Recompute::Every(layers) => format!("every {layers}"),
    }
}

/// One prediction: time, rates, where the time goes, memory of each rank.
pub fn prediction_text(work: &Workload, prediction: &Prediction) -> String {
    let peak = work.cluster.peak(work.switches.precision);
    let mut text = format!(
        "{} on {}, {} GPUs, batch {}, {} microbatches, {} schedule, recompute {}\n",
        work.words(),
        work.cluster.name,
        work.layout.ranks(),
        work.batch,
        work.microbatches(),
        work.layout.schedule,
        recompute_name(work.layout.recompute)
    );
    let tokens = (work.batch * work.model.seq_len) as f64;
    let _ = writeln!(
        text,
        "step {:.3} s, {:.0} tokens/s, {:.1} model TFLOP/s per GPU ({:.1}% of peak), {:.1} with recomputation",
        prediction.seconds,
        tokens / prediction.seconds,
        prediction.model_rate / 1e12,
        100.0 * prediction.model_rate / peak,
        prediction.hardware_rate / 1e12
    );
    let _ = writeln!(
        text,
        "bubble {:.1}% of ideal time, {:.1}% of the step\n",
        100.0 * prediction.bubble_fraction,
        100.0 * prediction.bubble_share
    );
    for (name, seconds) in prediction.breakdown.named() {
        let share = 100.0 * seconds / prediction.seconds;
        let _ = writeln!(text, "  {name:<28} {seconds:>9.3} s {share:>5.1}% {}", bar(share / 2.0));
    }
    text + &memory_text(work, prediction)
}

fn memory_text(work: &Workload, prediction: &Prediction) -> String {
    let (fullest, _) = prediction.fullest();
    let mut text = format!(
        "\nmemory per GPU of each pipeline rank, of {} ({} less {} kept back)\n",
        gib(work.cluster.capacity()),
        gib(work.cluster.device.memory),
        gib(work.cluster.device.reserved)
    );
    let _ = writeln!(text, "  rank   weights gradients optimizer activations buffers     total  in flight  peak at");
    let last = prediction.memory.len() - 1;
    for (rank, memory) in prediction.memory.iter().enumerate() {
        // Inner ranks of a long pipeline differ only in what is in flight.
        if last > 12 && rank > 4 && rank < last - 2 && rank != fullest {
            continue;
        }
        let parts = [memory.weights, memory.gradients, memory.optimizer, memory.activations, memory.buffers];
        let [w, g, o, a, b] = parts.map(|bytes| format!("{:.2}", bytes / f64::from(1 << 30)));
        let mark = if rank == fullest { "  <- decides" } else { "" };
        let total = gib(memory.total());
        let _ = writeln!(
            text,
            "  {rank:<5} {w:>8} {g:>9} {o:>9} {a:>11} {b:>7} {total:>9} {:>10}  {}{mark}",
            memory.in_flight,
            memory.peak_words()
        );
    }
    text
}

fn bar(length: f64) -> String {
    "#".repeat(length.round().clamp(0.0, 60.0) as usize)
}

/// A ranking with the neighbours of its best.
pub fn ranking_text(request: &Request, ranking: &Ranking, neighbours: &[Neighbour]) -> String {
    let mut text = format!(
        "{} legal layouts, {} fit, the best {} simulated\n\n",
        ranking.legal,
        ranking.fitting,
        ranking.best.len()
    );
    let _ = writeln!(
        text,
        "  # {:<28} {:<12} {:<10} {:>9} {:>8} {:>7} {:>9}",
        "layout", "schedule", "recompute", "step s", "TFLOP/s", "bubble", "memory"
    );
    for (place, ranked) in ranking.best.iter().take(10).enumerate() {
        let (candidate, prediction) = (&ranked.candidate, &ranked.prediction);
        let _ = writeln!(
            text,
            " {:>2} {:<28} {:<12} {:<10} {:>9.3} {:>8.1} {:>6.1}% {:>9}",
            place + 1,
            request.workload(candidate).words(),
            candidate.layout.schedule.to_string(),
            recompute_name(candidate.layout.recompute),
            prediction.seconds,
            prediction.model_rate / 1e12,
            100.0 * prediction.bubble_fraction,
            gib(prediction.fullest().1)
        );
    }
    text += "\nwhy the first: its neighbours\n";
    for neighbour in neighbours {
        let verdict = match neighbour.slowdown {
            Some(factor) if factor >= 1.0005 => format!("{:.1}% slower", 100.0 * (factor - 1.0)),
            Some(factor) if factor <= 0.9995 => format!("{:.1}% faster", 100.0 * (1.0 - factor)),
            Some(_) => "as fast".to_string(),
            None => "impossible".to_string(),
        };
        let _ = writeln!(text, "  {:<20} {verdict:<13} {}", neighbour.change, neighbour.because);
    }
    text
}

/// A figure: published and predicted side by side, each with a bar.
pub fn figure_text(figure: &Figure) -> String {
    let values = figure.series.iter().flat_map(|series| &series.points).map(|point| point.1.max(point.2));
    let scale = 40.0 / values.fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!("{}\n", figure.title);
    if !figure.note.is_empty() {
        let _ = writeln!(text, "({})", figure.note);
    }
    for series in &figure.series {
        if !series.name.is_empty() {
            let _ = writeln!(text, "\n{}", series.name);
        }
        for (label, published, predicted) in &series.points {
            let error = if *published == 0.0 { 0.0 } else { 100.0 * (predicted / published - 1.0) };
            let _ = writeln!(
                text,
                "  {label:<14} published {published:>8.2} |{}",
                "=".repeat((published * scale) as usize)
            );
            let _ = writeln!(
                text,
                "  {:<14} predicted {predicted:>8.2} |{} {error:+.1}%",
                "",
                "#".repeat((predicted * scale) as usize)
            );
        }
    }
    text
}

/// The whole validation: constants, every row, errors by family and in all.
pub fn validation_text(families: &[Family], bubbles: &[BubbleRow], clusters: &[Cluster]) -> String {
    let mut text = String::from("constants of the cost model, one set a kind of device\n");
    for cluster in clusters {
        text += &constants_text(&cluster.name, &cluster.device.name, &cluster.constants);
    }
    for family in families {
        text += &family_text(family);
    }
    text += "\ngiven operation times (2401.10241): bubble over step, and error of the step time\n";
    for row in bubbles {
        let error = 100.0 * row.time_error();
        let _ = writeln!(
            text,
            "  {:<20} {:<12} published {:.4} simulated {:.4} {error:>+7.3}%",
            row.label, row.schedule, row.published, row.simulated
        );
    }
    text + &summary_text(families)
}

fn constants_text(cluster: &str, device: &str, constants: &Constants) -> String {
    format!(
        "  {cluster} ({device}): matrix efficiency {}, fill {}, wave tail {}, memory efficiency {}, launch {:.1} us, thin head {}, \
         link efficiency {}, link latency {:.1} us, card efficiency {}, message efficiency {}, network latency {:.0} us, message latency {:.0} us\n    \
         fitted on: {}\n",
        constants.matrix_efficiency,
        constants.matrix_fill,
        constants.wave_tail,
        constants.memory_efficiency,
        1e6 * constants.launch,
        constants.thin_head,
        constants.link_efficiency,
        1e6 * constants.link_latency,
        constants.card_efficiency,
        constants.message_efficiency,
        1e6 * constants.network_latency,
        1e6 * constants.message_latency,
        constants.fitted_on
    )
}

fn family_text(family: &Family) -> String {
    let mut text = format!("\n{} ({})\n", family.series.title, family.series.source);
    if !family.series.note.is_empty() {
        let _ = writeln!(text, "  {}", family.series.note);
    }
    for row in &family.rows {
        text += &row_text(row);
    }
    match family.median_and_worst() {
        Some((median, worst)) => {
            let fitted = if family.series.fitted { ", constants were fitted on it" } else { "" };
            let _ = writeln!(text, "  median {:.1}%, worst {:.1}%{fitted}", 100.0 * median, 100.0 * worst);
        }
        None => text += "  not counted\n",
    }
    text
}

fn row_text(row: &Judged) -> String {
    let mut text = format!("  {:<26} published {:>9.2} predicted {:>9.2}", row.label, row.published, row.predicted);
    match row.range {
        Some((low, high)) => {
            let verdict = match (low..=high).contains(&row.published) {
                true => "inside",
                false if row.within_range() => "outside by less than a tenth",
                false => "outside",
            };
            let _ = write!(text, " range {low:.1} to {high:.1}: {verdict}");
        }
        None => {
            let _ = write!(text, " error {:>+6.1}%", 100.0 * row.error);
        }
    }
    if let Some((need, capacity)) = row.memory {
        let verdict = if need <= capacity { "" } else { " UNFIT as assumed" };
        let _ = write!(text, "  memory {} of {}{verdict}", gib(need), gib(capacity));
    }
    text + "\n"
}

fn summary_text(families: &[Family]) -> String {
    let all = summary(families);
    format!(
        "\nall {} counted rows: median {:.1}%, {:.0}% of rows within 10%, worst {:.1}%\n",
        all.rows,
        100.0 * all.median,
        100.0 * all.within_tenth,
        100.0 * all.worst
    )
}

/// Table 1's layouts against the best of a search; both breakdowns where they are apart.
pub fn artifact_text(rows: &[ArtifactRow]) -> String {
    let near = rows.iter().filter(|row| row.ratio() <= 1.05).count();
    let mut text = format!(
        "\nsearch over what the artifact had: the paper's layout is within 5% of the best on {near} of {} rows\n",
        rows.len()
    );
    for row in rows {
        let (ratio, gain) = (100.0 * (row.ratio() - 1.0), row.paper.seconds / row.modern_seconds);
        let _ = writeln!(
            text,
            "  {:<8} paper {:<24} {:>8.2} s, best {:<26} {:>8.2} s ({ratio:+.1}%); everything of today {:<26} {gain:.2}x as fast",
            row.label, row.layout, row.paper.seconds, row.best_layout, row.best.seconds, row.modern_layout
        );
        if row.ratio() <= 1.05 {
            continue;
        }
        for ((name, paper), (_, best)) in row.paper.breakdown.named().into_iter().zip(row.best.breakdown.named()) {
            let _ = writeln!(text, "           {name:<28} {paper:>8.2} s against {best:>8.2} s");
        }
    }
    text
}
