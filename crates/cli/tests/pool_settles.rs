//! A rank's pool takes nothing new from the system once it has seen the second step, the
//! first evaluation and the first save: a first touch of fresh memory is the largest hidden
//! cost of a step on a processor.

use henge_comm::threads;
use henge_cpu::Fast;
use henge_spec::{Precision, Run, Settings};
use henge_tensor::Pool;
use henge_train::{EvaluationReport, GivenBatches, Job, Observer, Receipt, StepReport, launch};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

const STEPS: usize = 8;
const BATCH: usize = 8;
const SEQ: usize = 64;
const VOCAB: usize = 300;

/// The pools of all ranks, and what each had taken at every event of the run.
#[derive(Default)]
struct Ledger {
    pools: Mutex<Vec<Pool>>,
    events: Mutex<Vec<(String, Vec<u64>)>>,
}

impl Ledger {
    fn note(&self, event: String) {
        let taken = self.pools.lock().unwrap().iter().map(Pool::system_bytes).collect();
        self.events.lock().unwrap().push((event, taken));
    }
}

impl Observer for Ledger {
    fn step(&self, report: &StepReport) {
        self.note(format!("step {}", report.step));
    }

    fn evaluation(&self, report: &EvaluationReport) {
        self.note(format!("evaluation after step {}", report.step));
    }

    fn saved(&self, step: u64, _folder: &Path) {
        self.note(format!("save of step {step}"));
    }

    fn resumed(&self, _receipt: &Receipt) {}
}

/// As many batches as steps, of tokens in no particular order.
fn batches(run: &Run) -> Arc<GivenBatches> {
    let sequence = |first: usize| (0..SEQ).map(|at| (first * 31 + at * at * 7 + at) % VOCAB).collect::<Vec<_>>();
    let mut text = String::from("{\"batches\": [");
    for step in 0..STEPS {
        let rows: Vec<_> = (0..BATCH).map(|row| sequence(step * BATCH + row)).collect();
        let comma = if step == 0 { "" } else { ", " };
        write!(text, "{comma}{{\"tokens\": {rows:?}, \"labels\": {rows:?}}}").unwrap();
    }
    text += "]}";
    Arc::new(GivenBatches::parse(&text, "batches.json", &run.model).unwrap())
}

fn run_of(layout: &[&str]) -> Run {
    let mut settings = Settings::parse("data.train = [\"given\"]\n", "pool_settles").unwrap();
    let model = ["model.layers=4", "model.hidden=64", "model.heads=4"].map(String::from);
    let sizes = [
        format!("model.seq_len={SEQ}"),
        format!("model.vocab_size={VOCAB}"),
        format!("train.global_batch={BATCH}"),
        "train.micro_batch=1".to_string(),
        format!("train.steps={STEPS}"),
        "train.eval_every=2".to_string(),
        "train.eval_steps=2".to_string(),
        "checkpoint.every=2".to_string(),
    ];
    let layout = layout.iter().map(|setting| format!("layout.{setting}"));
    model.into_iter().chain(sizes).chain(layout).for_each(|setting| settings.set(&setting).unwrap());
    Run::resolve(settings).unwrap()
}

/// What every rank's pool had taken, event by event.
fn taken(run: Run, threads: usize) -> Vec<(String, Vec<u64>)> {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Arc::new(Ledger::default());
    let ranks = run.layout.ranks();
    let backends: Vec<Fast> = (0..ranks).map(|_| Fast::new(threads, Precision::F32)).collect();
    *ledger.pools.lock().unwrap() = backends.iter().map(|backend| backend.pool().clone()).collect();
    let backends = Mutex::new(backends.into_iter().map(Some).collect::<Vec<_>>());
    let source = batches(&run);
    let job = Arc::new(Job {
        folder: folder.path().to_path_buf(),
        train: source.clone(),
        valid: vec![("held out".to_string(), source)],
        predict: vec![],
        weights: None,
        resume: None,
        stop: Arc::new(AtomicBool::new(false)),
        options: henge_train::Options::default(),
        observer: ledger.clone(),
        run,
    });
    let own = move |rank: usize| backends.lock().unwrap()[rank].take().expect("one backend a rank");
    launch(job, threads::Options::new(ranks, threads), own).unwrap();
    ledger.note("the end".to_string());
    std::mem::take(&mut *ledger.events.lock().unwrap())
}

fn assert_settles(layout: &[&str], threads: usize) {
    let events = taken(run_of(layout), threads);
    let first = events.iter().position(|(event, _)| event == "save of step 2").expect("a save after step 2");
    let (_, settled) = &events[first];
    assert!(settled.iter().all(|&bytes| bytes > 0), "{events:?}");
    let later = &events[first + 1..];
    for last in ["step", "evaluation after step", "save of step"].map(|what| format!("{what} {STEPS}")) {
        assert!(later.iter().any(|(event, _)| *event == last), "{last} is not among {later:?}");
    }
    for (event, bytes) in later {
        assert_eq!(bytes, settled, "{layout:?} of {threads} threads a rank: bytes of each rank's pool at {event}");
    }
}

#[test]
fn one_rank_of_two_threads() {
    assert_settles(&[], 2);
}

#[test]
fn tensor_ranks() {
    assert_settles(&["tensor=2"], 1);
}

#[test]
fn replicas() {
    assert_settles(&["data=2"], 1);
}

#[test]
fn pipeline_ranks() {
    assert_settles(&["pipeline=2"], 1);
}

#[test]
fn interleaved_pipeline_ranks() {
    assert_settles(&["pipeline=2", "chunks=2", "schedule=\"interleaved\""], 1);
}

#[test]
fn every_axis_at_once() {
    assert_settles(&["tensor=2", "pipeline=2", "data=2"], 1);
}
