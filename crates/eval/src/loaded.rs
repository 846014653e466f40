//! A model to ask: its shape, where its weights are, its tokenizer.

use crate::EvalError;
use henge_checkpoint::{Block, Checkpoint, CheckpointError, Source, TokenizerFile, model_of, open_source};
use henge_data::CorpusCard;
use henge_data::tokenizer::Tokenizer;
use henge_spec::{Arch, Home, Layout, Model, Parameter};
use std::path::{Path, PathBuf};

/// A checkpoint or a Hugging Face folder, opened. Its weights are read by the ranks.
pub struct Loaded {
    model: Model,
    source: Box<dyn Source>,
}

/// A text whose ids tell vocabularies apart, and the forms of one vocabulary not: no line ends, no
/// characters but ASCII's.
const PROBE: &str =
    "The 23 quick brown foxes jumped over 4 lazy dogs, and nobody (in 1905) complained: why would they?";

/// Where a tokenizer is.
enum Found {
    /// What [`Tokenizer::load`] takes.
    Name(String),
    /// Text of its own, inside the file of the weights.
    Json(String),
}

impl Loaded {
    /// Opens a decoder: a Hugging Face folder, a GGUF file, a checkpoint, or the newest one of a
    /// run's folder.
    ///
    /// # Errors
    /// Where there is none, where it is damaged, and where it is an encoder.
    pub fn open(path: &Path) -> Result<Self, EvalError> {
        let loaded = Self::open_any(path)?;
        match loaded.model.arch {
            Arch::Gpt | Arch::Llama => Ok(loaded),
            Arch::Bert => Err(EvalError::Encoder { path: loaded.path().to_path_buf() }),
        }
    }

    /// As [`Loaded::open`], an encoder.
    ///
    /// # Errors
    /// Where there is none, where it is damaged, and where it is a decoder.
    pub fn open_encoder(path: &Path) -> Result<Self, EvalError> {
        let loaded = Self::open_any(path)?;
        match loaded.model.arch {
            Arch::Bert => Ok(loaded),
            arch @ (Arch::Gpt | Arch::Llama) => {
                Err(EvalError::Decoder { path: loaded.path().to_path_buf(), arch: arch.to_string() })
            }
        }
    }

    /// As [`Loaded::open_encoder`], with the head of a task.
    ///
    /// # Errors
    /// Also where it has no such head.
    pub fn open_tuned(path: &Path) -> Result<Self, EvalError> {
        let loaded = Self::open_encoder(path)?;
        if loaded.model.task.is_none() {
            return Err(EvalError::NoTask { path: loaded.path().to_path_buf() });
        }
        Ok(loaded)
    }

    /// The task that the head was fine-tuned on and the length its sequences were cut to, as the
    /// checkpoint records them.
    pub fn recorded_task(&self) -> Option<(String, Option<usize>)> {
        let config = config(self.path())?;
        let task = config.get("task")?;
        let length = task.get("length").and_then(toml::Value::as_integer);
        Some((task.get("name")?.as_str()?.to_string(), length.and_then(|length| usize::try_from(length).ok())))
    }

    /// The weights of `source` as they are, of a model that is not a file's.
    ///
    /// # Errors
    /// Facts that are no model's.
    pub fn of(source: Box<dyn Source>) -> Result<Self, EvalError> {
        let model = model_of(&source.facts(), source.path())?;
        Ok(Self { model, source })
    }

    fn open_any(path: &Path) -> Result<Self, EvalError> {
        Self::of(open_source(path)?)
    }

    /// Its shape.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The folder that holds the weights.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Reads a block. An encoder's heads for pretraining, which nothing here asks, may be absent
    /// (folders of the bare `BertModel` have none) and leave `out` as it is.
    pub(crate) fn read_or_leave(
        &self,
        parameter: &Parameter,
        block: Block,
        out: &mut [f32],
    ) -> Result<(), CheckpointError> {
        match self.source.read(parameter, block, out) {
            Err(CheckpointError::NoTensor { .. }) if self.is_for_pretraining(parameter) => Ok(()),
            other => other,
        }
    }

    fn is_for_pretraining(&self, parameter: &Parameter) -> bool {
        let is_norm = parameter.name.starts_with("final_norm");
        self.model.arch == Arch::Bert && self.model.task.is_none() && parameter.home == Home::Head && !is_norm
    }

