//! A rank's share of the parameters: one flat buffer of values, one of gradients.

use crate::Place;
use henge_random::{fill_normal, key};
use henge_spec::{Home, Init, Model, Parameter, Split, parameters};
use henge_tensor::{Backend, Buffer, Kind};
use std::ops::Range;

/// The token table, which a tied head shares.
pub const TOKEN_TABLE: &str = "embedding.token.weight";

/// A rank's block of one logical parameter.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The whole.
    pub parameter: Parameter,
    /// First row, rows, first column, columns of the block.
    pub block: (usize, usize, usize, usize),
    /// Place in the flat buffers.
    pub range: Range<usize>,
    /// Chunk that the slot belongs to.
    pub chunk: usize,
    /// Whether this is the last stage's copy of a tied table; the first stage owns it.
    pub copy: bool,
}

impl Slot {
    /// Whether this rank's elements enter a sum over the model group: blocks everywhere,
    /// wholes on the first tensor rank, copies nowhere.
    pub fn counts(&self, tensor_rank: usize) -> bool {
        !self.copy && (self.parameter.split != Split::Whole || tensor_rank == 0)
    }
}

/// The flat buffers and what stands where in them.
pub struct Store<B: Backend> {
    /// Blocks in the order of the buffers.
    pub slots: Vec<Slot>,
    /// Master weights.
    pub values: B::Buffer,
    /// Gradients of the step so far.
    pub grads: B::Buffer,
    chunks: Vec<Range<usize>>,
}

impl<B: Backend> Store<B> {
    /// A store of zeros for the stages at `places`, one per chunk.
    pub fn new(backend: &B, model: &Model, places: &[Place]) -> Self {
        let store = Self::without_grads(backend, model, places);
        Self { grads: backend.zeros(store.values.len(), Kind::Gradient), ..store }
    }

    /// The same for stages that are not trained: the gradient buffer is empty.
    pub fn without_grads(backend: &B, model: &Model, places: &[Place]) -> Self {
        let (mut slots, mut chunks, mut end) = (Vec::new(), Vec::new(), 0);
        for (chunk, place) in places.iter().enumerate() {
            let start = end;
            for (parameter, copy) in of_stage(model, place) {
                let block = parameter.block(model, place.tensor, place.tensors);
                let range = end..end + block.1 * block.3;
                end = range.end;
                slots.push(Slot { parameter, block, range, chunk, copy });
            }
            chunks.push(start..end);
        }
        Self { slots, values: backend.zeros(end, Kind::Weight), grads: backend.zeros(0, Kind::Gradient), chunks }
    }

    /// The buffers' range of a chunk.
    pub fn chunk(&self, chunk: usize) -> Range<usize> {
        self.chunks[chunk].clone()
    }

    /// The slot of a logical name in a chunk.
    ///
    /// # Panics
    /// If the chunk does not hold it.
    pub fn slot(&self, chunk: usize, name: &str) -> &Slot {
        self.find(chunk, name).unwrap_or_else(|| panic!("chunk {chunk} holds no `{name}`"))
    }

    /// The slot of a logical name in a chunk, where the model has it.
    pub fn find(&self, chunk: usize, name: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.chunk == chunk && slot.parameter.name == name)
    }

    /// The slot of the token table, whichever chunk holds it.
    pub fn token_table(&self) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.parameter.name == TOKEN_TABLE)
    }

    /// Draws initial values: element i of a logical tensor is a function of the seed, the
    /// tensor's name and i.
    pub fn draw(&mut self, seed: u64) {
        for slot in &self.slots {
            self.values.write_f32(slot.range.start, &drawn(slot, seed));
        }
    }

    /// Fills the values from elsewhere, block by block; what `read` leaves is zero.
    pub fn load<E>(&mut self, mut read: impl FnMut(&Slot, &mut [f32]) -> Result<(), E>) -> Result<(), E> {
        for slot in &self.slots {
            let mut host = vec![0.0; slot.range.len()];
            read(slot, &mut host)?;
            self.values.write_f32(slot.range.start, &host);
        }
        Ok(())
    }

    /// As [`Store::load`]; a block of which `read` says that it has none is drawn.
    pub fn load_or_draw<E>(
        &mut self,
        seed: u64,
        mut read: impl FnMut(&Slot, &mut [f32]) -> Result<bool, E>,
    ) -> Result<(), E> {
        for slot in &self.slots {
            let mut host = vec![0.0; slot.range.len()];
            if !read(slot, &mut host)? {
                host = drawn(slot, seed);
            }
            self.values.write_f32(slot.range.start, &host);
        }
        Ok(())
    }

    /// Sets every gradient to zero.
    pub fn clear_grads(&mut self) {
        let all = 0..self.grads.len();
        self.grads.zero(all);
    }
}

/// Parameters of a stage in forward order; `true` marks the last stage's copy of the tied
/// table.
fn of_stage(model: &Model, place: &Place) -> Vec<(Parameter, bool)> {
    let layers = place.layers(model);
    let here = |home: Home| match home {
        Home::Embedding => place.is_first(),
        Home::Layer(layer) => layers.contains(&layer),
        Home::Head => place.is_last(),
    };
    let all = parameters(model);
    let copied = model.head_is_tied() && place.is_last() && !place.is_first();
    let copy = all.iter().filter(|p| copied && p.name == TOKEN_TABLE).cloned().map(|p| (p, true));
    let copy: Vec<_> = copy.collect();
    all.into_iter().filter(|p| here(p.home)).map(|p| (p, false)).chain(copy).collect()
}

fn drawn(slot: &Slot, seed: u64) -> Vec<f32> {
    let (row, rows, column, columns) = slot.block;
    let mut host = vec![0.0; rows * columns];
    match slot.parameter.init {
        Init::Zeros => {}
        Init::Ones => host.fill(1.0),
        Init::Normal(std) => {
            let key = key(seed, &slot.parameter.name);
            let width = slot.parameter.matrix().1;
            for (i, out) in host.chunks_mut(columns.max(1)).enumerate() {
                fill_normal(key, ((row + i) * width + column) as u64, std, out);
            }
        }
    }
    host
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_spec::{Arch, TaskHead};

    fn token_tables(model: &Model, stage: usize) -> Vec<bool> {
        let place = Place { tensor: 0, tensors: 1, stage, stages: 2 };
        of_stage(model, &place).into_iter().filter(|(p, _)| p.name == TOKEN_TABLE).map(|(_, copy)| copy).collect()
    }

    #[test]
    fn the_last_stage_holds_a_copy_of_the_table_only_where_its_head_reads_it() {
        let pretraining = Model { arch: Arch::Bert, ..Model::gpt(2, 32, 4, 16, 100) };
        let tuned = |task| Model { task: Some(task), ..pretraining.clone() };
        let untied = Model { tie_embeddings: false, ..pretraining.clone() };
        assert_eq!((token_tables(&pretraining, 0), token_tables(&pretraining, 1)), (vec![false], vec![true]));
        for model in [untied, tuned(TaskHead::Classes(3)), tuned(TaskHead::Choice(4)), tuned(TaskHead::Span)] {
            assert_eq!((token_tables(&model, 0), token_tables(&model, 1)), (vec![false], vec![]), "{model:?}");
        }
    }
}
