//! Where each operation of a program stands in its rank's list, and the checks that need only that.

use super::error::{CheckError, Pair};
use super::rules::{self, Standing};
use crate::op::Op;
use crate::program::Program;
use crate::shape::Shape;
use crate::site::Site;

const ABSENT: usize = usize::MAX;

/// Why an operation cannot be entered.
enum EntryFault {
    Unknown,
    Misdirected,
    Repeats { first: usize },
}

/// The position of every operation, by its slot.
pub(super) struct Ledger<'a> {
    pub program: &'a Program,
    position: Vec<usize>,
    entered: usize,
}

impl<'a> Ledger<'a> {
    /// Enters every operation.
    ///
    /// # Errors
    /// An operation that the shape does not have, that is on or names the wrong rank, or that stands there twice.
    pub fn of(program: &'a Program) -> Result<Self, CheckError> {
        let mut ledger = Ledger { program, position: vec![ABSENT; rules::slots(&program.shape)], entered: 0 };
        let mut first_fault = None;
        for (rank, ops) in program.ranks.iter().enumerate() {
            for (position, &op) in ops.iter().enumerate() {
                if let Err(fault) = ledger.enter(rank, position, op) {
                    first_fault.get_or_insert((fault, rank, position));
                }
            }
        }
        // Reported only now that the place of its counterpart is known.
        match first_fault {
            Some((fault, rank, position)) => Err(ledger.report(fault, rank, position)),
            None => Ok(ledger),
        }
    }

    fn enter(&mut self, rank: usize, position: usize, op: Op) -> Result<(), EntryFault> {
        match rules::standing(self.shape(), rank, op) {
            Standing::Legal => {}
            Standing::Unknown => return Err(EntryFault::Unknown),
            Standing::Misdirected => return Err(EntryFault::Misdirected),
        }
        let slot = rules::slot(self.shape(), rank, op);
        match self.position[slot] {
            ABSENT => self.position[slot] = position,
            first => return Err(EntryFault::Repeats { first }),
        }
        self.entered += 1;
        Ok(())
    }

    fn report(&self, fault: EntryFault, rank: usize, position: usize) -> CheckError {
        let op = self.program.ranks[rank][position];
        if matches!(fault, EntryFault::Unknown) {
            let at = Site::new(self.shape(), rank, Some(position), op);
            let (peer, mirrored) = rules::mirror(self.shape(), rank, op);
            let peer = Site::new(self.shape(), peer, None, mirrored);
            return CheckError::NoSuchOperation(Box::new(Pair { at, peer }));
        }
        let pair = self.pair(rank, Some(position), op);
        match fault {
            EntryFault::Repeats { first } => CheckError::Repeated { pair, first },
            _ => CheckError::Misdirected(pair),
        }
    }

    /// Every rank has every operation it must have.
    pub fn check_complete(&self) -> Result<(), CheckError> {
        // Each entry is legal and there once, so their number tells; the search is for the message.
        if self.entered == rules::num_required(self.shape()) {
            return Ok(());
        }
        for rank in 0..self.shape().pipeline {
            let mut missing = None;
            rules::for_each_required(self.shape(), rank, |op| {
                if self.position(rank, op).is_none() {
                    missing.get_or_insert(op);
                }
            });
            if let Some(op) = missing {
                let pair = self.pair(rank, None, op);
                return Err(CheckError::Missing(pair));
            }
        }
        unreachable!(
            "{} operations entered, {} required, none missing",
            self.entered,
            rules::num_required(self.shape())
        )
    }

    /// Every operation comes after those it needs, and the step comes last. For complete programs.
    pub fn check_order(&self) -> Result<(), CheckError> {
        for (rank, ops) in self.program.ranks.iter().enumerate() {
            for (position, &op) in ops.iter().enumerate() {
                self.check_needs(rank, position, op)?;
            }
            if let Some(&last) = ops.last().filter(|&&last| last != Op::Step) {
                return Err(CheckError::AfterStep(self.pair(rank, Some(ops.len() - 1), last)));
            }
        }
        Ok(())
    }

    fn check_needs(&self, rank: usize, position: usize, op: Op) -> Result<(), CheckError> {
        let mut late = None;
        rules::for_each_needed(self.shape(), rank, op, |needed| {
            if self.position(rank, needed) > Some(position) {
                late.get_or_insert(needed);
            }
        });
        match late {
            None => Ok(()),
            Some(needed) => {
                let pair = self.pair(rank, Some(position), op);
                Err(CheckError::TooEarly { pair, needs: Box::new(self.site(rank, needed)) })
            }
        }
    }

    pub fn shape(&self) -> &Shape {
        &self.program.shape
    }

    /// The index of a legal operation in its rank's list.
    fn position(&self, rank: usize, op: Op) -> Option<usize> {
        Some(self.position[rules::slot(self.shape(), rank, op)]).filter(|&position| position != ABSENT)
    }

    fn site(&self, rank: usize, op: Op) -> Site {
        Site::new(self.shape(), rank, self.position(rank, op), op)
    }

    /// An operation and its counterpart on another rank.
    pub fn pair(&self, rank: usize, position: Option<usize>, op: Op) -> Box<Pair> {
        let (peer, counterpart) = rules::counterpart(self.shape(), rank, op);
        Box::new(Pair { at: Site::new(self.shape(), rank, position, op), peer: self.site(peer, counterpart) })
    }
}
