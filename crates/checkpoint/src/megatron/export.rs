//! Writing the distributed form (`torch_dist`): what torch.distributed.checkpoint reads, under
//! the names and with the layout of megatron-core 0.16.

use super::facts::arguments;
use super::names::{Rows, candidates, locate};
use super::torch_writer::{Archive, dtype, sizes, tensor};
use super::{LATEST, iteration_name};
use crate::export::{Export, Exported, PANEL, unsupported, write_file};
use crate::pickle_writer::PickleWriter;
use crate::stored::Element;
use crate::tools::write_folder;
use crate::{Block, CheckpointError, Source, model_of};
use henge_files::{Operation, WithPath};
use henge_spec::{Model, Parameter, parameters};
use std::fs::File;
use std::path::{Path, PathBuf};

const METADATA: &str = "torch.distributed.checkpoint.metadata";

/// Linears for which megatron-core keeps a state beside the weights. Without scaled number
/// formats it is `[None]`, and a checkpoint without it is refused as incomplete.
const WITH_EXTRA_STATE: [&str; 4] =
    ["self_attention.linear_proj", "self_attention.linear_qkv", "mlp.linear_fc1", "mlp.linear_fc2"];

/// Writes the weights of any source as a Megatron checkpoint in its distributed form: an
/// iteration's folder (the source's step; `release` for step 0, Megatron's name for converted
/// weights) and the file that names it. The optimizer's state is not written.
///
/// # Errors
/// Where the model has something that Megatron's arguments do not say, or a file cannot be
/// written.
pub fn export_megatron(source: &dyn Source, options: &Export, out: &Path) -> Result<Exported, CheckpointError> {
    let element = options.element(source)?;
    let model = model_of(&source.facts(), source.path())?;
    let arguments =
        arguments(&model).map_err(|what| unsupported(source, what, "export it as a Hugging Face folder"))?;
    let tensors = tensors(&model);
    write_folder(out, |folder| {
        let (latest, iteration) = iteration_name(source.step());
        let at = folder.join(&iteration);
        std::fs::create_dir(&at).with_path(&at, Operation::Create)?;
        let mut files = Files { folder: at.clone(), limit: options.shard_bytes, open: None, names: Vec::new() };
        let mut places = Vec::new();
        for name in extra_states(&model) {
            places.push(Place { name, offsets: None, span: files.extra_state()? });
        }
        for tensor in &tensors {
            let span = files.tensor(source, &model, tensor, element)?;
            places.push(Place { name: tensor.global.clone(), offsets: Some(tensor.offsets()), span });
        }
        files.close()?;
        write_file(&at.join(".metadata"), &metadata(&model, &tensors, &places, element))?;
        write_common(&at.join("common.pt"), source.step(), &arguments)?;
        let backend = r#"{"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}"#;
        write_file(&at.join("metadata.json"), backend.as_bytes())?;
        write_file(&folder.join(LATEST), latest.as_bytes())?;
        let bytes = tensors.iter().map(|tensor| element.bytes(tensor.len()) as u64).sum();
        let weights = files.names.iter().map(|name| format!("{iteration}/{name}")).collect();
        let tokenizer = options.lay_tokenizer(source, folder)?;
        Ok(Exported { weights, tensors: tensors.len(), bytes, tokenizer })
    })
}

/// A tensor of one layer or of none, and the parameters whose rows it has.
struct Fused {
    /// Its name; where it is a layer's, of all layers as one tensor.
    global: String,
    layer: Option<usize>,
    shape: Vec<usize>,
    members: Vec<Parameter>,
}

impl Fused {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Where it begins in the tensor of all layers.
    fn offsets(&self) -> Vec<usize> {
        self.layer.into_iter().chain(self.shape.iter().map(|_| 0)).collect()
    }

    /// As stored: one layer of all.
    fn stored_shape(&self) -> Vec<usize> {
        self.layer.iter().map(|_| 1).chain(self.shape.iter().copied()).collect()
    }

    /// Runs of rows in the order in which they lie: parameter, its first row, number of rows.
    fn runs(&self, model: &Model) -> Vec<(&Parameter, usize, usize)> {
        let mut all = Vec::new();
        for p in &self.members {
            let runs = locate(model, p).runs;
            all.extend(runs.within(0, p.matrix().0).map(|run| (run.source, p, run.row, run.rows)));
        }
        all.sort_by_key(|&(source, ..)| source);
        all.into_iter().map(|(_, p, row, rows)| (p, row, rows)).collect()
    }
}

