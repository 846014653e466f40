//! `henge simulate`: one layout's time, rate, bubble and memory; the papers' rows and figures.

use crate::failure::{Failure, print, print_json};
use crate::planning::{self, Subject, SwitchArgs};
use henge_plan::published::{self, Family};
use henge_plan::report::{
    Window, artifact_text, chrome_trace, figure_svg, figure_text, gantt, prediction_text, timeline_svg, validation_text,
};
use henge_plan::simulate::Span;
use henge_plan::{Cluster, Jitter, Prediction, Workload, observe, parse_layout, shortfall};
use henge_spec::{Layout, Recompute, ScheduleKind};
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Preset, run file, or shape (layers=32,hidden=3840,heads=32,seq_len=2048,vocab_size=51200)
    #[arg(long)]
    model: Option<String>,
    /// Catalogue name or cluster file
    #[arg(long, default_value = "dgx-a100")]
    cluster: String,
    /// As t=8,p=12,d=1,v=4,b=1; what is left out is 1 [default: the run file's]
    #[arg(long)]
    layout: Option<String>,
    /// Sequences of a step [default: the run file's, or one microbatch for each pipeline rank]
    #[arg(long)]
    batch: Option<usize>,
    /// Sequence length in place of the model's
    #[arg(long)]
    seq: Option<usize>,
    /// gpipe, 1f1b or interleaved [default: 1f1b, interleaved where v > 1]
    #[arg(long)]
    schedule: Option<String>,
    /// none, selective, full, or layers between kept inputs [default: the run file's, or full]
    #[arg(long)]
    recompute: Option<String>,
    #[command(flatten)]
    switches: SwitchArgs,
    /// Write the step in Chrome's trace format
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the step's timeline, or the figure, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw the step as text, this many characters wide
    #[arg(long, value_name = "WIDTH", num_args = 0..=1, default_missing_value = "100")]
    gantt: Option<usize>,
    /// Standard deviation of every operation's time over its mean
    #[arg(long, default_value_t = 0.0)]
    jitter: f64,
    /// Seed of the jitter
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compare with every published row
    #[arg(long)]
    validate: bool,
    /// Compare with the rows of one paper, as 1909.08053
    #[arg(long, value_name = "ARXIV")]
    paper: Option<String>,
    /// Draw a figure of 2104.04473, published and predicted
    #[arg(long, value_name = "NUMBER", conflicts_with = "table")]
    figure: Option<u32>,
    /// Print a table of 2104.04473, published and predicted
    #[arg(long, value_name = "NUMBER")]
    table: Option<u32>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    if args.validate || args.paper.is_some() {
        return validate(&args);
    }
    if args.figure.is_some() || args.table.is_some() {
        return figure(&args);
    }
    step(&args)
}

fn step(args: &Args) -> Result<(), Failure> {
    let Some(model) = &args.model else {
        return Err(Failure::request(
            "--model is missing; or ask for --validate, --paper 1909.08053, --figure 11 or --table 1",
        ));
    };
    let subject = planning::subject(model, args.seq)?;
    let cluster = planning::cluster(&args.cluster)?;
    let work = workload(args, &subject, &cluster)?;
    let jitter = Jitter { seed: args.seed, deviation: checked_jitter(args.jitter)? };
    let mut spans: Vec<Span> = Vec::new();
    let prediction = observe(&work, &jitter, &mut spans)?;
    let short = shortfall(&work, &prediction);
    draw(args, &work, &prediction, &spans)?;
    if args.json {
        return print_json(&document(&subject, &work, &prediction, short));
    }
    let mut text = prediction_text(&work, &prediction) + "\n" + &planning::switches_line(&work.switches);
    if let Some(width) = args.gantt {
        let width = width.clamp(20, 1000);
        text += &gantt(&spans, work.layout.pipeline, prediction.seconds, width);
    }
    if let Some(words) = short {
        text += &format!("does not fit: {words}\n");
    }
    print(&text)
}

fn checked_jitter(deviation: f64) -> Result<f64, Failure> {
    if (0.0..=1.0).contains(&deviation) {
        return Ok(deviation);
    }
    Err(Failure::request(format!("--jitter {deviation}: a share from 0 to 1, as 0.02")))
}

fn workload<'a>(args: &Args, subject: &'a Subject, cluster: &'a Cluster) -> Result<Workload<'a>, Failure> {
    let run = subject.run.as_ref();
    let (mut layout, microbatch) = match (&args.layout, run) {
        (Some(text), _) => parse_layout(text)?,
        (None, Some(run)) => (run.layout, run.microbatch),
        (None, None) => return Err(Failure::request("--layout is missing; write it as t=8,p=12,d=1,v=4,b=1")),
    };
    if let Some(schedule) = &args.schedule {
        layout.schedule = schedule.parse::<ScheduleKind>().map_err(Failure::request)?;
    }
    layout.recompute = match (&args.recompute, run) {
        (Some(text), _) => planning::recompute(text)?,
        (None, Some(run)) => run.layout.recompute,
        (None, None) => Recompute::FULL,
    };
    let Layout { pipeline, data, .. } = layout;
    let least = pipeline.saturating_mul(data).saturating_mul(microbatch);
    let batch = args.batch.or(run.map(|run| run.batch)).unwrap_or(least);
    let switches = args.switches.resolve(run.map(|run| run.precision))?;
    let work = Workload { cluster, model: &subject.model, layout, microbatch, batch, switches };
    work.check()?;
    Ok(work)
}

