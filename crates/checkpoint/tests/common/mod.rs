//! What the tests of this crate share: real folders, simulated ranks, chance.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod reference;

use henge_checkpoint::{
    Block, Checkpoint, HfFolder, Kind, LossScaleState, Manifest, Norms, Probe, RunState, ShardRecord, ShardWriter,
    Slot, Weights, model_of, publish, stage,
};
use henge_spec::{Model, Parameter, parameters};
use std::path::{Path, PathBuf};

/// The folder of real files, or `None` with a word of why a test is skipped.
pub fn test_data() -> Option<PathBuf> {
    let folder = std::env::var_os("HENGE_TEST_DATA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: HENGE_TEST_DATA does not name the folder of test data");
    }
    folder
}

/// How many rounds of chance: `rounds`, or what an environment variable says.
pub fn rounds(variable: &str, rounds: usize) -> usize {
    std::env::var(variable).ok().map_or(rounds, |text| text.parse().expect("a number of rounds"))
}

pub const HF_FOLDERS: [&str; 4] = ["oracle/gpt2", "oracle/llama", "data/tiny-random-gpt2", "data/stories260K"];

pub fn open_hf(folder: &Path) -> (HfFolder, Model) {
    let hf = HfFolder::open(folder).unwrap();
    let model = model_of(&hf.facts(), folder).unwrap();
    (hf, model)
}

/// Splitmix64: the same draws in every run of a test.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A small model with every kind of split, and a vocabulary so small that the second of two
/// tensor ranks has no row of it.
pub fn small_model() -> Model {
    Model::gpt(2, 16, 4, 8, 50)
}

/// Made-up state: each element tells its kind, tensor and place.
pub struct Made;

impl Made {
    pub fn value(kind: Kind, name: &str, index: usize) -> f32 {
        let seed = name.bytes().fold(kind as u64 + 1, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
        let mut chance = Chance(seed.wrapping_mul(1 << 20).wrapping_add(index as u64));
        // Any bit pattern but a NaN, which would not compare equal.
        let value = f32::from_bits(chance.next() as u32);
        if value.is_nan() { index as f32 } else { value }
    }

    pub fn block(kind: Kind, parameter: &Parameter, block: Block) -> Vec<f32> {
        let columns = parameter.matrix().1;
        let place = |i: usize| (block.row + i / block.columns) * columns + block.column + i % block.columns;
        (0..block.len()).map(|i| Self::value(kind, &parameter.name, place(i))).collect()
    }
}

impl Weights for Made {
    fn read(&self, p: &Parameter, block: Block, out: &mut [f32]) -> Result<(), henge_checkpoint::CheckpointError> {
        out.copy_from_slice(&Self::block(Kind::Weight, p, block));
        Ok(())
    }
}

pub fn run_state(step: u64) -> RunState {
    RunState {
        step,
        samples: 8 * step,
        tokens: 64 * step,
        seed: 1234,
        updates: step - 1,
        loss_scale: Some(LossScaleState { scale: 65536.0, clean_steps: 3, overflows: 1 }),
        loss: Some(3.125),
        norms: Some(Norms::of_squares([1.0, 2.0, 0.1])),
        probe: Some(Probe { sample: 3, tokens: 17, length: Some(5), loss: 0.1, precision: "f32".to_string() }),
        config: "[run]\nseed = 1234\n".to_string(),
    }
}

/// The slots of tensor rank `rank` of `tensor` on pipeline rank `stage` of `pipeline`.
pub fn slots(
    model: &Model,
    kinds: &[Kind],
    (rank, tensor): (usize, usize),
    (stage, pipeline): (usize, usize),
) -> Vec<(Kind, Parameter, Block)> {
    let list = parameters(model);
    let share = list.len().div_ceil(pipeline);
    let own = list.into_iter().skip(stage * share).take(share);
    // What every tensor rank has is written by the first.
    let own = own.filter(|p| rank == 0 || p.split != henge_spec::Split::Whole);
    let own = own.map(|p| (Block::from(p.block(model, rank, tensor)), p));
    own.flat_map(|(block, p)| kinds.iter().map(move |&kind| (kind, p.clone(), block))).collect()
}

/// Writes the shards of `tensor * pipeline` simulated ranks into `folder`.
pub fn write_shards(
    folder: &Path,
    model: &Model,
    kinds: &[Kind],
    (tensor, pipeline): (usize, usize),
    values: impl Fn(Kind, &Parameter, Block) -> Vec<f32>,
) -> Vec<ShardRecord> {
    let write = |place: usize| {
        let (rank, stage) = (place % tensor, place / tensor);
        let own = slots(model, kinds, (rank, tensor), (stage, pipeline));
        let announced = own.iter().map(|(kind, p, block)| Slot::new(*kind, p, *block)).collect();
        let mut writer = ShardWriter::create(folder, place, announced).unwrap();
        for (kind, p, block) in &own {
            writer.add(*kind, p, *block, &values(*kind, p, *block)).unwrap();
        }
        writer.finish().unwrap()
    };
    (0..tensor * pipeline).map(write).collect()
}

/// Saves made-up state with moments as `tensor * pipeline` ranks would.
pub fn save_made(checkpoints: &Path, model: &Model, step: u64, layout: (usize, usize), keep: usize) -> PathBuf {
    let folder = stage(checkpoints, step).unwrap();
    let shards = write_shards(&folder, model, &Kind::ALL, layout, Made::block);
    let manifest = Manifest::assemble(model, run_state(step), shards).unwrap();
    publish(checkpoints, &manifest, keep).unwrap()
}

/// Saves weights read from `source` as `tensor * pipeline` ranks would.
pub fn save_weights(checkpoints: &Path, model: &Model, source: &dyn Weights, layout: (usize, usize)) -> Checkpoint {
    let folder = stage(checkpoints, 1).unwrap();
    let shards = write_shards(&folder, model, &[Kind::Weight], layout, |_, p, block| {
        let mut out = vec![0.0; block.len()];
        source.read(p, block, &mut out).unwrap();
        out
    });
    let manifest = Manifest::assemble(model, run_state(1), shards).unwrap();
    Checkpoint::open(&publish(checkpoints, &manifest, 3).unwrap()).unwrap()
}

/// Reads everything back and compares it with the made-up state.
pub fn check_made(checkpoint: &Checkpoint, model: &Model) -> Result<(), henge_checkpoint::CheckpointError> {
    for kind in Kind::ALL {
        for p in parameters(model) {
            let mut out = vec![0.0; p.len()];
            checkpoint.read(kind, &p.name, Block::whole(&p), &mut out)?;
            let same = out.iter().zip(Made::block(kind, &p, Block::whole(&p))).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{kind} {} is wrong and no error said so", p.name);
        }
    }
    Ok(())
}