    /// Loads the named tokenizer, or the one that lies beside the weights or is recorded
    /// with them.
    ///
    /// # Errors
    /// Where there is none, where it is not understood, where its ids are not all below the
    /// model's vocabulary, and where it is named and gives other ids than the weights' own.
    pub fn tokenizer(&self, name: Option<&str>) -> Result<Tokenizer, EvalError> {
        let found = match name {
            Some(name) => Found::Name(name.to_string()),
            None => self.find_tokenizer()?.ok_or_else(|| EvalError::NoTokenizer { path: self.path().to_path_buf() })?,
        };
        let tokenizer = self.load(found)?;
        let (size, vocab_size) = (tokenizer.vocabulary_size(), self.model.vocab_size);
        if size > vocab_size {
            let (name, path) = (tokenizer.name().to_string(), self.path().to_path_buf());
            return Err(EvalError::ForeignTokenizer { name, size, path, vocab_size });
        }
        if name.is_some() {
            self.refuse_another(&tokenizer)?;
        }
        Ok(tokenizer)
    }

    fn load(&self, found: Found) -> Result<Tokenizer, EvalError> {
        match found {
            Found::Name(name) => Ok(Tokenizer::load(&name)?),
            Found::Json(json) => Ok(Tokenizer::parse(&self.path().display().to_string(), &json)?),
        }
    }

    /// Refuses a named tokenizer that gives other ids than the weights' own, where that can be loaded.
    fn refuse_another(&self, named: &Tokenizer) -> Result<(), EvalError> {
        let own = self.find_tokenizer().ok().flatten().and_then(|found| self.load(found).ok());
        let Some(own) = own else { return Ok(()) };
        let ids = |tokenizer: &Tokenizer| -> Result<Vec<u32>, EvalError> {
            let mut ids = Vec::new();
            tokenizer.encoder().encode(PROBE, &mut ids)?;
            Ok(ids)
        };
        if ids(named)? == ids(&own)? {
            return Ok(());
        }
        Err(EvalError::AnotherTokenizer { name: named.name().to_string(), path: self.path().to_path_buf() })
    }

    /// Whether [`Loaded::tokenizer`] would find one.
    pub fn has_tokenizer(&self) -> bool {
        self.find_tokenizer().is_ok_and(|found| found.is_some())
    }

    fn find_tokenizer(&self) -> Result<Option<Found>, EvalError> {
        let known = match self.source.tokenizer()? {
            Some(TokenizerFile::Json(json)) => return Ok(Some(Found::Json(json))),
            Some(TokenizerFile::Path(path)) => Some(path).filter(|path| path.is_file() || holds_tokenizer(path)),
            None => None,
        };
        let name = |path: PathBuf| path.display().to_string();
        // A run's tokenizer may lie in its folder, two above a checkpoint.
        let beside =
            || self.path().ancestors().take(3).map(|folder| folder.join("tokenizer.json")).find(|f| f.is_file());
        Ok(known.or_else(beside).map(name).or_else(|| recorded(self.path())).map(Found::Name))
    }

    /// Refuses a layout that the model cannot be cut into.
    pub fn check_layout(&self, layout: &Layout) -> Result<(), EvalError> {
        let (m, Layout { tensor, pipeline, data, .. }) = (&self.model, *layout);
        let refuse = |problem: String| Err(EvalError::Layout { tensor, pipeline, data, problem });
        for (what, size) in [("t", tensor), ("p", pipeline), ("d", data)] {
            if size == 0 {
                return refuse(format!("{what} must be 1 or more"));
            }
        }
        let cut = [("heads", m.heads), ("key/value heads", m.kv_heads), ("an inner MLP width of", m.ffn_hidden)];
        for (what, size) in cut {
            if !size.is_multiple_of(tensor) {
                return refuse(format!("the model has {what} {size}, which t = {tensor} does not divide"));
            }
        }
        if !m.layers.is_multiple_of(pipeline) {
            return refuse(format!("the model has {} layers, which p = {pipeline} does not divide", m.layers));
        }
        Ok(())
    }
}

fn holds_tokenizer(folder: &Path) -> bool {
    folder.join("tokenizer.json").is_file()
        || (folder.join("vocab.json").is_file() && folder.join("merges.txt").is_file())
}

/// What a checkpoint's run file says: `data.tokenizer`, or what its first corpus was made
/// with.
fn recorded(folder: &Path) -> Option<String> {
    let config = config(folder)?;
    let data = config.get("data")?;
    if let Some(name) = data.get("tokenizer").and_then(toml::Value::as_str).filter(|name| !name.is_empty()) {
        return Some(name.to_string());
    }
    let first = data.get("train")?.as_array()?.first()?;
    let prefix = first.as_str().or_else(|| first.get("prefix")?.as_str())?;
    CorpusCard::read(Path::new(prefix)).ok()?.map(|card| card.tokenizer.name)
}

/// The run file that a checkpoint's run went by.
fn config(folder: &Path) -> Option<toml::Table> {
    Checkpoint::open(folder).ok()?.manifest().run.config.parse().ok()
}