fn draw(args: &Args, work: &Workload, prediction: &Prediction, spans: &[Span]) -> Result<(), Failure> {
    if let Some(path) = &args.trace {
        planning::write(path, &chrome_trace(spans, work.layout.pipeline).to_string())?;
    }
    if let Some(path) = &args.svg {
        let whole = Window { start: 0.0, end: prediction.seconds };
        planning::write(path, &timeline_svg(spans, work.layout.pipeline, whole))?;
    }
    Ok(())
}

fn document(subject: &Subject, work: &Workload, prediction: &Prediction, short: Option<String>) -> Value {
    let whole = |bytes: f64| bytes.round() as u64;
    let totals: Vec<u64> = prediction.memory.iter().map(|memory| whole(memory.total())).collect();
    let parts: Vec<Value> = prediction
        .memory
        .iter()
        .map(|memory| {
            json!({
                "weights": whole(memory.weights), "gradients": whole(memory.gradients),
                "optimizer": whole(memory.optimizer), "activations": whole(memory.activations),
                "buffers": whole(memory.buffers), "in_flight": memory.in_flight,
            })
        })
        .collect();
    let breakdown: serde_json::Map<String, Value> = prediction
        .breakdown
        .named()
        .into_iter()
        .map(|(name, seconds)| (name.replace([' ', '-'], "_"), json!(seconds)))
        .collect();
    json!({
        "model": subject.name,
        "cluster": work.cluster.name,
        "layout": work.words(),
        "gpus": work.layout.ranks(),
        "batch": work.batch,
        "microbatches": work.microbatches(),
        "schedule": work.layout.schedule.to_string(),
        "iteration_seconds": prediction.seconds,
        "tokens_per_second": (work.batch * work.model.seq_len) as f64 / prediction.seconds,
        "model_tflops_per_gpu": prediction.model_rate / 1e12,
        "hardware_tflops_per_gpu": prediction.hardware_rate / 1e12,
        "bubble_fraction": prediction.bubble_fraction,
        "bubble_share": prediction.bubble_share,
        "breakdown_seconds": breakdown,
        "memory_bytes": totals,
        "memory_parts": parts,
        "memory_capacity_bytes": whole(work.cluster.capacity()),
        "fits": short.is_none(),
        "shortfall": short,
        "switches": planning::switches_line(&work.switches).trim(),
    })
}

fn validate(args: &Args) -> Result<(), Failure> {
    let mut families = published::validate()?;
    if let Some(paper) = &args.paper {
        families.retain(|family| family.series.source.contains(paper.as_str()));
        if families.is_empty() {
            return Err(Failure::request(format!(
                "--paper {paper}: no rows of it; there are 1909.08053, 2104.04473, 2205.05198, 2201.11990, 2407.21783"
            )));
        }
    }
    let bubbles = if args.paper.is_none() { published::bubble_rows() } else { Vec::new() };
    if args.json {
        return print_json(&validation_document(&families, &bubbles));
    }
    let mut names: Vec<&str> = families.iter().map(|family| family.series.cluster.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let clusters = names.into_iter().map(Cluster::named).collect::<Result<Vec<_>, _>>()?;
    print(&validation_text(&families, &bubbles, &clusters))
}

fn validation_document(families: &[Family], bubbles: &[published::BubbleRow]) -> Value {
    let row = |row: &published::Judged| {
        json!({
            "label": row.label, "published": row.published, "predicted": row.predicted, "error": row.error,
            "counted": row.counted, "range": row.range.map(|(low, high)| [low, high]),
            "need_bytes": row.memory.map(|(need, _)| need), "capacity_bytes": row.memory.map(|(_, capacity)| capacity),
        })
    };
    let family = |family: &Family| {
        let (median, worst) = family.median_and_worst().unzip();
        json!({
            "family": family.series.family, "title": family.series.title, "source": family.series.source,
            "fitted": family.series.fitted, "median": median, "worst": worst,
            "rows": family.rows.iter().map(row).collect::<Vec<_>>(),
        })
    };
    let bubble = |row: &published::BubbleRow| {
        json!({
            "label": row.label, "schedule": row.schedule, "published": row.published, "simulated": row.simulated,
            "time_error": row.time_error(),
        })
    };
    let all = published::summary(families);
    json!({
        "summary": {"rows": all.rows, "median": all.median, "within_tenth": all.within_tenth, "worst": all.worst},
        "families": families.iter().map(family).collect::<Vec<_>>(),
        "given_times": bubbles.iter().map(bubble).collect::<Vec<_>>(),
    })
}

fn figure(args: &Args) -> Result<(), Failure> {
    let figure = match (args.figure, args.table) {
        (Some(number), _) => published::figure(number)?,
        (None, number) => published::table(number.unwrap_or_default())?,
    };
    if let Some(path) = &args.svg {
        planning::write(path, &figure_svg(&figure))?;
    }
    let artifact = if args.table == Some(1) { published::artifact_rows()? } else { Vec::new() };
    if !args.json {
        let search = if artifact.is_empty() { String::new() } else { artifact_text(&artifact) };
        return print(&(figure_text(&figure) + &search));
    }
    let point = |(label, published, predicted): &(String, f64, f64)| json!({"label": label, "published": published, "predicted": predicted});
    let series = |series: &published::FigureSeries| json!({"name": series.name, "points": series.points.iter().map(point).collect::<Vec<_>>()});
    let row = |row: &published::ArtifactRow| {
        json!({
            "label": row.label, "layout": row.layout, "seconds": row.paper.seconds, "best_layout": row.best_layout,
            "best_seconds": row.best.seconds, "modern_layout": row.modern_layout, "modern_seconds": row.modern_seconds,
        })
    };
    print_json(&json!({
        "title": figure.title, "note": figure.note, "series": figure.series.iter().map(series).collect::<Vec<_>>(),
        "search": artifact.iter().map(row).collect::<Vec<_>>(),
    }))
}
