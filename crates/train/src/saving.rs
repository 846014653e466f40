//! Checkpoints: every rank writes its share, rank 0 publishes; and the way back.

use crate::TrainError;
use crate::rank::Rank;
use henge_checkpoint::{Block, Checkpoint, Kind, LossScaleState, Manifest, RunState, ShardRecord, ShardWriter, Slot};
use henge_comm::{Group, Reduce};
use henge_files::Checksum;
use henge_model::{Slot as Held, TOKEN_TABLE};
use henge_spec::{Parameter, Split};
use henge_tensor::{Backend, Buffer, ViewMut};
use std::path::PathBuf;
use std::sync::PoisonError;

/// What a resumed run goes on from, for a person to check.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The checkpoint.
    pub folder: PathBuf,
    /// Steps taken.
    pub step: u64,
    /// Samples consumed; the next sample has this number.
    pub samples: u64,
    /// Updates applied.
    pub updates: u64,
    /// Learning rate of the next update.
    pub lr: f64,
    /// Loss of the last step before the save.
    pub loss: Option<f64>,
}

impl<B: Backend> Rank<'_, B> {
    /// Writes and publishes a checkpoint of this moment. Returns on every rank once it is
    /// whole on the device.
    pub(crate) fn save(&mut self, loss: f64) -> Result<(), TrainError> {
        let checkpoints = self.job.folder.join("checkpoints");
        let step = self.progress.steps;
        self.comm.at(0, &format!("save of step {step}"));
        self.check_tied_copies()?;
        if self.comm.rank() == 0 {
            henge_checkpoint::stage(&checkpoints, step)?;
        }
        self.comm.barrier(Group::World)?;
        let staged = henge_checkpoint::staged(&checkpoints, step);
        let record = self.write_shard(&staged)?;
        self.records().push(record);
        self.comm.barrier(Group::World)?;
        if self.comm.rank() == 0 {
            let shards = std::mem::take(&mut *self.records());
            let manifest = Manifest::assemble(&self.job.run.model, self.run_state(loss), shards)?;
            let folder = henge_checkpoint::publish(&checkpoints, &manifest, self.job.run.checkpoint_keep)?;
            self.job.observer.saved(step, &folder);
        }
        Ok(self.comm.barrier(Group::World)?)
    }

    /// The two copies of a tied table, and their moments, are equal to the bit; only one is
    /// stored.
    ///
    /// # Panics
    /// If they are not, which is our own mistake.
    fn check_tied_copies(&self) -> Result<(), TrainError> {
        if !self.job.run.model.tie_embeddings {
            return Ok(());
        }
        let mut seen = Checksum::new();
        for (slot, kind) in self.store.token_table().iter().flat_map(|slot| Kind::ALL.map(|kind| (slot, kind))) {
            let values = self.buffer(kind).read_f32(slot.range.start, slot.range.len());
            values.iter().for_each(|value| seen.update(&value.to_le_bytes()));
        }
        // 32 bits are exact in a double; the largest of x and of -x are x and -x only of equals.
        let mine = (seen.value() & u128::from(u32::MAX)) as f64;
        let mut ends = [mine, -mine];
        self.comm.all_reduce(Group::Embedding, ViewMut::of(&mut ends), Reduce::Max)?;
        assert_eq!(ends, [mine, -mine], "the copies of {TOKEN_TABLE} have drifted apart on rank {}", self.comm.rank());
        Ok(())
    }

    fn records(&self) -> std::sync::MutexGuard<'_, Vec<ShardRecord>> {
        self.job.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_shard(&self, folder: &std::path::Path) -> Result<ShardRecord, TrainError> {
        let mine: Vec<&Held> = self
            .store
            .slots
            .iter()
            .enumerate()
            .filter(|(i, slot)| self.writes(*i, slot))
            .map(|(_, slot)| slot)
            .collect();
        let slots = Kind::ALL.iter().flat_map(|&kind| mine.iter().map(move |slot| announced(kind, slot)));
        let mut writer = ShardWriter::create(folder, self.comm.rank(), slots.collect())?;
        for kind in Kind::ALL {
            for slot in &mine {
                let values = self.buffer(kind).read_f32(slot.range.start, slot.range.len());
                writer.add(kind, &slot.parameter, Block::from(slot.block), &values)?;
            }
        }
        Ok(writer.finish()?)
    }

    /// Of the ranks that hold a block, one writes it; blocks go round the replicas, and
    /// wholes round the tensor ranks too, so that all write at once.
    fn writes(&self, index: usize, slot: &Held) -> bool {
        let axes = self.comm.grid().axes();
        let replica = index % axes.data == self.place.data;
        let whole = slot.parameter.split == Split::Whole;
        replica && !slot.copy && (!whole || index / axes.data % axes.tensor == self.place.tensor)
    }

    fn buffer(&self, kind: Kind) -> &B::Buffer {
        match kind {
            Kind::Weight => &self.store.values,
            Kind::FirstMoment => &self.optimizer.first,
            Kind::SecondMoment => &self.optimizer.second,
        }
    }

    fn run_state(&self, loss: f64) -> RunState {
        let scaler = self.scaler.state();
        RunState {
            step: self.progress.steps,
            samples: self.progress.samples,
            tokens: self.progress.tokens,
            seed: self.job.run.seed,
            updates: self.optimizer.updates,
            loss_scale: scaler.map(|(scale, clean_steps, overflows)| LossScaleState { scale, clean_steps, overflows }),
            loss: Some(loss),
            config: self.job.run.render(),
        }
    }

    /// Takes everything back: weights, moments, counts, loss scale. Order and dropout follow
    /// from the number of samples.
    pub(crate) fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let read = |kind: Kind| {
            move |parameter: &Parameter, block: (usize, usize, usize, usize), out: &mut [f32]| {
                checkpoint.read(kind, &parameter.name, Block::from(block), out)
            }
        };
        self.store.load(|slot, out| read(Kind::Weight)(&slot.parameter, slot.block, out))?;
        for slot in &self.store.slots {
            let moments =
                [(Kind::FirstMoment, &mut self.optimizer.first), (Kind::SecondMoment, &mut self.optimizer.second)];
            for (kind, moment) in moments {
                let mut values = vec![0.0; slot.range.len()];
                read(kind)(&slot.parameter, slot.block, &mut values)?;
                moment.write_f32(slot.range.start, &values);
            }
        }
        let state = &checkpoint.manifest().run;
        self.progress.steps = state.step;
        self.progress.samples = state.samples;
        self.progress.tokens = state.tokens;
        self.optimizer.updates = state.updates;
        if let Some(LossScaleState { scale, clean_steps, overflows }) = state.loss_scale {
            self.scaler.restore(scale, clean_steps, overflows);
        }
        self.refresh();
        Ok(())
    }

    pub(crate) fn receipt(&self, checkpoint: &Checkpoint) -> Receipt {
        Receipt {
            folder: checkpoint.folder().to_path_buf(),
            step: self.progress.steps,
            samples: self.progress.samples,
            updates: self.optimizer.updates,
            lr: self.optimizer.lr(),
            loss: checkpoint.manifest().run.loss,
        }
    }
}

fn announced(kind: Kind, slot: &Held) -> Slot {
    Slot::new(kind, &slot.parameter, Block::from(slot.block))
}
