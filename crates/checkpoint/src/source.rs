//! Whatever weights stand at a path.

use crate::{
    Block, Checkpoint, CheckpointError, GgufFile, HfFolder, Kind, MegatronCheckpoint, TokenizerFile, Weights, newest,
};
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

    /// Optimizer steps behind the weights, where that is known; 0 where it is not.
    fn step(&self) -> u64 {
        0
    }

    /// What it holds of each parameter: weights, or the optimizer's moments too.
    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::Weight]
    }

    /// Reads a block of one of [`Source::kinds`].
    fn read_kind(&self, _kind: Kind, p: &Parameter, block: Block, out: &mut [f32]) -> Result<(), CheckpointError> {
        self.read(p, block, out)
    }

    /// The tokenizer, where one is known.
    ///
    /// # Errors
    /// Where there is one that cannot be told as a `tokenizer.json`.
    fn tokenizer(&self) -> Result<Option<TokenizerFile>, CheckpointError> {
        Ok(None)
    }
}

impl Source for HfFolder {
    fn path(&self) -> &Path {
        self.folder()
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        HfFolder::facts(self)
    }

    fn tokenizer(&self) -> Result<Option<TokenizerFile>, CheckpointError> {
        Ok(TokenizerFile::in_folder(self.folder()))
    }
}

impl Source for Checkpoint {
    fn path(&self) -> &Path {
        self.folder()
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        self.manifest().model.clone()
    }

    fn step(&self) -> u64 {
        self.manifest().run.step
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

    /// What an import laid beside the shards, or `data.tokenizer` of the run, if that file is
    /// still there.
    fn tokenizer(&self) -> Result<Option<TokenizerFile>, CheckpointError> {
        let named = || {
            let config: toml::Table = self.manifest().run.config.parse().ok()?;
            Some(PathBuf::from(config.get("data")?.get("tokenizer")?.as_str()?))
        };
        let named = || named().filter(|path| path.is_file()).map(TokenizerFile::Path);
        Ok(TokenizerFile::in_folder(self.folder()).or_else(named))
    }
}

/// Opens what stands at a path: a checkpoint, a folder of checkpoints (the newest), a run's
/// folder, a Hugging Face folder, a GGUF file, or a Megatron checkpoint.
pub fn open_source(path: &Path) -> Result<Box<dyn Source>, CheckpointError> {
    if GgufFile::is_at(path) {
        return Ok(Box::new(GgufFile::open(path)?));
    }
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
            fix: "give a checkpoint, a run's folder, a Hugging Face folder (with config.json), a GGUF file or a \
                  Megatron checkpoint"
                .to_string(),
        }),
        Err(error) => Err(error),
    }
}
