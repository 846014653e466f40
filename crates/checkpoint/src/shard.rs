//! Writing one rank's part of a checkpoint.

use crate::manifest::{Chunk, FileRecord, ShardRecord};
use crate::stored::PANEL_BYTES;
use crate::tensor_file::header;
use crate::{Block, CheckpointError, Kind};
use henge_files::{Checksum, Operation, WithPath};
use henge_spec::Parameter;
use safetensors::{Dtype, tensor::TensorInfo};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One block that a rank will write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    kind: Kind,
    name: String,
    shape: Vec<usize>,
    block: Block,
}

impl Slot {
    /// `block` of the weight or of a moment of `parameter`.
    ///
    /// # Panics
    /// If the block does not fit the parameter.
    pub fn new(kind: Kind, parameter: &Parameter, block: Block) -> Self {
        assert!(block.fits(&parameter.shape), "{block} of {} {:?}", parameter.name, parameter.shape);
        Self { kind, name: parameter.name.clone(), shape: parameter.shape.clone(), block }
    }

    /// The key in the shard: kind, name, global shape and first row and column, as in
    /// `weight/layer.0.mlp.up.weight[256,64]@128,0`, so that a shard explains itself.
    pub(crate) fn key(&self) -> String {
        key(self.kind, &self.name, &self.shape, self.block)
    }
}

pub(crate) fn key(kind: Kind, name: &str, shape: &[usize], block: Block) -> String {
    let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("{kind}/{name}[{}]@{},{}", shape.join(","), block.row, block.column)
}

/// Writes a shard: a safetensors file, its header first and then each block in the order
/// announced, so that nothing but the caller's own values is ever held in memory.
#[derive(Debug)]
pub struct ShardWriter {
    path: PathBuf,
    /// `None` where there is nothing to write: no file is made then.
    file: Option<File>,
    waiting: VecDeque<Slot>,
    record: ShardRecord,
    position: u64,
}

impl ShardWriter {
    /// Starts `shard-RANK.safetensors` in the folder of [`crate::stage`]. Empty blocks are
    /// taken and not stored; a rank with nothing else makes no file.
    pub fn create(folder: &Path, rank: usize, slots: Vec<Slot>) -> Result<Self, CheckpointError> {
        let waiting: VecDeque<Slot> = slots.into_iter().filter(|slot| !slot.block.is_empty()).collect();
        let name = format!("shard-{rank:05}.safetensors");
        let path = folder.join(&name);
        if waiting.is_empty() {
            let record = ShardRecord { file: None, chunks: Vec::new() };
            return Ok(Self { path, file: None, waiting, record, position: 0 });
        }
        let header = header(("format", "henge shard 1"), layout(&waiting));
        let mut checksum = Checksum::new();
        checksum.update(&header);
        let mut file = File::create_new(&path).with_path(&path, Operation::Create)?;
        file.write_all(&header).with_path(&path, Operation::Write)?;
        let data: u64 = waiting.iter().map(|slot| 4 * slot.block.len() as u64).sum();
        let position = header.len() as u64;
        let file_record = FileRecord { name, bytes: position + data, header_checksum: checksum.hex() };
        let record = ShardRecord { file: Some(file_record), chunks: Vec::with_capacity(waiting.len()) };
        Ok(Self { path, file: Some(file), waiting, record, position })
    }

    /// Writes the next block, row-major.
    ///
    /// # Panics
    /// If it is not the next that was announced, or `values` has another length.
    pub fn add(
        &mut self,
        kind: Kind,
        parameter: &Parameter,
        block: Block,
        values: &[f32],
    ) -> Result<(), CheckpointError> {
        self.add_slot(Slot::new(kind, parameter, block), values)
    }

    pub(crate) fn add_slot(&mut self, slot: Slot, values: &[f32]) -> Result<(), CheckpointError> {
        assert_eq!(values.len(), slot.block.len(), "values of {}", slot.key());
        if slot.block.is_empty() {
            return Ok(());
        }
        let next = self.waiting.pop_front();
        assert_eq!(next.as_ref(), Some(&slot), "blocks come in the order in which they were announced");
        let file = self.file.as_mut().expect("a writer with blocks to write has a file");
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mut checksum = Checksum::new();
        // In parts, so that the checksum leaves them in a core's cache for the write.
        for part in bytes.chunks(PANEL_BYTES) {
            checksum.update(part);
            file.write_all(part).with_path(&self.path, Operation::Write)?;
        }
        let name = self.record.file.as_ref().expect("as above").name.clone();
        let (offset, bytes) = (self.position, bytes.len() as u64);
        let chunk = Chunk { block: slot.block, file: name, offset, bytes, checksum: checksum.hex() };
        self.record.chunks.push((slot.kind, slot.name, slot.shape, chunk));
        self.position += bytes;
        Ok(())
    }

    /// Flushes the shard to the device.
    ///
    /// # Panics
    /// If a block that was announced has not been written.
    pub fn finish(self) -> Result<ShardRecord, CheckpointError> {
        assert!(self.waiting.is_empty(), "{} blocks were announced and not written", self.waiting.len());
        if let Some(file) = &self.file {
            file.sync_all().with_path(&self.path, Operation::Flush)?;
        }
        Ok(self.record)
    }
}

fn layout(slots: &VecDeque<Slot>) -> Vec<(String, TensorInfo)> {
    let mut position = 0;
    let mut place = |slot: &Slot| {
        let start = position;
        position += 4 * slot.block.len();
        let shape = slot.block.shape(slot.shape.len());
        (slot.key(), TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, position) })
    };
    slots.iter().map(&mut place).collect()
}
