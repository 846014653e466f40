//! The text form of a program: one line per rank, one word per operation.
//!
//! ```text
//! r1: r+F1<0 r+F2<0 r-F1<0 F1 s+F1>2 s-F1>2 ...
//! ```
//!
//! | word | operation |
//! |---|---|
//! | `F3`, `B3` | forward, backward of the third microbatch (text counts microbatches from 1, ranks from 0) |
//! | `F3a`, `B3b` | the same of the first, second chunk, where a rank has several |
//! | `r+F3<0`, `r-F3<0` | post, wait for the receive of what rank 0 made in its `F3` |
//! | `s+F3>2`, `s-F3>2` | start, wait for the send of what this rank made in its `F3` to rank 2 |
//! | `reduce`, `reduce:a` | reduce the gradients (of the first chunk) |
//! | `sync` | add the two copies of the tied embedding's gradient |
//! | `step` | optimizer step |
//!
//! A message is named by the operation that makes it, so a chunk letter in `r+F3a<3` is the sender's. `@` and a rank
//! stand behind that name where the maker is not the rank that the rest of the word implies, which only a damaged
//! program has.

use std::fmt::{self, Write};

use crate::op::{Direction, Message, Op};
use crate::program::Program;
use crate::shape::{Shape, rank_and_chunk};

/// How much of a program its text shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Forwards and backwards.
    Compute,
    /// Every operation, in the form that [`Program::parse`] reads back.
    Messages,
}

impl Program {
    /// One line per rank: `r0: F1 F2 B1 ...`, chunks as letters (`F1a`), microbatches counted from 1.
    ///
    /// With [`Detail::Messages`] all operations: `r+F1<0` posts and `r-F1<0` waits for the receive of what rank 0 made
    /// in its `F1`; `s+F1>2` starts and `s-F1>2` waits for the send of what this rank made in its `F1` to rank 2;
    /// `reduce`, `sync` and `step` are the rest. The letter in a message is its sender's chunk.
    pub fn text(&self, detail: Detail) -> String {
        let mut text = String::new();
        for (rank, ops) in self.ranks.iter().enumerate() {
            let words = ops
                .iter()
                .filter(|op| detail == Detail::Messages || matches!(op, Op::Forward { .. } | Op::Backward { .. }))
                .map(|&op| Word { shape: &self.shape, rank, op });
            write_line(&mut text, rank, words).expect("a String takes any text");
        }
        text
    }
}

impl Program {
    /// The operation at `position` of `rank` as the text form has it, for reports.
    pub fn word(&self, rank: usize, position: usize) -> String {
        Word { shape: &self.shape, rank, op: self.ranks[rank][position] }.to_string()
    }
}

fn write_line<'a>(text: &mut String, rank: usize, words: impl Iterator<Item = Word<'a>>) -> fmt::Result {
    write!(text, "r{rank}:")?;
    for word in words {
        write!(text, " {word}")?;
    }
    text.write_char('\n')
}

/// One operation as it stands in the line of `rank`.
pub(crate) struct Word<'a> {
    pub shape: &'a Shape,
    pub rank: usize,
    pub op: Op,
}

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.rank;
        match self.op {
            Op::Forward { chunk, microbatch } => self.compute(f, 'F', chunk, microbatch),
            Op::Backward { chunk, microbatch } => self.compute(f, 'B', chunk, microbatch),
            Op::PostRecv { message, from } => self.message(f, "r+", message, from, ('<', from)),
            Op::WaitRecv { message, from } => self.message(f, "r-", message, from, ('<', from)),
            Op::Send { message, to } => self.message(f, "s+", message, rank, ('>', to)),
            Op::WaitSend { message, to } => self.message(f, "s-", message, rank, ('>', to)),
            Op::ReduceGradients { chunk: 0 } if self.shape.chunks == 1 => f.write_str("reduce"),
            Op::ReduceGradients { chunk } => write!(f, "reduce:{}", letters(chunk)),
            Op::SyncEmbedding => f.write_str("sync"),
            Op::Step => f.write_str("step"),
        }
    }
}

impl Word<'_> {
    fn compute(&self, f: &mut fmt::Formatter<'_>, letter: char, chunk: usize, microbatch: usize) -> fmt::Result {
        // Wider than the field: a damaged program may hold the largest number there is.
        write!(f, "{letter}{}", microbatch as u128 + 1)?;
        if self.shape.chunks > 1 || chunk > 0 { f.write_str(&letters(chunk)) } else { Ok(()) }
    }

    fn message(
        &self,
        f: &mut fmt::Formatter<'_>,
        prefix: &str,
        message: Message,
        implied_maker: usize,
        (arrow, peer): (char, usize),
    ) -> fmt::Result {
        let (maker, chunk) = rank_and_chunk(self.shape.pipeline, message.stage);
        let letter = match message.direction {
            Direction::Activation => 'F',
            Direction::Gradient => 'B',
        };
        f.write_str(prefix)?;
        self.compute(f, letter, chunk, message.microbatch)?;
        if maker != implied_maker {
            write!(f, "@{maker}")?;
        }
        write!(f, "{arrow}{peer}")
    }
}

/// 0 is `a`, 25 `z`, 26 `aa`, as spreadsheet columns.
fn letters(chunk: usize) -> String {
    let mut reversed = Vec::new();
    let mut rest = Some(chunk);
    while let Some(number) = rest {
        reversed.push(char::from(b'a' + (number % 26) as u8));
        rest = (number / 26).checked_sub(1);
    }
    reversed.iter().rev().collect()
}
