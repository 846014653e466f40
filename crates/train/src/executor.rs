//! Walks a rank's program through one step. What a rank does is the program's to say; the
//! executor has no branch on rank.

use crate::TrainError;
use crate::totals::{self, LossSums};
use henge_comm::{Comm, Group, Tag};
use henge_model::{Context, LossGradient, Microbatch, Output, Saved, Stage, Store};
use henge_schedule::{Direction, Message, Op, Program, virtual_stage};
use henge_tensor::{Backend, Buffer};
use std::collections::HashMap;

/// The stages of a rank, one per chunk, with what each works in.
pub(crate) struct Stages<'a, B: Backend> {
    pub stages: &'a [Stage<B>],
    pub contexts: Vec<Context<'a, B>>,
}

/// What one step works on.
pub(crate) struct Work<'a> {
    /// This replica's microbatches.
    pub micros: &'a [Microbatch],
    /// Weight of each token's loss in the gradient.
    pub scale: f64,
    /// Weight of each sequence's loss in the gradient.
    pub class_scale: f64,
}

/// Things on their way through a step.
pub(crate) struct Executor<'a, B: Backend> {
    backend: &'a B,
    comm: &'a dyn Comm<B::Activation>,
    stages: Stages<'a, B>,
    store: &'a mut Store<B>,
    work: Work<'a>,
    arrived: HashMap<Message, B::Activation>,
    outgoing: HashMap<Message, B::Activation>,
    saved: HashMap<(usize, usize), Saved<B>>,
    losses: LossSums,
}

impl<'a, B: Backend> Executor<'a, B> {
    pub fn new(
        backend: &'a B,
        comm: &'a dyn Comm<B::Activation>,
        stages: Stages<'a, B>,
        store: &'a mut Store<B>,
        work: Work<'a>,
    ) -> Self {
        let (arrived, outgoing, saved) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { backend, comm, stages, store, work, arrived, outgoing, saved, losses: LossSums::default() }
    }

    /// Runs every operation of pipeline rank `rank` up to the optimizer's and returns the sums of the losses
    /// that this rank's last stage saw.
    pub fn walk(mut self, program: &Program, rank: usize) -> Result<LossSums, TrainError> {
        for (position, op) in program.rank(rank).iter().enumerate() {
            self.comm.at(position, &program.word(rank, position));
            self.perform(*op)?;
        }
        Ok(self.losses)
    }

    fn perform(&mut self, op: Op) -> Result<(), TrainError> {
        match op {
            Op::Forward { chunk, microbatch } => self.forward(chunk, microbatch),
            Op::Backward { chunk, microbatch } => self.backward(chunk, microbatch),
            Op::PostRecv { message, from } => self.post(message, from),
            Op::WaitRecv { message, from } => self.receive(message, from),
            Op::Send { message, to } => self.send(message, to),
            Op::WaitSend { message, to } => Ok(self.comm.wait_send(self.peer(to), tag(message))?),
            Op::ReduceGradients { chunk } => self.reduce_gradients(chunk),
            Op::SyncEmbedding => self.sync_embedding(),
            // The optimizer needs what only the whole walk knows; the rank steps it next.
            Op::Step => Ok(()),
        }
    }

    fn stage_of(&self, chunk: usize) -> usize {
        let here = self.comm.grid().place(self.comm.rank());
        virtual_stage(self.comm.grid().axes().pipeline, here.pipeline, chunk)
    }

    /// The world rank of a pipeline rank in this rank's pipeline.
    fn peer(&self, pipeline: usize) -> usize {
        self.comm.grid().on_pipeline(self.comm.rank(), pipeline)
    }

    fn forward(&mut self, chunk: usize, microbatch: usize) -> Result<(), TrainError> {
        let stage = self.stage_of(chunk);
        let before = stage.checked_sub(1).map(|stage| Message { direction: Direction::Activation, stage, microbatch });
        let input = before.and_then(|message| self.arrived.remove(&message));
        let gradient =
            LossGradient { grads: &mut self.store.grads, scale: self.work.scale, class_scale: self.work.class_scale };
        let (context, micro) = (&self.stages.contexts[chunk], &self.work.micros[microbatch]);
        let (output, saved) = self.stages.stages[chunk].forward(context, micro, input, gradient)?;
        self.saved.insert((chunk, microbatch), saved);
        match output {
            Output::Hidden(hidden) => {
                self.outgoing.insert(Message { direction: Direction::Activation, stage, microbatch }, hidden);
            }
            Output::Losses(losses) => self.losses.add(&losses),
        }
        Ok(())
    }

    fn backward(&mut self, chunk: usize, microbatch: usize) -> Result<(), TrainError> {
        let stage = self.stage_of(chunk);
        let after = Message { direction: Direction::Gradient, stage: stage + 1, microbatch };
        let dy = self.arrived.remove(&after);
        let saved = self.saved.remove(&(chunk, microbatch)).expect("a checked program runs forward before backward");
        let (context, micro) = (&self.stages.contexts[chunk], &self.work.micros[microbatch]);
        let dx = self.stages.stages[chunk].backward(context, micro, saved, dy, &mut self.store.grads)?;
        if let Some(dx) = dx {
            self.outgoing.insert(Message { direction: Direction::Gradient, stage, microbatch }, dx);
        }
        Ok(())
    }

    fn post(&mut self, message: Message, from: usize) -> Result<(), TrainError> {
        let micro = &self.work.micros[message.microbatch];
        let (rows, columns) = (micro.tokens.len(), self.stages.contexts[0].model.hidden);
        let blank = Box::new(|| self.backend.blank(rows, columns));
        Ok(self.comm.post_receive(self.peer(from), tag(message), blank)?)
    }

    fn receive(&mut self, message: Message, from: usize) -> Result<(), TrainError> {
        let arrived = self.comm.wait_receive(self.peer(from), tag(message))?;
        self.arrived.insert(message, arrived);
        Ok(())
    }

    fn send(&mut self, message: Message, to: usize) -> Result<(), TrainError> {
        let outgoing = self.outgoing.remove(&message).expect("a checked program sends what it has made");
        Ok(self.comm.send(self.peer(to), tag(message), outgoing)?)
    }

    fn reduce_gradients(&mut self, chunk: usize) -> Result<(), TrainError> {
        if self.comm.grid().axes().data == 1 {
            return Ok(());
        }
        let range = self.store.chunk(chunk);
        totals::sum_view(self.comm, Group::Data, self.store.grads.view_mut(range))
    }

    /// Both ends of the pipeline add first + last, in that order of ranks, so that the two
    /// copies of the tied table stay equal to the bit.
    fn sync_embedding(&mut self) -> Result<(), TrainError> {
        if !self.stages.contexts[0].model.head_is_tied() {
            return Ok(());
        }
        let range = self
            .store
            .token_table()
            .map(|slot| slot.range.clone())
            .expect("both ends of a pipeline hold the tied table");
        totals::sum_view(self.comm, Group::Embedding, self.store.grads.view_mut(range))
    }
}

pub(crate) fn tag(message: Message) -> Tag {
    Tag {
        direction: match message.direction {
            Direction::Activation => 0,
            Direction::Gradient => 1,
        },
        stage: u32::try_from(message.stage).expect("fewer than 2^32 stages"),
        microbatch: message.microbatch as u64,
    }
}
