//! A place in a program, for messages.

use std::fmt;

use crate::op::Op;
use crate::shape::Shape;
use crate::text::Word;

/// An operation of a rank, or the place where it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub rank: usize,
    /// Index into the rank's operations; `None` where the rank has no such operation.
    pub position: Option<usize>,
    pub op: Op,
    word: String,
}

impl Site {
    pub(crate) fn new(shape: &Shape, rank: usize, position: Option<usize>, op: Op) -> Self {
        Site { rank, position, op, word: Word { shape, rank, op }.to_string() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(position) => write!(f, "rank {} operation {position} `{}`", self.rank, self.word),
            None => write!(f, "rank {} (which has no `{}`)", self.rank, self.word),
        }
    }
}
