//! Reading the text form back.

use thiserror::Error;

use crate::op::{Direction, Message, Op};
use crate::program::Program;
use crate::shape::{ScheduleError, Shape};

/// Why a text is not a program. Lines and words count from 1.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    #[error(transparent)]
    Shape(#[from] ScheduleError),
    #[error("line {line} begins with {found:?}: the next rank's line begins with \"r{rank}:\"")]
    RankLabel { line: usize, found: String, rank: usize },
    #[error("the text has lines for {found} ranks and the shape has {expected}: give each rank one line")]
    RankCount { found: usize, expected: usize },
    #[error(
        "line {line}, word {position}: {word:?} is no operation; \
         write F1, B1, r+F1<0, r-F1<0, s+F1>1, s-F1>1, reduce, sync or step, with a chunk letter as in F1a"
    )]
    Word { line: usize, position: usize, word: String },
}

impl Program {
    /// Reads what [`Program::text`] wrote, empty lines ignored. Text at [`Detail::Compute`](crate::Detail::Compute)
    /// gives a program without messages.
    ///
    /// The receive window is the largest number of receives posted beyond the one waited for. Only the form is checked
    /// here; whether the program is sound is for [`check`](crate::check) to say.
    ///
    /// # Errors
    /// The shape has no program, a line is not the next rank's, or a word is no operation.
    pub fn parse(shape: Shape, text: &str) -> Result<Program, ParseError> {
        shape.validate()?;
        let mut ranks = Vec::with_capacity(shape.pipeline);
        for (index, line) in text.lines().enumerate() {
            if !line.trim().is_empty() {
                ranks.push(parse_line(&shape, ranks.len(), index + 1, line)?);
            }
        }
        if ranks.len() != shape.pipeline {
            return Err(ParseError::RankCount { found: ranks.len(), expected: shape.pipeline });
        }
        let receive_window = ranks.iter().map(|ops| receives_ahead(ops)).max().unwrap_or(0);
        Ok(Program { shape, ranks, receive_window })
    }
}

fn parse_line(shape: &Shape, rank: usize, line: usize, text: &str) -> Result<Vec<Op>, ParseError> {
    let mut words = text.split_whitespace();
    let label = words.next().unwrap_or_default();
    if label != format!("r{rank}:") {
        return Err(ParseError::RankLabel { line, found: label.to_string(), rank });
    }
    let parse = |(index, word): (usize, &str)| {
        parse_word(shape, rank, word).ok_or_else(|| ParseError::Word {
            line,
            position: index + 1,
            word: word.to_string(),
        })
    };
    words.enumerate().map(parse).collect()
}

fn parse_word(shape: &Shape, rank: usize, word: &str) -> Option<Op> {
    match word {
        "reduce" => return Some(Op::ReduceGradients { chunk: 0 }),
        "sync" => return Some(Op::SyncEmbedding),
        "step" => return Some(Op::Step),
        _ => {}
    }
    if let Some(chunk) = word.strip_prefix("reduce:") {
        return Some(Op::ReduceGradients { chunk: parse_letters(chunk)? });
    }
    match word.split_at_checked(2)? {
        ("r+", rest) => parse_receive(shape, rest).map(|(message, from)| Op::PostRecv { message, from }),
        ("r-", rest) => parse_receive(shape, rest).map(|(message, from)| Op::WaitRecv { message, from }),
        ("s+", rest) => parse_send(shape, rank, rest).map(|(message, to)| Op::Send { message, to }),
        ("s-", rest) => parse_send(shape, rank, rest).map(|(message, to)| Op::WaitSend { message, to }),
        _ => parse_compute(word).map(|made| match made.direction {
            Direction::Activation => Op::Forward { chunk: made.chunk, microbatch: made.microbatch },
            Direction::Gradient => Op::Backward { chunk: made.chunk, microbatch: made.microbatch },
        }),
    }
}

fn parse_receive(shape: &Shape, text: &str) -> Option<(Message, usize)> {
    let (name, from) = text.split_once('<')?;
    let from = parse_number(from)?;
    Some((parse_message(shape, from, name)?, from))
}

fn parse_send(shape: &Shape, rank: usize, text: &str) -> Option<(Message, usize)> {
    let (name, to) = text.split_once('>')?;
    Some((parse_message(shape, rank, name)?, parse_number(to)?))
}

fn parse_message(shape: &Shape, implied_maker: usize, name: &str) -> Option<Message> {
    let (name, maker) = match name.split_once('@') {
        Some((name, maker)) => (name, parse_number(maker)?),
        None => (name, implied_maker),
    };
    let Compute { direction, chunk, microbatch } = parse_compute(name)?;
    let stage = chunk.checked_mul(shape.pipeline)?.checked_add(maker)?;
    Some(Message { direction, stage, microbatch })
}

struct Compute {
    direction: Direction,
    chunk: usize,
    microbatch: usize,
}

/// `F12b`: a letter, the microbatch from 1, the chunk's letters if any.
fn parse_compute(word: &str) -> Option<Compute> {
    let (direction, rest) = match word.split_at_checked(1)? {
        ("F", rest) => (Direction::Activation, rest),
        ("B", rest) => (Direction::Gradient, rest),
        _ => return None,
    };
    let end_of_digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, chunk) = rest.split_at(end_of_digits);
    let microbatch = digits.parse::<u128>().ok()?.checked_sub(1)?;
    let chunk = if chunk.is_empty() { 0 } else { parse_letters(chunk)? };
    Some(Compute { direction, chunk, microbatch: usize::try_from(microbatch).ok()? })
}

/// Digits only: `parse` alone would take a sign.
fn parse_number(text: &str) -> Option<usize> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn parse_letters(text: &str) -> Option<usize> {
    let mut count = 0usize;
    for byte in text.bytes() {
        let digit = byte.is_ascii_lowercase().then(|| usize::from(byte - b'a') + 1)?;
        count = count.checked_mul(26)?.checked_add(digit)?;
    }
    count.checked_sub(1)
}

/// The most receives that were posted beyond the one that a rank waits for.
fn receives_ahead(ops: &[Op]) -> usize {
    let (mut posted, mut ahead) = (0usize, 0);
    for op in ops {
        match op {
            Op::PostRecv { .. } => posted += 1,
            Op::WaitRecv { .. } => {
                posted = posted.saturating_sub(1);
                ahead = ahead.max(posted);
            }
            _ => {}
        }
    }
    ahead
}
