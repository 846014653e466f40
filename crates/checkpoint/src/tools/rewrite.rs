//! New checkpoints from old ones and from folders of others.

use super::{Cut, cut::Piece, write_folder};
use crate::manifest::{MANIFEST, Manifest, RunState, ShardRecord};
use crate::{Checkpoint, CheckpointError, ShardWriter, Slot, Source, model_of};
use henge_files::write_atomic;
use std::io::Write;
use std::path::Path;

/// Writes a checkpoint again with another cut into shards, bit for bit the same tensors and
/// state. Any layout reads any cut; a matching one reads faster.
pub fn reshape(checkpoint: &Checkpoint, cut: Cut, out: &Path) -> Result<Manifest, CheckpointError> {
    rewrite(checkpoint, checkpoint.manifest().run.clone(), cut, out)
}

/// Makes a checkpoint of step 0, without moments, from any [`Source`].
pub fn import(source: &dyn Source, cut: Cut, out: &Path) -> Result<Manifest, CheckpointError> {
    let run = RunState { config: origin(source), ..RunState::default() };
    rewrite(source, run, cut, out)
}

/// The part of a run file that an import knows: where the weights and the tokenizer came from.
fn origin(source: &dyn Source) -> String {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let quoted = |path: &Path| toml::Value::String(absolute(path).display().to_string()).to_string();
    let mut text = format!("[init]\nfrom = {}\n", quoted(source.path()));
    let file = source.tokenizer().map(|path| if path.is_dir() { path.join("tokenizer.json") } else { path });
    if let Some(file) = file.filter(|file| file.is_file()) {
        text += &format!("\n[data]\ntokenizer = {}\n", quoted(&file));
    }
    text
}

fn rewrite(source: &dyn Source, run: RunState, cut: Cut, out: &Path) -> Result<Manifest, CheckpointError> {
    let model = model_of(&source.facts(), source.path())?;
    if let Some((what, fix)) = cut.problem(&model) {
        return Err(CheckpointError::Unsupported { file: source.path().to_path_buf(), what, fix });
    }
    write_folder(out, |folder| {
        let pieces = cut.pieces(&model, &source.kinds());
        let shards = pieces.into_iter().enumerate().map(|(rank, pieces)| write_shard(source, folder, rank, pieces));
        let manifest = Manifest::assemble(&model, run, shards.collect::<Result<_, _>>()?)?;
        write_atomic(&folder.join(MANIFEST), |file| file.write_all(manifest.to_text().as_bytes()))?;
        Ok(manifest)
    })
}

fn write_shard(
    source: &dyn Source,
    folder: &Path,
    rank: usize,
    pieces: Vec<Piece>,
) -> Result<ShardRecord, CheckpointError> {
    let slots = pieces.iter().map(|(kind, p, block)| Slot::new(*kind, p, *block)).collect();
    let mut writer = ShardWriter::create(folder, rank, slots)?;
    let mut values = Vec::new();
    for (kind, p, block) in &pieces {
        values.resize(block.len(), 0.0);
        source.read_kind(*kind, p, *block, &mut values)?;
        writer.add(*kind, p, *block, &values)?;
    }
    writer.finish()
}
