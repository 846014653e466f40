//! How fast tokens come: seconds a token behind a prompt of 512, with cached keys and
//! values, beside running the whole prefix again, and the bytes of weights read a second.
//!
//! `cargo run --release -p henge-eval --example decode_speed -- [threads]`

use henge_checkpoint::{Block, Kind, Manifest, RunState, ShardWriter, Slot, publish, stage};
use henge_comm::threads;
use henge_cpu::{Fast, Rounding};
use henge_eval::{Generation, Loaded, Sampling, Silent, generate};
use henge_random::{fill_normal, key};
use henge_spec::{Layout, Model, parameters};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const PROMPT: usize = 512;
const NEW: usize = 64;

fn main() {
    let threads = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    let model = Model::gpt(12, 768, 12, 1024, 16_384);
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_random(folder.path(), &model);
    let loaded = Arc::new(Loaded::open(folder.path()).expect("the checkpoint just written"));
    let time = |prompt: usize, new: usize| seconds(&loaded, threads, prompt, new);
    let _ = time(1, 1); // the file enters the page cache
    let loading = time(1, 1);
    let prefix = time(PROMPT, 1) - loading;
    let token = (time(PROMPT, NEW + 1) - loading - prefix) / NEW as f64;
    // A token reads every matrix once; of the position table it reads a row.
    let read: usize = parameters(&model).iter().filter(|p| !p.name.contains("position")).map(|p| 4 * p.len()).sum();
    println!("a token with the cache      {:8.2} ms", 1e3 * token);
    println!("the whole prefix again      {:8.2} ms, {:.1} times as long", 1e3 * prefix, prefix / token);
    println!("weights read                {:8.2} GB/s", read as f64 / token / 1e9);
    println!("memory read by {threads} threads    {:8.2} GB/s", read_bandwidth(threads) / 1e9);
}

fn seconds(loaded: &Arc<Loaded>, threads: usize, prompt: usize, max_tokens: usize) -> f64 {
    let job = Generation {
        loaded: Arc::clone(loaded),
        tokenizer: None,
        layout: Layout::ONE,
        prompts: vec![(0..prompt as u32).map(|i| i * 37 % 16_000).collect()],
        batch: 1,
        sampling: Sampling::Greedy,
        max_tokens,
        end: None,
        stops: Vec::new(),
        listener: Arc::new(Silent),
    };
    let begin = Instant::now();
    let options = threads::Options::new(1, threads);
    generate(job, options, move |_| Fast::new(threads, Rounding::Exact)).expect("a sound model");
    begin.elapsed().as_secs_f64()
}

/// The best of five passes over 1 GiB of float32, each thread summing its share.
fn read_bandwidth(threads: usize) -> f64 {
    let values = vec![1.0f32; 1 << 28];
    let pass = |_| {
        let begin = Instant::now();
        let sum = |part: &[f32]| {
            let mut sums = [0.0f32; 64];
            for chunk in part.chunks_exact(64) {
                sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value);
            }
            sums.iter().sum::<f32>()
        };
        let total: f32 = std::thread::scope(|scope| {
            let parts = values.chunks(values.len().div_ceil(threads));
            let workers: Vec<_> = parts.map(|part| scope.spawn(move || sum(part))).collect();
            workers.into_iter().map(|worker| worker.join().expect("a sum")).sum()
        });
        assert!(total > 0.0);
        4.0 * values.len() as f64 / begin.elapsed().as_secs_f64()
    };
    (0..5).map(pass).fold(0.0, f64::max)
}

/// A checkpoint of normal numbers under `folder`.
fn write_random(folder: &Path, model: &Model) {
    let run = RunState { step: 1, ..RunState::default() };
    let staged = stage(folder, run.step).expect("a folder");
    let parameters = parameters(model);
    let slots = parameters.iter().map(|p| Slot::new(Kind::Weight, p, Block::whole(p))).collect();
    let mut shard = ShardWriter::create(&staged, 0, slots).expect("a shard");
    for p in &parameters {
        let mut values = vec![0.0; p.len()];
        fill_normal(key(1, &p.name), 0, 0.02, &mut values);
        shard.add(Kind::Weight, p, Block::whole(p), &values).expect("space for a tensor");
    }
    let manifest = Manifest::assemble(model, run, vec![shard.finish().expect("a shard")]).expect("a whole model");
    publish(folder, &manifest, 1).expect("a checkpoint");
}
