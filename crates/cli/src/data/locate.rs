//! `henge data where` and `when`: which documents a step reads, and which steps read a document.

use crate::failure::{Failure, print, print_json};
use crate::train::{order, resolve};
use henge_comm::Grid;
use henge_data::Corpus;
use henge_data::order::{Piece, SampleOrder};
use henge_spec::Run;
use henge_train::Share;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
struct RunArgs {
    /// The run file (TOML)
    run: PathBuf,
    /// Override a key: --set train.steps=20
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct WhereArgs {
    #[command(flatten)]
    run: RunArgs,
    /// The step, from 1, as metrics.jsonl counts them
    #[arg(long, value_name = "N")]
    step: u64,
    /// Only what this rank reads; every replica without
    #[arg(long, value_name = "R")]
    rank: Option<usize>,
}

#[derive(clap::Args)]
pub struct WhenArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Number of the document in its corpus, from 0
    #[arg(long, value_name = "D")]
    document: u64,
    /// The corpus, as the run file names it; needed where there are several
    #[arg(long, value_name = "PREFIX")]
    corpus: Option<String>,
}

/// A run's samples, without what training them would take.
struct Asked {
    run: Run,
    prefixes: Vec<String>,
    order: SampleOrder,
}

impl RunArgs {
    fn open(&self) -> Result<Asked, Failure> {
        let (run, _) = resolve::resolve(&self.run, &self.overrides)?;
        if let Some(file) = &run.data.batches {
            return Err(Failure::request(format!(
                "{}: this run trains on the batches of {file}, step i on batch i; there are no documents to name",
                run.place("data.batches")
            )));
        }
        let prefixes: Vec<String> = order::prefixes(&run).into_iter().map(str::to_string).collect();
        let corpora = prefixes.iter().map(|prefix| Corpus::open(Path::new(prefix))).collect::<Result<Vec<_>, _>>()?;
        let order = order::of(&run, &corpora)?;
        Ok(Asked { run, prefixes, order })
    }
}

/// One sequence of a step.
#[derive(serde::Serialize)]
struct Place<'a> {
    /// Its number in the run, from 0.
    sample: u64,
    replica: usize,
    microbatch: usize,
    corpus: &'a str,
    epoch: u64,
    /// Its number in the corpus before shuffling.
    number: u64,
    pieces: Vec<PieceReport>,
}

/// A stretch of a document.
#[derive(serde::Serialize)]
struct PieceReport {
    document: u64,
    offset: u64,
    tokens: u64,
}

pub fn run_where(args: WhereArgs) -> Result<(), Failure> {
    let asked = args.run.open()?;
    let run = &asked.run;
    let steps = run.train.steps;
    if !(1..=steps).contains(&args.step) {
        let words = format!("--step {}: the run has steps 1 to {steps}; raise train.steps by --set", args.step);
        return Err(Failure::request(words));
    }
    let first = run.train.batching.consumed(args.step - 1);
    let global = run.train.batching.at(first);
    let places = asked.places(first, global, replicas(run, args.rank)?)?;
    if args.run.json {
        return print_json(&serde_json::json!({
            "step": args.step, "first_sample": first, "batch": global, "seq_len": run.model.seq_len, "samples": places,
        }));
    }
    let last = first + global as u64 - 1;
    let mut text =
        format!("step {}: samples {first} to {last} of the run, {} tokens each\n", args.step, run.model.seq_len);
    places.iter().for_each(|place| text += &place.line());
    print(&text)
}

/// The replicas that are asked for: all, or that of a rank.
fn replicas(run: &Run, rank: Option<usize>) -> Result<std::ops::Range<usize>, Failure> {
    let Some(rank) = rank else { return Ok(0..run.layout.data) };
    let ranks = run.layout.ranks();
    if rank >= ranks {
        return Err(Failure::request(format!("--rank {rank}: the layout has ranks 0 to {}", ranks - 1)));
    }
    let replica = Grid::new(&run.layout).place(rank).data;
    Ok(replica..replica + 1)
}

impl Asked {
    fn places(&self, first: u64, global: usize, replicas: std::ops::Range<usize>) -> Result<Vec<Place<'_>>, Failure> {
        let mut places = Vec::new();
        for replica in replicas {
            let (replicas, micro) = (self.run.layout.data, self.run.train.batching.micro);
            let share = Share { replica, replicas, micro };
            for (microbatch, samples) in share.microbatches(first, global).enumerate() {
                for sample in samples {
                    places.push(self.place(sample, replica, microbatch)?);
                }
            }
        }
        Ok(places)
    }

    fn place(&self, sample: u64, replica: usize, microbatch: usize) -> Result<Place<'_>, Failure> {
        let location = self.order.locate(sample)?;
        let report = |Piece { document, offset, tokens }| PieceReport { document, offset, tokens };
        let pieces = self.order.pieces(&location)?.into_iter().map(report).collect();
        let corpus = &self.prefixes[location.corpus];
        Ok(Place { sample, replica, microbatch, corpus, epoch: location.epoch, number: location.number, pieces })
    }
}

impl Place<'_> {
    fn line(&self) -> String {
        let Place { sample, replica, microbatch, corpus, epoch, pieces, .. } = self;
        let piece =
            |p: &PieceReport| format!("document {} tokens {} to {}", p.document, p.offset, p.offset + p.tokens - 1);
        let pieces = pieces.iter().map(piece).collect::<Vec<_>>().join(", ");
        format!("sample {sample}  replica {replica}  microbatch {microbatch}  {corpus} epoch {epoch}: {pieces}\n")
    }
}

/// A step that reads the document.
#[derive(serde::Serialize)]
struct Reading {
    step: u64,
    samples: Vec<u64>,
}

pub fn run_when(args: WhenArgs) -> Result<(), Failure> {
    let asked = args.run.open()?;
    let corpus = asked.corpus(args.corpus.as_deref())?;
    let batching = &asked.run.train.batching;
    let taken = batching.consumed(asked.run.train.steps);
    let mut readings: Vec<Reading> = Vec::new();
    for sample in asked.order.samples_of_document(corpus, args.document, taken)? {
        let step = batching.step_of(sample) + 1;
        match readings.last_mut().filter(|reading| reading.step == step) {
            Some(reading) => reading.samples.push(sample),
            None => readings.push(Reading { step, samples: vec![sample] }),
        }
    }
    let prefix = &asked.prefixes[corpus];
    if args.run.json {
        return print_json(&serde_json::json!({ "corpus": prefix, "document": args.document, "steps": readings }));
    }
    let steps = readings.iter().map(|reading| reading.step.to_string()).collect::<Vec<_>>().join(", ");
    print(&match readings.len() {
        0 => format!("document {} of {prefix} is read by none of the {} steps\n", args.document, asked.run.train.steps),
        _ => format!("document {} of {prefix} is read by steps {steps}\n", args.document),
    })
}

impl Asked {
    /// The place of a corpus among the run's.
    fn corpus(&self, name: Option<&str>) -> Result<usize, Failure> {
        let all = self.prefixes.join(", ");
        match (name, self.prefixes.len()) {
            (None, 1) => Ok(0),
            (None, _) => Err(Failure::request(format!("the run has several corpora; name one by --corpus: {all}"))),
            (Some(name), _) => {
                let found = self.prefixes.iter().position(|prefix| prefix == name);
                found.ok_or_else(|| Failure::request(format!("--corpus {name}: the run's corpora are {all}")))
            }
        }
    }
}
