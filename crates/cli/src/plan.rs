//! `henge plan`: which layout, how fast, how much memory, why; and what it costs.

use crate::failure::{Failure, print, print_json};
use crate::planning::{self, Subject, SwitchArgs};
use henge_plan::questions::{Scale, gpus_for, largest_model, training_seconds, with_network};
use henge_plan::report::{Page, page, ranking_text};
use henge_plan::search::{Ranked, Ranking, Request, candidates, search};
use henge_plan::simulate::Span;
use henge_plan::{Cluster, Jitter, Neighbour, PlanError, neighbours, observe};
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// Preset, run file, or shape (layers=32,hidden=3840,heads=32,seq_len=2048,vocab_size=51200)
    #[arg(long)]
    model: String,
    /// Catalogue name or cluster file
    #[arg(long, default_value = "dgx-a100")]
    cluster: String,
    /// GPUs to use; left out with --tokens and --days, which find it
    #[arg(long)]
    gpus: Option<usize>,
    /// Sequences of a step [default: the run file's, or the power of two nearest 2 Mi tokens]
    #[arg(long)]
    batch: Option<usize>,
    /// Sequence length in place of the model's
    #[arg(long)]
    seq: Option<usize>,
    /// Only this recomputation: none, selective or full [default: all three are tried]
    #[arg(long)]
    recompute: Option<String>,
    #[command(flatten)]
    switches: SwitchArgs,
    /// Training tokens, as 300e9: how long and at what cost
    #[arg(long)]
    tokens: Option<f64>,
    /// Days to train them in: how many GPUs
    #[arg(long, requires = "tokens")]
    days: Option<f64>,
    /// Say which is the largest of the papers' models that fits on these GPUs
    #[arg(long)]
    largest: bool,
    /// Write the report, one HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    for (flag, value) in [("--tokens", args.tokens), ("--days", args.days)] {
        if value.is_some_and(|value| !(value.is_finite() && value > 0.0)) {
            return Err(Failure::request(format!("{flag} must be above 0")));
        }
    }
    let subject = planning::subject(&args.model, args.seq)?;
    let cluster = planning::cluster(&args.cluster)?;
    let request = request(&args, &subject, &cluster)?;
    match (args.gpus, args.tokens, args.days) {
        (None, Some(tokens), Some(days)) => find_gpus(&args, &request, tokens, days),
        (None, ..) => Err(Failure::request("--gpus is missing; or give --tokens and --days to find it")),
        (Some(_), ..) => plan(&args, &subject, &request),
    }
}

fn request<'a>(args: &Args, subject: &'a Subject, cluster: &'a Cluster) -> Result<Request<'a>, Failure> {
    let run = subject.run.as_ref();
    let default = ((1usize << 21) / subject.model.seq_len).max(1).next_power_of_two();
    let batch = args.batch.or(run.map(|run| run.batch)).unwrap_or(default);
    let switches = args.switches.resolve(run.map(|run| run.precision))?;
    let gpus = args.gpus.unwrap_or(cluster.node_devices);
    for (flag, value) in [("--gpus", gpus), ("--batch", batch)] {
        if !(1..=1 << 20).contains(&value) {
            return Err(Failure::request(format!("{flag} {value}: choose 1 to {}", 1 << 20)));
        }
    }
    let mut request = Request::new(cluster, &subject.model, gpus, batch, switches);
    if let Some(text) = &args.recompute {
        request.recompute = vec![planning::recompute(text)?];
    }
    Ok(request)
}

fn plan(args: &Args, subject: &Subject, request: &Request) -> Result<(), Failure> {
    let ranking = search(request)?;
    let best = &ranking.best[0];
    let around = neighbours(&request.workload(&best.candidate))?;
    let answers = answers(args, request, best);
    if let Some(path) = &args.report {
        planning::write(path, &html(subject, request, &ranking, &around, &answers)?)?;
    }
    if args.json {
        return print_json(&document(subject, request, &ranking, &around, &answers));
    }
    let mut text =
        format!("{} on {} GPUs of {}, batch {}\n", subject.name, request.gpus, request.cluster.name, request.batch);
    text += &planning::switches_line(&request.switches[0]);
    text += &ranking_text(request, &ranking, &around);
    for answer in &answers {
        text += &format!("\n{answer}");
    }
    print(&(text + "\n"))
}

