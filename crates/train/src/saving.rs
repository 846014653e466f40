//! Checkpoints: every rank copies its share, a thread of its own writes it while training goes
//! on, and once all parts are on the device rank 0 publishes; and the way back.
//!
//! The ranks agree at the ends of steps that all have written, and again that it is published:
//! no rank looks at another's memory for that.

use crate::optimizer::Optimizer;
use crate::rank::Rank;
use crate::saver::{Part, Phase, Target};
use crate::{Job, TrainError};
use henge_checkpoint::{Block, Checkpoint, Kind, LossScaleState, Manifest, Norms, RunState, Written};
use henge_comm::{Group, Reduce};
use henge_files::Checksum;
use henge_model::{Slot as Held, Store, TOKEN_TABLE};
use henge_spec::{Parameter, Split};
use henge_tensor::{Backend, Buffer, Real, ViewMut};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

impl Job {
    /// Publishes the save in `staged`, of which every rank has written its part.
    pub(crate) fn publish(&self, staged: &Path) -> Result<(u64, PathBuf), TrainError> {
        let gone = || TrainError::Output {
            path: staged.display().to_string(),
            source: io::Error::new(io::ErrorKind::NotFound, "a note of what a rank has written is gone"),
        };
        let written = henge_checkpoint::written(staged, self.run.layout.ranks())?;
        self.publish_written(staged, written.ok_or_else(gone)?)
    }

