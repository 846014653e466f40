//! Helpers of the tests: real files, and a model by the slowest road.
#![allow(dead_code)] // each test program uses its own part

use henge_comm::threads;
use henge_comm::{Comm, Grid};
use henge_cpu::Plain;
use henge_eval::Loaded;
use henge_model::{Context, Dropouts, Microbatch, Place, Stage, Store};
use henge_spec::{Layout, Recompute};
use henge_tensor::Backend;
use std::path::{Path, PathBuf};

/// A file below the folder of real files, or `None` with a word about what is skipped.
///
/// # Panics
/// Where the folder is named and lacks `part`.
pub fn test_data(part: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("HENGE_TEST_DATA") else {
        eprintln!("skipped: HENGE_TEST_DATA is not set, and this test reads {part} below it");
        return None;
    };
    let path = Path::new(&folder).join(part);
    assert!(path.exists(), "{} is missing", path.display());
    Some(path)
}

pub fn layout(tensor: usize, pipeline: usize, data: usize) -> Layout {
    Layout { tensor, pipeline, data, ..Layout::ONE }
}

pub fn engine(layout: &Layout) -> threads::Options {
    threads::Options::new(layout.ranks(), 1)
}

/// Logits behind each of `prefixes`, every prefix run alone and from its first token, in
/// double precision: no cache, no batch, no window, no layout.
pub fn logits_one_by_one(folder: &Path, prefixes: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let source = henge_checkpoint::open_source(folder).unwrap();
    let model = henge_checkpoint::model_of(&source.facts(), folder).unwrap();
    let grid = Grid::new(&Layout::ONE);
    type Tokens = <Plain<f64> as Backend>::Activation;
    let comm = threads::world::<Tokens>(grid, engine(&Layout::ONE)).remove(0);
    let backend = Plain::<f64>::new();
    let place = Place { tensor: 0, tensors: 1, stage: 0, stages: 1 };
    let mut store = Store::new(&backend, &model, &[place]);
    store
        .load(|slot, out| {
            let (row, rows, column, columns) = slot.block;
            source.read(&slot.parameter, henge_checkpoint::Block { row, rows, column, columns }, out)
        })
        .unwrap();
    let stage = Stage::new(&backend, &store, 0, &model, &place, Recompute::None);
    let comm: &dyn Comm<Tokens> = &comm;
    let at = Context { backend: &backend, comm, model: &model, place, dropouts: Dropouts::NONE };
    let logits = |tokens: &Vec<u32>| {
        let micro = Microbatch {
            samples: vec![0],
            tokens: tokens.clone(),
            labels: vec![-1; tokens.len()],
            ..Microbatch::default()
        };
        let hidden = stage.hidden(&at, &micro, None).unwrap();
        stage.logits(&at, hidden, tokens.len() - 1..tokens.len()).0
    };
    prefixes.iter().map(logits).collect()
}

/// Negative log likelihood of `token`, in double precision.
pub fn loss(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - max).exp()).sum();
    sum.ln() - f64::from(logits[token as usize] - max)
}

/// The first of the largest.
pub fn best(logits: &[f32]) -> u32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|&logit| logit == max).unwrap() as u32
}

pub fn open(folder: &Path) -> std::sync::Arc<Loaded> {
    std::sync::Arc::new(Loaded::open(folder).unwrap())
}
