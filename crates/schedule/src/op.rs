//! The operations of a program and the messages they pass.

use crate::shape::Shape;

/// Which way a message travels: activations towards the loss, gradients away from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    Activation,
    Gradient,
}

/// A message across the boundary of two virtual stages, unique within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    pub direction: Direction,
    /// The virtual stage (`0..pipeline * chunks`) that sends.
    pub stage: usize,
    pub microbatch: usize,
}

/// The two pipeline ranks that a message connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub sender: usize,
    pub receiver: usize,
}

impl Message {
    pub(crate) fn activation(stage: usize, microbatch: usize) -> Self {
        Message { direction: Direction::Activation, stage, microbatch }
    }

    pub(crate) fn gradient(stage: usize, microbatch: usize) -> Self {
        Message { direction: Direction::Gradient, stage, microbatch }
    }

    /// Whether a program of this shape has the message: the last stage sends no activation, the first no gradient.
    pub(crate) fn exists_in(&self, shape: &Shape) -> bool {
        let sending_stages = match self.direction {
            Direction::Activation => 0..shape.stages() - 1,
            Direction::Gradient => 1..shape.stages(),
        };
        sending_stages.contains(&self.stage) && self.microbatch < shape.microbatches
    }

    /// Only for messages that exist in their shape.
    pub(crate) fn ends(&self, pipeline: usize) -> Ends {
        let sender = self.stage % pipeline;
        let receiver = match self.direction {
            Direction::Activation if sender + 1 == pipeline => 0,
            Direction::Activation => sender + 1,
            Direction::Gradient if sender == 0 => pipeline - 1,
            Direction::Gradient => sender - 1,
        };
        Ends { sender, receiver }
    }

    /// A dense number below [`Message::slots`], unique among the messages that exist.
    pub(crate) fn slot(&self, shape: &Shape) -> usize {
        let stage = match self.direction {
            Direction::Activation => self.stage,
            Direction::Gradient => shape.stages() + self.stage,
        };
        stage * shape.microbatches + self.microbatch
    }

    pub(crate) fn slots(shape: &Shape) -> usize {
        2 * shape.stages() * shape.microbatches
    }
}

/// One operation of a rank's program. `from` and `to` are pipeline ranks; all numbers count from 0.
///
/// The crate's opening page says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Forward { chunk: usize, microbatch: usize },
    Backward { chunk: usize, microbatch: usize },
    PostRecv { message: Message, from: usize },
    WaitRecv { message: Message, from: usize },
    Send { message: Message, to: usize },
    WaitSend { message: Message, to: usize },
    ReduceGradients { chunk: usize },
    SyncEmbedding,
    Step,
}
