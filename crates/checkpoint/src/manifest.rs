//! The manifest: what a checkpoint holds, where each part lies and what state the run was in.
//!
//! It is one JSON document whose last line is the checksum of everything before that line, so
//! that a flipped bit in a step number is found as surely as one in a weight. That last line
//! stays the same in every version of the format.

use crate::block::check_cover;
use crate::{Block, CheckpointError};
use henge_files::{Checksum, FilesError, Operation};
use henge_spec::{Model, parameters};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use toml::Value;

/// The manifest's name in a checkpoint's folder.
pub const MANIFEST: &str = "manifest.json";

/// The version of the format that this crate writes, and the newest that it reads.
pub const VERSION: u64 = 1;

const FORMAT: &str = "henge checkpoint";
const CHECKSUM_MARK: &str = ",\n  \"checksum\": \"";
const CHECKSUM_END: &str = "\"\n}\n";

/// What a stored tensor is to its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The float32 master weight.
    Weight,
    /// Adam's running mean of the gradient.
    FirstMoment,
    /// Adam's running mean of the squared gradient.
    SecondMoment,
}

impl Kind {
    /// All three.
    pub const ALL: [Kind; 3] = [Self::Weight, Self::FirstMoment, Self::SecondMoment];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weight => "weight",
            Self::FirstMoment => "first_moment",
            Self::SecondMoment => "second_moment",
        })
    }
}

/// State of a dynamic loss scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScaleState {
    /// The scale in force.
    pub scale: f64,
    /// Steps without overflow since it last changed.
    pub clean_steps: u64,
    /// Overflows since it last changed.
    pub overflows: u64,
}

/// Norms over the whole model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    /// Of the weights.
    pub weight: f64,
    /// Of Adam's running mean of the gradient.
    pub first_moment: f64,
    /// Of Adam's running mean of the squared gradient.
    pub second_moment: f64,
}

impl Norms {
    /// From sums of squares in the order of [`Kind::ALL`].
    pub fn of_squares([weight, first, second]: [f64; 3]) -> Self {
        Self { weight: weight.sqrt(), first_moment: first.sqrt(), second_moment: second.sqrt() }
    }

    /// The norm of a kind.
    pub fn of(&self, kind: Kind) -> f64 {
        match kind {
            Kind::Weight => self.weight,
            Kind::FirstMoment => self.first_moment,
            Kind::SecondMoment => self.second_moment,
        }
    }
}

/// The loss at the start of one sample by the weights that were saved, without dropout: a resumed run
/// computes it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Position of the sample in the run's order.
    pub sample: u64,
    /// 32 bits of a checksum of the tokens and targets that were computed.
    pub tokens: u32,
    /// Tokens from its start that were computed; the whole sample without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// Mean loss over the targets of those tokens.
    pub loss: f64,
    /// Precision that it was computed in.
    pub precision: String,
}

/// Where a run stood, apart from its tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Optimizer steps taken, skipped ones included.
    pub step: u64,
    /// Samples consumed.
    pub samples: u64,
    /// Tokens consumed.
    pub tokens: u64,
    /// The run's seed.
    pub seed: u64,
    /// Updates applied: Adam's exponent, `step` less the skipped ones.
    pub updates: u64,
    /// Dynamic loss scale, where one is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScaleState>,
    /// Loss of the last step, for the receipt at a resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Norms of what was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norms: Option<Norms>,
    /// A loss to compute again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The resolved run file.
    pub config: String,
}

/// A part of a tensor in a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// Which part.
    #[serde(flatten)]
    pub block: Block,
    /// Name of the shard.
    pub file: String,
    /// First byte in the shard.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// 128-bit XXH3 of those bytes.
    pub checksum: String,
}

/// A logical tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorRecord {
    /// What it is to its parameter.
    pub kind: Kind,
    /// Logical name of the parameter.
    pub name: String,
    /// Element type: `f32`.
    pub dtype: String,
    /// Global, unpadded shape.
    pub shape: Vec<usize>,
    /// Its parts, by first row and column.
    pub chunks: Vec<Chunk>,
}

/// A shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its name in the folder.
    pub name: String,
    /// Its size. Header and chunks account for every byte.
    pub bytes: u64,
    /// 128-bit XXH3 of the length and header.
    pub header_checksum: String,
}

/// What one rank wrote: the answer of [`crate::ShardWriter::finish`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// The file, absent where the rank had nothing to write.
    pub file: Option<FileRecord>,
    /// Each chunk with the kind, name and global shape of its tensor.
    pub chunks: Vec<(Kind, String, Vec<usize>, Chunk)>,
}