/// The tensors in the order of the forward pass. Distributed checkpoints have a norm inside the
/// linear that follows it, however the model that saved them was built.
fn tensors(model: &Model) -> Vec<Fused> {
    let mut tensors: Vec<(String, Fused)> = Vec::new();
    for p in parameters(model) {
        let name = candidates(&p.name).pop().expect("the model was found to have Megatron's tensors only");
        if let Some((_, tensor)) = tensors.iter_mut().rev().find(|(known, _)| *known == name) {
            tensor.members.push(p);
            continue;
        }
        let Rows { rows, .. } = locate(model, &p);
        let shape = [&[rows][..], &p.shape[1..]].concat();
        let (global, layer) = stacked(&name);
        tensors.push((name, Fused { global, layer, shape, members: vec![p] }));
    }
    tensors.into_iter().map(|(_, tensor)| tensor).collect()
}

/// The name of all layers' tensor, and the layer.
fn stacked(name: &str) -> (String, Option<usize>) {
    let parts = name.strip_prefix("decoder.layers.").and_then(|rest| rest.split_once('.'));
    match parts.and_then(|(layer, rest)| Some((layer.parse().ok()?, rest))) {
        Some((layer, rest)) => (format!("decoder.layers.{rest}"), Some(layer)),
        None => (name.to_string(), None),
    }
}

fn extra_states(model: &Model) -> impl Iterator<Item = String> {
    let layers = model.layers;
    let of_layer = move |layer: usize| {
        let name = move |part: &str| format!("decoder.layers.{part}._extra_state/shard_{layer}_{layers}");
        WITH_EXTRA_STATE.into_iter().map(name)
    };
    (0..layers).flat_map(of_layer)
}

/// Part of a file: name, first byte, length.
type Span = (String, u64, u64);

/// Where something lies: a tensor's piece by its offsets, or bytes.
struct Place {
    name: String,
    offsets: Option<Vec<usize>>,
    span: Span,
}

/// The `.distcp` files, one after the other.
struct Files {
    folder: PathBuf,
    limit: u64,
    open: Option<(PathBuf, File)>,
    names: Vec<String>,
}

impl Files {
    fn extra_state(&mut self) -> Result<Span, CheckpointError> {
        let pickle = PickleWriter::of(|w| w.list(PickleWriter::none));
        self.archive(0, &pickle, |_| Ok(()))
    }

    fn tensor(
        &mut self,
        source: &dyn Source,
        model: &Model,
        fused: &Fused,
        element: Element,
    ) -> Result<Span, CheckpointError> {
        let bytes = element.bytes(fused.len()) as u64;
        self.archive(bytes, &tensor(element, &fused.stored_shape()), |archive| {
            archive.storage(bytes)?;
            let (mut values, mut coded) = (Vec::new(), Vec::new());
            for (p, first, rows) in fused.runs(model) {
                let columns = p.matrix().1;
                let at_once = (PANEL / columns.max(1)).max(1);
                for row in (first..first + rows).step_by(at_once) {
                    let block = Block { row, rows: at_once.min(first + rows - row), column: 0, columns };
                    values.resize(block.len(), 0.0);
                    source.read(p, block, &mut values)?;
                    element.encode(&values, &mut coded);
                    archive.write(&coded)?;
                }
            }
            Ok(())
        })
    }

    /// Writes one archive behind the last, in a new file where the last one is full.
    fn archive(
        &mut self,
        bytes: u64,
        pickle: &[u8],
        fill: impl FnOnce(&mut Archive) -> Result<(), CheckpointError>,
    ) -> Result<Span, CheckpointError> {
        let position =
            |(path, file): &(PathBuf, File)| file.metadata().with_path(path, Operation::Write).map(|m| m.len());
        let start = self.open.as_ref().map(position).transpose()?;
        let start = match start {
            Some(start) if start == 0 || start + bytes <= self.limit => start,
            _ => {
                self.next()?;
                0
            }
        };
        let (path, file) = self.open.as_mut().expect("a file was opened above");
        let mut archive = Archive::begin(file, path, pickle)?;
        fill(&mut archive)?;
        archive.finish()?;
        let end = file.metadata().with_path(path, Operation::Write)?.len();
        let name = self.names.last().expect("the open file has a name").clone();
        Ok((name, start, end - start))
    }

