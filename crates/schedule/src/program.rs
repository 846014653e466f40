//! A step of the whole pipeline: one list of operations per rank.

use crate::generate;
use crate::op::Op;
use crate::shape::{ScheduleError, Shape};

/// What every pipeline rank does in one training step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub shape: Shape,
    /// `ranks[r]` is what pipeline rank `r` does, in order.
    pub ranks: Vec<Vec<Op>>,
    /// How many receives a rank has posted beyond the one it waits for.
    pub receive_window: usize,
}

impl Program {
    /// The program of a shape, with the smallest receive window that cannot deadlock.
    ///
    /// # Errors
    /// When no program exists for the shape; see [`Shape::validate`].
    pub fn generate(shape: Shape) -> Result<Program, ScheduleError> {
        shape.validate()?;
        Self::with_window(shape, generate::smallest_window(&shape))
    }

    /// The program of a shape with a receive window of one's choice. A larger one than [`generate`](Self::generate)
    /// picks gives messages more time to travel, at one more buffer each; a smaller one deadlocks.
    ///
    /// # Errors
    /// When no program exists for the shape; see [`Shape::validate`].
    pub fn with_window(shape: Shape, receive_window: usize) -> Result<Program, ScheduleError> {
        shape.validate()?;
        let ranks = (0..shape.pipeline).map(|rank| generate::rank_ops(&shape, rank, receive_window)).collect();
        Ok(Program { shape, ranks, receive_window })
    }

    /// The operations of pipeline rank `r`.
    ///
    /// # Panics
    /// When `r` is not a rank of this program.
    pub fn rank(&self, r: usize) -> &[Op] {
        &self.ranks[r]
    }
}
