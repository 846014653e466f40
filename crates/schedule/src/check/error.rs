//! What can be wrong with a program.

use thiserror::Error;

use crate::deadlock::Deadlock;
use crate::shape::ScheduleError;
use crate::site::Site;

/// An operation at fault and what it concerns on another rank: the other end of the message, the
/// neighbour that needs the result, the same operation on the next rank. With one pipeline rank
/// both are on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub at: Site,
    pub peer: Site,
}

/// Why a program is not sound.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CheckError {
    #[error(transparent)]
    Shape(#[from] ScheduleError),
    #[error("the program lists {found} ranks and its shape has {expected}: give each rank one list")]
    RankCount { found: usize, expected: usize },
    #[error(
        "{} is no operation of this shape, and {} takes no part in it: \
         correct its numbers or remove it", .0.at, .0.peer
    )]
    NoSuchOperation(Box<Pair>),
    #[error(
        "{} is on the wrong rank or names the wrong one; it belongs with {}: redirect it",
        .0.at, .0.peer
    )]
    Misdirected(Box<Pair>),
    #[error(
        "{} repeats operation {first}, and {} takes part once: remove one of the two",
        .pair.at, .pair.peer
    )]
    Repeated { pair: Box<Pair>, first: usize },
    #[error("{} lacks what {} relies on: add it", .0.at, .0.peer)]
    Missing(Box<Pair>),
    #[error(
        "{} comes before {needs}, which it needs, and concerns {}: move it behind",
        .pair.at, .pair.peer
    )]
    TooEarly { pair: Box<Pair>, needs: Box<Site> },
    #[error(
        "{} follows the step that ends its rank's list, and concerns {}: move it before the step",
        .0.at, .0.peer
    )]
    AfterStep(Box<Pair>),
    #[error(
        "{} makes {posted} receives posted and not waited for, where the receive window allows \
         {allowed}, and concerns {}: post it later", .pair.at, .pair.peer
    )]
    BeyondWindow { pair: Box<Pair>, posted: usize, allowed: usize },
    #[error(
        "{} makes {in_flight} forwards in flight, where this schedule allows {allowed}, and \
         concerns {}: run a backward first", .pair.at, .pair.peer
    )]
    BeyondPeak { pair: Box<Pair>, in_flight: usize, allowed: usize },
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
}

impl CheckError {
    /// The two ranks concerned, the one at fault first; `None` when the fault lies in the shape or
    /// the number of ranks.
    pub fn ranks(&self) -> Option<(usize, usize)> {
        match self {
            CheckError::Shape(_) | CheckError::RankCount { .. } => None,
            CheckError::NoSuchOperation(pair)
            | CheckError::Misdirected(pair)
            | CheckError::Repeated { pair, .. }
            | CheckError::Missing(pair)
            | CheckError::TooEarly { pair, .. }
            | CheckError::AfterStep(pair)
            | CheckError::BeyondWindow { pair, .. }
            | CheckError::BeyondPeak { pair, .. } => Some((pair.at.rank, pair.peer.rank)),
            CheckError::Deadlock(deadlock) => Some(deadlock.ranks()),
        }
    }
}