/// What a checkpoint holds and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    version: u64,
    /// Where the run stood.
    pub run: RunState,
    /// The model, as the keys of a run file ([`Model::facts`]).
    pub model: BTreeMap<String, Value>,
    /// The shards.
    pub files: Vec<FileRecord>,
    /// The tensors, by kind and name.
    pub tensors: Vec<TensorRecord>,
}

impl Manifest {
    /// Joins what the ranks wrote.
    ///
    /// # Errors
    /// [`CheckpointError::Uncovered`] where the shards together do not hold every parameter
    /// of the model exactly once, with both moments or without any.
    pub fn assemble(model: &Model, run: RunState, shards: Vec<ShardRecord>) -> Result<Self, CheckpointError> {
        let mut tensors: BTreeMap<(Kind, String), TensorRecord> = BTreeMap::new();
        let mut files = Vec::new();
        for shard in shards {
            files.extend(shard.file);
            for (kind, name, shape, chunk) in shard.chunks {
                let new = || TensorRecord { kind, name: name.clone(), dtype: "f32".into(), shape, chunks: Vec::new() };
                tensors.entry((kind, name.clone())).or_insert_with(new).chunks.push(chunk);
            }
        }
        let mut tensors: Vec<_> = tensors.into_values().collect();
        tensors.iter_mut().for_each(|t| t.chunks.sort_by_key(|chunk| (chunk.block.row, chunk.block.column)));
        files.sort_by(|a: &FileRecord, b| a.name.cmp(&b.name));
        let manifest = Self { format: FORMAT.into(), version: VERSION, run, model: model.facts(), files, tensors };
        manifest.check_tensors(Path::new(MANIFEST))?;
        manifest.check_against(model, Path::new(MANIFEST))?;
        Ok(manifest)
    }

    /// The tensor of a kind and name.
    pub fn tensor(&self, kind: Kind, name: &str) -> Option<&TensorRecord> {
        let key = (kind, name);
        let place = self.tensors.binary_search_by(|record| (record.kind, record.name.as_str()).cmp(&key));
        place.ok().map(|place| &self.tensors[place])
    }

    /// Whether the moments of the optimizer are held.
    pub fn has_moments(&self) -> bool {
        self.tensors.iter().any(|tensor| tensor.kind != Kind::Weight)
    }

    /// The document.
    pub(crate) fn to_text(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("strings and numbers are always JSON");
        let body = json.strip_suffix("\n}").expect("an object with fields ends in a brace on its own line");
        let mut checksum = Checksum::new();
        checksum.update(body.as_bytes());
        format!("{body}{CHECKSUM_MARK}{}{CHECKSUM_END}", checksum.hex())
    }

