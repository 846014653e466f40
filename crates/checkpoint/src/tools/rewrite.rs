//! New checkpoints from old ones and from folders of others.

use super::{Cut, cut::Piece, write_folder};
use crate::manifest::{MANIFEST, Manifest, RunState, ShardRecord};
use crate::{Checkpoint, CheckpointError, ShardWriter, Slot, Source, TokenizerFile, model_of};
use henge_files::write_atomic;
use std::io::Write;
use std::path::Path;

/// Writes a checkpoint again with another cut into shards, bit for bit the same tensors and
/// state. Any layout reads any cut; a matching one reads faster.
pub fn reshape(checkpoint: &Checkpoint, cut: Cut, out: &Path) -> Result<Manifest, CheckpointError> {
    let tokenizer = TokenizerFile::in_folder(checkpoint.folder());
    rewrite(checkpoint, checkpoint.manifest().run.clone(), cut, out, tokenizer.as_ref())
}

/// Makes a checkpoint of step 0, without moments, from any [`Source`]. The tokenizer that the
/// source has is laid beside the shards, so that the checkpoint can travel; one that cannot be
/// told ([`Source::tokenizer`] fails) is left out.
pub fn import(source: &dyn Source, cut: Cut, out: &Path) -> Result<Manifest, CheckpointError> {
    let run = RunState { config: origin(source), ..RunState::default() };
    rewrite(source, run, cut, out, source.tokenizer().ok().flatten().as_ref())
}

/// The part of a run file that an import knows: where the weights came from.
fn origin(source: &dyn Source) -> String {
    let absolute = std::path::absolute(source.path()).unwrap_or_else(|_| source.path().to_path_buf());
    format!("[init]\nfrom = {}\n", toml::Value::String(absolute.display().to_string()))
}

fn rewrite(
    source: &dyn Source,
    run: RunState,
    cut: Cut,
    out: &Path,
    tokenizer: Option<&TokenizerFile>,
) -> Result<Manifest, CheckpointError> {
    let model = model_of(&source.facts(), source.path())?;
    if let Some((what, fix)) = cut.problem(&model) {
        return Err(CheckpointError::Unsupported { file: source.path().to_path_buf(), what, fix });
    }
    write_folder(out, |folder| {
        let pieces = cut.pieces(&model, &source.kinds());
        let shards = pieces.into_iter().enumerate().map(|(rank, pieces)| write_shard(source, folder, rank, pieces));
        let manifest = Manifest::assemble(&model, run, shards.collect::<Result<_, _>>()?)?;
        tokenizer.map(|tokenizer| tokenizer.lay(folder)).transpose()?;
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