    fn next(&mut self) -> Result<(), CheckpointError> {
        self.close()?;
        let name = format!("__0_{}.distcp", self.names.len());
        let path = self.folder.join(&name);
        let file = File::create_new(&path).with_path(&path, Operation::Create)?;
        self.open = Some((path, file));
        self.names.push(name);
        Ok(())
    }

    fn close(&mut self) -> Result<(), CheckpointError> {
        let Some((path, file)) = self.open.take() else { return Ok(()) };
        Ok(file.sync_all().with_path(&path, Operation::Flush)?)
    }
}

/// `.metadata`: torch's `Metadata`, with each global tensor, its pieces, and where each lies.
fn metadata(model: &Model, tensors: &[Fused], places: &[Place], element: Element) -> Vec<u8> {
    PickleWriter::of(|w| {
        w.object(METADATA, "Metadata", |w| {
            w.dict(|w| {
                w.text("state_dict_metadata");
                w.dict(|w| {
                    tensors.iter().filter(|t| t.layer.is_none_or(|layer| layer == 0)).for_each(|t| {
                        w.text(&t.global);
                        tensor_metadata(w, t, tensors, model.layers, element);
                    });
                    places.iter().filter(|place| place.offsets.is_none()).for_each(|place| {
                        w.text(&place.name);
                        w.object(METADATA, "BytesStorageMetadata", |w| w.dict(|_| ()));
                    });
                });
                w.text("planner_data");
                w.none();
                w.text("storage_data");
                w.dict(|w| places.iter().for_each(|place| storage_entry(w, place)));
                w.text("storage_meta");
                w.none();
                w.text("version");
                w.text("1.0.0");
            });
        });
    })
}

fn tensor_metadata(w: &mut PickleWriter, first: &Fused, all: &[Fused], layers: usize, element: Element) {
    let size: Vec<usize> = first.layer.iter().map(|_| layers).chain(first.shape.iter().copied()).collect();
    w.object(METADATA, "TensorStorageMetadata", |w| {
        w.dict(|w| {
            w.text("properties");
            properties(w, element);
            w.text("size");
            torch_size(w, &size);
            w.text("chunks");
            w.list(|w| {
                for piece in all.iter().filter(|piece| piece.global == first.global) {
                    w.object(METADATA, "ChunkStorageMetadata", |w| {
                        w.dict(|w| {
                            w.text("offsets");
                            torch_size(w, &piece.offsets());
                            w.text("sizes");
                            torch_size(w, &piece.stored_shape());
                        });
                    });
                }
            });
        });
    });
}

/// The five fields that torch 2.11 reads. A later torch writes a sixth, which 2.11 refuses.
fn properties(w: &mut PickleWriter, element: Element) {
    w.object(METADATA, "TensorProperties", |w| {
        w.tuple(|w| {
            w.global("torch", dtype(element));
            w.call("torch.serialization", "_get_layout", |w| w.text("torch.strided"));
            w.bool(false); // requires_grad
            w.call(METADATA, "_MEM_FORMAT_ENCODING", |w| w.int(0)); // contiguous
            w.bool(false); // pin_memory
        });
    });
}

fn torch_size(w: &mut PickleWriter, shape: &[usize]) {
    w.call("torch", "Size", |w| w.tuple(|w| sizes(w, shape)));
}

fn storage_entry(w: &mut PickleWriter, place: &Place) {
    w.object(METADATA, "MetadataIndex", |w| {
        w.dict(|w| {
            w.text("fqn");
            w.text(&place.name);
            if let Some(offsets) = &place.offsets {
                w.text("offset");
                torch_size(w, offsets);
            }
            w.text("index");
            w.none();
        });
    });
    let (file, offset, length) = &place.span;
    w.object("torch.distributed.checkpoint.filesystem", "_StorageInfo", |w| {
        w.dict(|w| {
            w.text("relative_path");
            w.text(file);
            w.text("offset");
            w.size(*offset);
            w.text("length");
            w.size(*length);
        });
    });
}