/// Sentences on time, cost, the largest model and faster networks.
fn answers(args: &Args, request: &Request, best: &Ranked) -> Vec<String> {
    let mut answers = Vec::new();
    if let Some(tokens) = args.tokens {
        let seconds = training_seconds(request.model, request.batch, best.prediction.seconds, tokens);
        answers.push(cost(request, tokens, seconds));
    }
    for (words, cards, links) in
        [("network cards twice as fast", 2.0, 1.0), ("links in the node twice as fast", 1.0, 2.0)]
    {
        if let Ok(seconds) = with_network(request, cards, links) {
            let gain = 100.0 * (1.0 - seconds / best.prediction.seconds);
            answers.push(format!("{words} would save {:.1}% of the step", gain.max(0.0)));
        }
    }
    if args.largest {
        answers.push(match largest_model(request) {
            Some((name, parameters, need)) => {
                format!(
                    "the largest of the papers' GPTs that fits is {name}, {:.1}B parameters, {need} a GPU",
                    parameters / 1e9
                )
            }
            None => "none of the papers' GPTs fits".to_string(),
        });
    }
    answers
}

fn cost(request: &Request, tokens: f64, seconds: f64) -> String {
    let hours = seconds / 3600.0 * request.gpus as f64;
    let dollars = match request.cluster.device.usd_per_hour {
        Some(price) => format!(", {:.0} thousand US dollars at {price} an hour", hours * price / 1e3),
        None => String::new(),
    };
    format!("{:.0} billion tokens take {:.1} days, {hours:.0} GPU hours{dollars}", tokens / 1e9, seconds / 86_400.0)
}

fn html(
    subject: &Subject,
    request: &Request,
    ranking: &Ranking,
    around: &[Neighbour],
    answers: &[String],
) -> Result<String, PlanError> {
    let best = &ranking.best[0];
    let mut spans: Vec<Span> = Vec::new();
    observe(&request.workload(&best.candidate), &Jitter::NONE, &mut spans)?;
    let network: Vec<(f64, f64)> = [0.25, 0.5, 1.0, 2.0, 4.0]
        .into_iter()
        .filter_map(|factor| Some((factor, with_network(request, factor, 1.0).ok()?)))
        .collect();
    let contents = Page {
        model: &subject.name,
        request,
        ranking,
        neighbours: around,
        candidates: &candidates(request),
        spans: &spans,
        network: &network,
        answers,
    };
    Ok(page(&contents))
}

fn document(
    subject: &Subject,
    request: &Request,
    ranking: &Ranking,
    around: &[Neighbour],
    answers: &[String],
) -> Value {
    let layouts: Vec<Value> = ranking.best.iter().map(|ranked| layout(request, ranked)).collect();
    let neighbours: Vec<Value> = around
        .iter()
        .map(|one| json!({"change": one.change, "slowdown": one.slowdown, "because": one.because}))
        .collect();
    json!({
        "model": subject.name, "cluster": request.cluster.name, "gpus": request.gpus, "batch": request.batch,
        "legal": ranking.legal, "fitting": ranking.fitting, "layouts": layouts, "neighbours": neighbours,
        "answers": answers, "switches": planning::switches_line(&request.switches[0]).trim(),
    })
}

fn layout(request: &Request, ranked: &Ranked) -> Value {
    let Ranked { candidate, prediction } = ranked;
    let layout = candidate.layout;
    let memory: Vec<u64> = prediction.memory.iter().map(|memory| memory.total().round() as u64).collect();
    json!({
        "layout": request.workload(candidate).words(),
        "tensor": layout.tensor, "pipeline": layout.pipeline, "data": layout.data, "chunks": layout.chunks,
        "micro_batch": candidate.microbatch, "schedule": layout.schedule.to_string(),
        "recompute": planning::recompute_words(layout.recompute),
        "iteration_seconds": prediction.seconds,
        "model_tflops_per_gpu": prediction.model_rate / 1e12,
        "hardware_tflops_per_gpu": prediction.hardware_rate / 1e12,
        "bubble_fraction": prediction.bubble_fraction, "bubble_share": prediction.bubble_share,
        "memory_bytes": memory,
    })
}

fn find_gpus(args: &Args, request: &Request, tokens: f64, days: f64) -> Result<(), Failure> {
    let tried = gpus_for(request, tokens, days)?;
    if args.json {
        let row = |scale: &Scale| json!({"gpus": scale.gpus, "days": scale.days, "gpu_hours": scale.gpu_hours, "layout": scale.layout});
        return print_json(
            &json!({"tokens": tokens, "days": days, "tried": tried.iter().map(row).collect::<Vec<_>>()}),
        );
    }
    let mut text = format!("{:.0} billion tokens within {days} days, batch {}\n", tokens / 1e9, request.batch);
    text += &format!("  {:>7} {:>9} {:>12}  best layout\n", "GPUs", "days", "GPU hours");
    for scale in &tried {
        text += &format!("  {:>7} {:>9.1} {:>12.0}  {}\n", scale.gpus, scale.days, scale.gpu_hours, scale.layout);
    }
    print(&text)
}
