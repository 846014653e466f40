//! Checkpoints that any layout can read, and the folders of others.
//!
//! A checkpoint is a list of logical tensors, whole and unpadded, cut into chunks that lie in
//! safetensors shards. Nothing in it depends on how many ranks wrote it.
//!
//! - [`Weights`] is anything that logical tensors are read from by [`Block`]: a [`Checkpoint`],
//!   a Hugging Face folder ([`HfFolder`]), a GGUF file ([`GgufFile`]), a Megatron checkpoint.
//! - To save, [`stage`] makes a folder, each rank writes its [`Slot`]s through a [`ShardWriter`],
//!   [`Manifest::assemble`] joins what they wrote and proves that nothing is missing or twice
//!   there, and [`publish`] makes it the newest checkpoint in one rename.
//!   Ranks that share no memory leave notes of what they wrote: [`note_part`], [`written`].
//! - [`latest`] finds it again; [`Checkpoint::read`] checks every byte before it hands it out.
//!
//! ```
//! use henge_checkpoint::{Block, Kind, Manifest, RunState, ShardWriter, Slot, latest, publish, stage};
//!
//! let model = henge_spec::Model::gpt(1, 8, 2, 4, 10);
//! let folder = tempfile::tempdir().unwrap();
//! let run = RunState { step: 7, ..RunState::default() };
//! let staged = stage(folder.path(), run.step).unwrap();
//!
//! // One rank that holds everything; each of several ranks would announce its own blocks.
//! let parameters = henge_spec::parameters(&model);
//! let slots = parameters.iter().map(|p| Slot::new(Kind::Weight, p, Block::whole(p))).collect();
//! let mut shard = ShardWriter::create(&staged, 0, slots).unwrap();
//! for p in &parameters {
//!     shard.add(Kind::Weight, p, Block::whole(p), &vec![0.5; p.len()]).unwrap();
//! }
//! let manifest = Manifest::assemble(&model, run, vec![shard.finish().unwrap()]).unwrap();
//! publish(folder.path(), &manifest, 3).unwrap();
//!
//! let checkpoint = latest(folder.path()).unwrap().unwrap();
//! assert_eq!(checkpoint.manifest().run.step, 7);
//! let mut row = [0.0; 8];
//! let block = Block { row: 9, rows: 1, column: 0, columns: 8 };
//! checkpoint.read(Kind::Weight, "embedding.token.weight", block, &mut row).unwrap();
//! assert_eq!(row, [0.5; 8]);
//! ```
//!
//! This crate must not know: the trainer, ranks beyond a number, schedules, how a model computes.

mod block;
mod checkpoint;
mod error;
mod export;
mod facts;
mod gguf;
mod hugging_face;
mod manifest;
mod megatron;
mod pickle;
mod pickle_writer;
mod publish;
mod quantized;
mod shard;
mod source;
mod stored;
mod tensor_file;
mod tokenizer_file;
mod tools;
mod written;

pub use block::Block;
pub use checkpoint::Checkpoint;
pub use error::CheckpointError;
pub use export::{Export, Exported};
pub use facts::model_of;
pub use gguf::GgufFile;
pub use hugging_face::{HfFolder, export};
pub use manifest::{
    Chunk, FileRecord, Kind, LossScaleState, MANIFEST, Manifest, Norms, Probe, RunState, ShardRecord, TensorRecord,
    VERSION,
};
pub use megatron::{MegatronCheckpoint, export_megatron};
pub use publish::{discard_staged, latest, newest, publish, published, set_aside_after, stage, staged};
pub use shard::{ShardWriter, Slot};
pub use source::{Source, open_source};
pub use tokenizer_file::TokenizerFile;
pub use tools::{Cut, Numbers, Summary, TensorDiff, Verified, diff, import, list, reshape, summarize, verify};
pub use written::{Written, newest_written, note_part, note_run, remove_notes, written};

use henge_spec::Parameter;

/// Something that logical tensors are read from.
pub trait Weights {
    /// Reads a block of a parameter, row-major float32, into `out`.
    ///
    /// # Errors
    /// Where the tensor is absent, of another shape or damaged.
    ///
    /// # Panics
    /// If `out` has another length than the block, or the block does not fit the parameter.
    fn read(&self, parameter: &Parameter, block: Block, out: &mut [f32]) -> Result<(), CheckpointError>;
}
