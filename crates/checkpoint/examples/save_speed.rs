//! How fast a checkpoint is saved and loaded, against plain writes and reads of the same bytes in
//! the same folder: `cargo run --release -p henge-checkpoint --example save_speed -- FOLDER [MB]`.
//!
//! Five pairs, alternating. A save is everything from the copy in memory to the published folder:
//! shard, checksums, flush, manifest, rename. A load reads and checks every tensor, from the page
//! cache to its own place in memory that the process already has; the plain read copies as many
//! bytes to the same place.

use henge_checkpoint::{Block, Kind, Manifest, RunState, ShardWriter, Slot, latest, publish, stage};
use henge_spec::{Model, Parameter, parameters};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

const PAIRS: u64 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("give the folder to write into")?).join("henge-save-speed");
    let megabytes: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    std::fs::create_dir_all(&folder)?;
    let model = model_of_bytes(megabytes * 1_000_000);
    let list = parameters(&model);
    let largest = list.iter().map(Parameter::len).max().unwrap_or(0);
    let values: Vec<f32> = (0..largest).map(|i| i as f32).collect();
    let bytes: usize = 12 * list.iter().map(Parameter::len).sum::<usize>();
    let mut memory = vec![1.0; bytes / 4]; // Written once, so that no page is new to a read.
    println!("{:.0} MB of weights and moments, {} tensors", bytes as f64 / 1e6, 3 * list.len());
    let (mut saves, mut writes, mut loads, mut reads) = (vec![], vec![], vec![], vec![]);
    for step in 1..=PAIRS {
        writes.push(timed(|| plain_write(&folder, &list, &values))?);
        saves.push(timed(|| save(&folder, &model, &list, &values, step))?);
        reads.push(timed(|| plain_read(&folder, &mut memory))?);
        loads.push(timed(|| load(&folder, &list, &mut memory))?);
        let speed = |seconds: &[f64]| bytes as f64 / 1e9 / seconds[seconds.len() - 1];
        println!(
            "pair {step}: save {:.2} GB/s, plain {:.2}; load {:.2} GB/s, plain {:.2}",
            speed(&saves),
            speed(&writes),
            speed(&loads),
            speed(&reads)
        );
    }
    let share = |plain: &mut [f64], ours: &mut [f64]| 100.0 * median(plain) / median(ours);
    println!(
        "save {:.0}%, load {:.0}% of plain (medians of {PAIRS})",
        share(&mut writes, &mut saves),
        share(&mut reads, &mut loads)
    );
    Ok(std::fs::remove_dir_all(&folder)?)
}

fn model_of_bytes(bytes: usize) -> Model {
    let layer = 12 * 12 * 1024 * 1024; // of float32, weights and two moments
    Model::gpt((bytes / layer).max(1), 1024, 16, 128, 512)
}

fn timed(work: impl FnOnce() -> Result<(), Box<dyn std::error::Error>>) -> Result<f64, Box<dyn std::error::Error>> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64())
}

fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn plain_write(folder: &Path, list: &[Parameter], values: &[f32]) -> Result<(), Box<dyn std::error::Error>> {
    let path = folder.join("plain");
    let mut file = File::create(&path)?;
    for p in list.iter().chain(list).chain(list) {
        file.write_all(bytemuck::cast_slice(&values[..p.len()]))?;
    }
    Ok(file.sync_all()?)
}

fn save(
    folder: &Path,
    model: &Model,
    list: &[Parameter],
    values: &[f32],
    step: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let staged = stage(folder, step)?;
    let all = || Kind::ALL.into_iter().flat_map(|kind| list.iter().map(move |p| (kind, p)));
    let slots = all().map(|(kind, p)| Slot::new(kind, p, Block::whole(p))).collect();
    let mut writer = ShardWriter::create(&staged, 0, slots)?;
    for (kind, p) in all() {
        writer.add(kind, p, Block::whole(p), &values[..p.len()])?;
    }
    let run = RunState { step, ..RunState::default() };
    publish(folder, &Manifest::assemble(model, run, vec![writer.finish()?])?, PAIRS as usize)?;
    Ok(())
}

fn plain_read(folder: &Path, memory: &mut [f32]) -> Result<(), Box<dyn std::error::Error>> {
    let mut file = File::open(folder.join("plain"))?;
    let parts = bytemuck::cast_slice_mut::<f32, u8>(memory).chunks_mut(1 << 18);
    Ok(parts.into_iter().try_for_each(|part| file.read_exact(part))?)
}

fn load(folder: &Path, list: &[Parameter], mut memory: &mut [f32]) -> Result<(), Box<dyn std::error::Error>> {
    let checkpoint = latest(folder)?.ok_or("the checkpoint that was saved is gone")?;
    for kind in Kind::ALL {
        for p in list {
            let (values, rest) = memory.split_at_mut(p.len());
            checkpoint.read(kind, &p.name, Block::whole(p), values)?;
            memory = rest;
        }
    }
    Ok(())
}
