//! Whatever weights stand at a path.

use crate::{Block, Checkpoint, CheckpointError, HfFolder, Kind, MegatronCheckpoint, Weights, newest};
use henge_spec::Parameter;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Value;

/// A place that knows which model its weights are of.
pub trait Source: Weights + Send + Sync {
    /// Where it is, for messages.
    fn path(&self) -> &Path;

    /// The model as keys of a run file; [`crate::model_of`] makes a model of them.
    fn facts(&self) -> BTreeMap<String, Value>;

    /// What it holds of each parameter: weights, or the optimizer's moments too.
    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::Weight]
    }

    /// Reads a block of one of [`Source::kinds`].
    fn read_kind(&self, _kind: Kind, p: &Parameter, block: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        self.read(p, block, out)
    }

    /// The tokenizer's file, or a folder of its files, where one is known.
    fn tokenizer(&self) -> Option<PathBuf> {
        None
    }
}

impl Source for HfFolder {
    fn path(&self) -> &Path {
        self.folder()
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        HfFolder::facts(self)
    }

    fn tokenizer(&self) -> Option<PathBuf> {
        Some(self.folder().to_path_buf())
    }
}

impl Source for Checkpoint {
    fn path(&self) -> &Path {
        self.folder()
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        self.manifest().model.clone()
    }

    fn kinds(&self) -> Vec<Kind> {
        if self.manifest().has_moments() { Kind::ALL.to_vec() } else { vec![Kind::Weight] }
    }

    fn read_kind(&self, kind: Kind, p: &Parameter, block: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        match kind {
            Kind::Weight => Weights::read(self, p, block, out),
            _ => self.read(kind, &p.name, block, out),
        }
    }

    /// `data.tokenizer` of the run, if that file is still there.
    fn tokenizer(&self) -> Option<PathBuf> {
        let config: toml::Table = self.manifest().run.config.parse().ok()?;
        let path = PathBuf::from(config.get("data")?.get("tokenizer")?.as_str()?);
        path.is_file().then_some(path)
    }
}

/// Opens what stands at a path: a checkpoint, a folder of checkpoints (the newest), a run's
/// folder, a Hugging Face folder, or a Megatron checkpoint.
pub fn open_source(path: &Path) -> Result<Box<dyn Source>, CheckpointError> {
    if path.join("config.json").is_file() && !MegatronCheckpoint::is_at(path) {
        return Ok(Box::new(HfFolder::open(path)?));
    }
    if MegatronCheckpoint::is_at(path) {
        return Ok(Box::new(MegatronCheckpoint::open(path)?));
    }
    match newest(path) {
        Ok(folder) => Ok(Box::new(Checkpoint::open(&folder)?)),
        Err(CheckpointError::NotFound { path, problem, .. }) => Err(CheckpointError::NotFound {
            path,
            problem,
            fix: "give a checkpoint, a run's folder, a Hugging Face folder (with config.json) or a Megatron checkpoint"
                .to_string(),
        }),
        Err(error) => Err(error),
    }
}