    fn publish_written(&self, staged: &Path, written: Written) -> Result<(u64, PathBuf), TrainError> {
        let Written { run, records, squares } = written;
        let step = run.step;
        // A norm that is no number has no form in JSON.
        let finite = squares.iter().all(|square: &f64| square.is_finite());
        let run = RunState { norms: finite.then(|| Norms::of_squares(squares)), ..run };
        let manifest = Manifest::assemble(&self.run.model, run, records)?;
        henge_checkpoint::remove_notes(staged, self.run.layout.ranks())?;
        let folder = henge_checkpoint::publish(&self.checkpoints(), &manifest, self.run.checkpoint_keep)?;
        Ok((step, folder))
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    /// After a failure: a save whose parts are all there is published, since nobody writes it any
    /// more. What is left of any other goes, since on a full disk it stands in the way of going
    /// on; unless a rank was left behind, which may still be writing.
    pub fn settle(&self, left_behind: bool) {
        let checkpoints = self.checkpoints();
        if let Some((staged, written)) = henge_checkpoint::newest_written(&checkpoints, self.run.layout.ranks()) {
            // The failure that led here is what is reported; the checkpoint before it stays.
            let saved = self.publish_written(&staged, written).ok();
            saved.into_iter().for_each(|(step, folder)| self.observer.saved(step, &folder));
        }
        if !left_behind {
            henge_checkpoint::discard_staged(&checkpoints);
        }
    }
}

impl<B: Backend> Rank<'_, B> {
    /// Begins a checkpoint of this moment: takes a copy, which a thread writes while training
    /// goes on. One save is in flight at most; the one before it is awaited first.
    pub(crate) fn begin_save(&mut self, loss: f64) -> Result<(), TrainError> {
        self.finish_save()?;
        let begin = Instant::now();
        let step = self.progress.steps;
        self.comm.at(0, &format!("save of step {step}"));
        self.check_tied_copies()?;
        let checkpoints = self.job.checkpoints();
        let probe = self.probe(self.progress.last_first, self.probed_length())?;
        let (staged, rank) = (henge_checkpoint::staged(&checkpoints, step), self.comm.rank());
        let mut target = Target { staged, rank, run: None };
        if rank == 0 {
            henge_checkpoint::stage(&checkpoints, step)?;
            let probe = Some(probe).filter(|probe| probe.loss.is_finite());
            target.run = Some(RunState { probe, ..self.run_state(loss) });
        }
        self.comm.barrier(Group::World)?;
        let parts = self.parts();
        let (store, optimizer) = (&self.store, &self.optimizer);
        self.saver.write(target, parts, |part, out| read_into(buffer(store, optimizer, part.kind), part.start, out))?;
        self.saver.held_up += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Moves a save in flight on, where every rank is ready for it: `busy` is whether any rank
    /// was at work on it when all were asked.
    pub(crate) fn advance_save(&mut self, busy: bool) -> Result<(), TrainError> {
        match self.saver.phase {
            _ if busy => {}
            Phase::Idle => {}
            Phase::Writing => {
                if self.comm.rank() == 0 {
                    self.saver.publish()?;
                }
                self.saver.phase = Phase::Publishing;
            }
            Phase::Publishing => {
                self.saver.phase = Phase::Idle;
                if let Some((step, folder)) = self.saver.published.take() {
                    self.job.observer.saved(step, &folder);
                }
            }
        }
        Ok(())
    }

    /// Returns on every rank once the save in flight is whole on the device.
    pub(crate) fn finish_save(&mut self) -> Result<(), TrainError> {
        let begin = Instant::now();
        while self.saver.phase != Phase::Idle {
            let busy = self.saver.is_busy()?;
            if busy && begin.elapsed().as_secs() >= self.job.run.timeout {
                let (rank, waited) = (self.comm.rank(), self.job.run.timeout);
                return Err(TrainError::SlowSave { rank, waited, folder: self.saver.leave() });
            }
            let busy = self.largest(f64::from(u8::from(busy)))? > 0.0;
            self.advance_save(busy)?;
            if busy {
                // Asked again rather than waited for: a slow disk must not end a call's time.
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.saver.held_up += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// What this rank writes of a checkpoint, in the order of its shard.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let mine = self.store.slots.iter().enumerate().filter(|(i, slot)| self.writes(*i, slot));
        let mine: Vec<&Held> = mine.map(|(_, slot)| slot).collect();
        let part = |kind, slot: &Held| Part {
            kind,
            parameter: slot.parameter.clone(),
            block: Block::from(slot.block),
            start: slot.range.start,
        };
        Kind::ALL.iter().flat_map(|&kind| mine.iter().map(move |slot| part(kind, slot))).collect()
    }

    /// The two copies of a tied table, and their moments, are equal to the bit; only one is
    /// stored.
    ///
    /// # Panics
    /// If they are not, which is our own mistake.
    fn check_tied_copies(&self) -> Result<(), TrainError> {
        // Where both ends are one rank there is one table.
        if !self.job.run.model.head_is_tied() || self.comm.grid().axes().pipeline == 1 {
            return Ok(());
        }
        let mut seen = Checksum::new();
        for (slot, kind) in self.store.token_table().iter().flat_map(|slot| Kind::ALL.map(|kind| (slot, kind))) {
            let mut values = [0.0; AT_ONCE];
            for start in slot.range.clone().step_by(AT_ONCE) {
                let values = &mut values[..AT_ONCE.min(slot.range.end - start)];
                read_into(self.buffer(kind), start, values);
                seen.update(bytemuck::cast_slice(values));
            }
        }
        // 32 bits are exact in a double; the largest of x and of -x are x and -x only of equals.
        let mine = (seen.value() & u128::from(u32::MAX)) as f64;
        let mut ends = [mine, -mine];
        self.comm.all_reduce(Group::Embedding, ViewMut::of(&mut ends), Reduce::Max)?;
        assert_eq!(ends, [mine, -mine], "the copies of {TOKEN_TABLE} have drifted apart on rank {}", self.comm.rank());
        Ok(())
    }

    /// Of the ranks that hold a block, one writes it; blocks go round the replicas, and
    /// wholes round the tensor ranks too, so that all write at once.
    fn writes(&self, index: usize, slot: &Held) -> bool {
        let axes = self.comm.grid().axes();
        let replica = index % axes.data == self.place.data;
        let whole = slot.parameter.split == Split::Whole;
        replica && !slot.copy && (!whole || index / axes.data % axes.tensor == self.place.tensor)
    }

    pub(crate) fn buffer(&self, kind: Kind) -> &B::Buffer {
        buffer(&self.store, &self.optimizer, kind)
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
            norms: None,
            probe: None,
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
        self.progress.last_first = state.samples;
        self.progress.tokens = state.tokens;
        self.optimizer.updates = state.updates;
        if let Some(LossScaleState { scale, clean_steps, overflows }) = state.loss_scale {
            self.scaler.restore(scale, clean_steps, overflows);
        }
        self.refresh();
        Ok(())
    }
}

fn buffer<'a, B: Backend>(store: &'a Store<B>, optimizer: &'a Optimizer<B>, kind: Kind) -> &'a B::Buffer {
    match kind {
        Kind::Weight => &store.values,
        Kind::FirstMoment => &optimizer.first,
        Kind::SecondMoment => &optimizer.second,
    }
}

/// Elements that are read together: they stay in the first cache between two copies.
const AT_ONCE: usize = 4096;

/// `out.len()` elements from `start` as a file holds them.
pub(crate) fn read_into<R: Real>(buffer: &impl Buffer<R>, start: usize, out: &mut [f32]) {
    let mut host = [R::of(0.0); AT_ONCE];
    for (place, out) in out.chunks_mut(AT_ONCE).enumerate() {
        let host = &mut host[..out.len()];
        buffer.read(start + place * AT_ONCE, host);
        out.iter_mut().zip(host).for_each(|(out, value)| *out = value.wide() as f32);
    }
}