/// `common.pt`: the iteration and the arguments of the run, from which Megatron and Henge know
/// the model's shape.
fn write_common(path: &Path, step: u64, arguments: &[(&str, toml::Value)]) -> Result<(), CheckpointError> {
    let pickle = PickleWriter::of(|w| {
        w.dict(|w| {
            w.text("iteration");
            w.size(step);
            w.text("checkpoint_version");
            w.float(3.0);
            w.text("args");
            w.object("argparse", "Namespace", |w| {
                w.dict(|w| {
                    for (name, value) in arguments {
                        w.text(name);
                        argument(w, value);
                    }
                });
            });
        });
    });
    let mut file = File::create_new(path).with_path(path, Operation::Create)?;
    Archive::begin(&mut file, path, &pickle)?.finish()?;
    Ok(file.sync_all().with_path(path, Operation::Flush)?)
}

fn argument(w: &mut PickleWriter, value: &toml::Value) {
    match value {
        toml::Value::Integer(value) => w.int(*value),
        toml::Value::Float(value) => w.float(*value),
        toml::Value::Boolean(value) => w.bool(*value),
        toml::Value::String(text) => w.text(text),
        other => unreachable!("no argument is a {}", other.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::megatron::MegatronCheckpoint;
    use crate::pickle::{Pickle, Value};
    use henge_files::Checksum;

    /// What a tensor is in `.metadata`: element type, size, offsets and sizes of its pieces; of
    /// bytes, nothing.
    fn tensor(value: Value) -> String {
        let Some(size) = value.get("size").and_then(Value::sizes) else { return "bytes".to_string() };
        let properties = value.get("properties").unwrap().state().unwrap().sequence().unwrap();
        let piece = |chunk: Value| {
            let sizes = |key| chunk.get(key).and_then(Value::sizes).unwrap();
            format!("{:?}+{:?}", sizes("offsets"), sizes("sizes"))
        };
        let pieces = value.get("chunks").and_then(Value::sequence).unwrap().into_iter().map(piece);
        format!("{} {size:?} {}", properties[0].global().unwrap(), pieces.collect::<Vec<_>>().join(" "))
    }

    /// Every tensor by name, and the keys under which storage is looked up.
    fn structure(path: &Path) -> (Vec<(String, String)>, Vec<String>) {
        let pickle = Pickle::parse(&std::fs::read(path).unwrap()).unwrap();
        let items = |key| pickle.root().get(key).map(Value::items).unwrap();
        let name = |value: Value| value.text().unwrap().to_string();
        let tensors = items("state_dict_metadata").into_iter().map(|(key, value)| (name(key), tensor(value)));
        let key = |(index, _): (Value, Value)| {
            format!("{} {:?}", name(index.get("fqn").unwrap()), index.get("offset").and_then(Value::sizes))
        };
        let (mut tensors, mut keys): (Vec<_>, Vec<_>) =
            (tensors.collect(), items("storage_data").into_iter().map(key).collect());
        tensors.sort();
        keys.sort();
        (tensors, keys)
    }

    /// Tensors, sizes, pieces and keys are those that megatron-core 0.16.1 wrote of this model. The
    /// checksum is of the bytes that torch 2.11 loaded to the same weights.
    #[test]
    fn the_metadata_is_what_megatron_core_wrote() {
        let Some(data) = std::env::var_os("HENGE_TEST_DATA") else {
            eprintln!("skipped: HENGE_TEST_DATA names no folder");
            return;
        };
        let theirs = Path::new(&data).join("data/megatron-ckpt-tiny/gpt2/torch_dist");
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let source = MegatronCheckpoint::open(&theirs).unwrap();
        export_megatron(&source, &Export::float32(), &out).unwrap();
        let ours = out.join("release/.metadata");
        let (found, expected) = (structure(&ours), structure(&theirs.join("iter_0000001/.metadata")));
        assert_eq!(found, expected);
        assert_eq!((found.0.len(), found.1.len()), (24, 36));
        let mut checksum = Checksum::new();
        checksum.update(&std::fs::read(&ours).unwrap());
        assert_eq!(checksum.hex(), "bf9981e1dd79b5835723c32f675f8c02");
        let text = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(text(&out.join("release/metadata.json")), text(&theirs.join("iter_0000001/metadata.json")));
    }
}