    /// Reads and checks a manifest: checksum, version, form, and that its chunks cover each
    /// tensor exactly once. `fix` is the way out that errors name.
    pub(crate) fn read(path: &Path, fix: &str) -> Result<Self, CheckpointError> {
        let damaged = |place: &str, problem: String| CheckpointError::Damaged {
            file: path.to_path_buf(),
            place: place.to_string(),
            problem,
            fix: fix.to_string(),
        };
        let bytes = std::fs::read(path).map_err(|source| FilesError::new(path, Operation::Read, source))?;
        let body = checked_body(&bytes).map_err(|problem| damaged("its checksum line", problem))?;
        let value: serde_json::Value = serde_json::from_slice(&[body, b"}"].concat())
            .map_err(|error| damaged(&format!("line {}", error.line()), error.to_string()))?;
        let found = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if found > VERSION {
            return Err(CheckpointError::NewerVersion { file: path.to_path_buf(), found, known: VERSION });
        }
        let mut manifest: Self =
            serde_json::from_value(value).map_err(|error| damaged("its form", error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(damaged("its form", format!("`format` is `{}`, not `{FORMAT}`", manifest.format)));
        }
        manifest.tensors.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        manifest.check_tensors(path)?;
        Ok(manifest)
    }

    /// Every tensor once, covered once, by chunks of the right size in files that are listed.
    fn check_tensors(&self, file: &Path) -> Result<(), CheckpointError> {
        let files: BTreeMap<&str, u64> = self.files.iter().map(|file| (file.name.as_str(), file.bytes)).collect();
        let mut last = None;
        for tensor in &self.tensors {
            let uncovered = |problem: String| self.uncovered(file, tensor.kind, &tensor.name, problem);
            let key = (tensor.kind, tensor.name.as_str());
            if last.replace(key) == Some(key) {
                return Err(uncovered("listed twice".to_string()));
            }
            let blocks: Vec<Block> = tensor.chunks.iter().map(|chunk| chunk.block).collect();
            check_cover(&tensor.shape, &blocks).map_err(uncovered)?;
            for chunk in &tensor.chunks {
                chunk.check(&files).map_err(uncovered)?;
            }
            if tensor.dtype != "f32" {
                return Err(uncovered(format!("element type `{}` is unknown", tensor.dtype)));
            }
        }
        Ok(())
    }

    fn uncovered(&self, file: &Path, kind: Kind, name: &str, problem: String) -> CheckpointError {
        let tensor = if kind == Kind::Weight { name.to_string() } else { format!("{name} ({kind})") };
        let fix = "every tensor must be stored whole and once; save the checkpoint again".to_string();
        CheckpointError::Uncovered { file: file.to_path_buf(), tensor, problem, fix }
    }

    /// Whether the tensors are those of a model, with their shapes: all weights, and the
    /// moments of all or of none. `file` names the manifest in errors.
    pub(crate) fn check_against(&self, model: &Model, file: &Path) -> Result<(), CheckpointError> {
        let kinds: BTreeSet<Kind> = self.tensors.iter().map(|tensor| tensor.kind).chain([Kind::Weight]).collect();
        if kinds.len() == 2 {
            let problem = "there is one moment of the optimizer without the other".to_string();
            return Err(self.uncovered(file, Kind::FirstMoment, "all", problem));
        }
        let wanted = parameters(model);
        for &kind in &kinds {
            for parameter in &wanted {
                let record = self.tensor(kind, &parameter.name);
                let missing = || self.uncovered(file, kind, &parameter.name, "is missing".to_string());
                let record = record.ok_or_else(missing)?;
                if record.shape != parameter.shape {
                    return Err(CheckpointError::Shape {
                        file: file.to_path_buf(),
                        tensor: parameter.name.clone(),
                        found: record.shape.clone(),
                        expected: parameter.shape.clone(),
                    });
                }
            }
        }
        let names: BTreeSet<&str> = wanted.iter().map(|parameter| parameter.name.as_str()).collect();
        match self.tensors.iter().find(|tensor| !names.contains(tensor.name.as_str())) {
            Some(extra) => Err(self.uncovered(file, extra.kind, &extra.name, "the model has no such tensor".into())),
            None => Ok(()),
        }
    }

    /// Names the first key in which this checkpoint is of another model than `model`.
    /// Dropout and the spread of initial weights are free: they are of the run.
    pub(crate) fn check_model(&self, model: &Model, file: &Path) -> Result<(), CheckpointError> {
        let expected = model.facts();
        let keys: BTreeSet<&String> = self.model.keys().chain(expected.keys()).collect();
        let text = |value: Option<&Value>| value.map_or_else(|| "absent".to_string(), Value::to_string);
        let differs = |key: &&&String| {
            let free = key.contains("dropout") || key.as_str() == "model.init_std";
            !free && self.model.get(**key) != expected.get(**key)
        };
        match keys.iter().find(differs) {
            None => Ok(()),
            Some(key) => Err(CheckpointError::OtherModel {
                file: file.to_path_buf(),
                key: key.to_string(),
                found: text(self.model.get(*key)),
                expected: text(expected.get(*key)),
            }),
        }
    }
}

impl Chunk {
    fn check(&self, files: &BTreeMap<&str, u64>) -> Result<(), String> {
        let Some(&size) = files.get(self.file.as_str()) else {
            return Err(format!("{} lie in `{}`, which is not listed", self.block, self.file));
        };
        // The block fits its tensor by now, but the tensor's shape came from the same file.
        let bytes = self.block.rows.checked_mul(self.block.columns).and_then(|n| n.checked_mul(4));
        let inside = self.offset.checked_add(self.bytes).is_some_and(|end| end <= size);
        if bytes != usize::try_from(self.bytes).ok() || !inside {
            return Err(format!("{} cannot be {} bytes at {} of `{}`", self.block, self.bytes, self.offset, self.file));
        }
        Ok(())
    }
}

/// The bytes before the checksum line, once they agree with it.
fn checked_body(bytes: &[u8]) -> Result<&[u8], String> {
    let line = CHECKSUM_MARK.len() + 32 + CHECKSUM_END.len();
    let cut = bytes.len().checked_sub(line).ok_or_else(|| format!("the file ends after {} bytes", bytes.len()))?;
    let (body, line) = bytes.split_at(cut);
    let mut checksum = Checksum::new();
    checksum.update(body);
    let expected = format!("{CHECKSUM_MARK}{}{CHECKSUM_END}", checksum.hex());
    if line == expected.as_bytes() {
        return Ok(body);
    }
    Err("what stands before it is not what was written, or the file is cut off".to_string())
}
