//! Buffers over the course of each rank's list: kept activations, incoming and outgoing messages.

use super::Report;
use super::error::CheckError;
use super::ledger::Ledger;
use crate::generate::{input_of, output_of};
use crate::op::Op;

/// What one rank holds at a moment, and the most it has held.
#[derive(Default)]
struct Held {
    in_flight: Gauge,
    posted: Gauge,
    receives: Gauge,
    sends: Gauge,
}

#[derive(Default)]
struct Gauge {
    now: usize,
    peak: usize,
}

impl Gauge {
    fn rise(&mut self) -> usize {
        self.now += 1;
        self.peak = self.peak.max(self.now);
        self.now
    }

    /// For programs whose operations are complete and in order, there is always something to give back.
    fn fall(&mut self) {
        self.now -= 1;
    }
}

/// Counts buffers in a program that is complete and in order.
///
/// # Errors
/// A receive posted beyond the window, a forward beyond the kind's peak in flight.
pub(super) fn count_buffers(ledger: &Ledger) -> Result<Report, CheckError> {
    let mut report = Report { peak_in_flight: vec![], peak_receives: vec![], peak_sends: vec![], messages: 0 };
    for (rank, ops) in ledger.program.ranks.iter().enumerate() {
        let mut held = Held::default();
        for (position, &op) in ops.iter().enumerate() {
            held.apply(ledger, rank, position, op)?;
            report.messages += usize::from(matches!(op, Op::Send { .. }));
        }
        report.peak_in_flight.push(held.in_flight.peak);
        report.peak_receives.push(held.receives.peak);
        report.peak_sends.push(held.sends.peak);
    }
    Ok(report)
}

impl Held {
    fn apply(&mut self, ledger: &Ledger, rank: usize, position: usize, op: Op) -> Result<(), CheckError> {
        let shape = ledger.shape();
        match op {
            Op::PostRecv { .. } => {
                self.receives.rise();
                let posted = self.posted.rise();
                let allowed = ledger.program.receive_window.saturating_add(1);
                if posted > allowed {
                    let pair = ledger.pair(rank, Some(position), op);
                    return Err(CheckError::BeyondWindow { pair, posted, allowed });
                }
            }
            Op::WaitRecv { .. } => self.posted.fall(),
            Op::WaitSend { .. } => self.sends.fall(),
            Op::Forward { .. } => {
                let in_flight = self.in_flight.rise();
                let allowed = shape.peak_in_flight(rank);
                if in_flight > allowed {
                    let pair = ledger.pair(rank, Some(position), op);
                    return Err(CheckError::BeyondPeak { pair, in_flight, allowed });
                }
            }
            Op::Backward { .. } => self.in_flight.fall(),
            Op::Send { .. } | Op::ReduceGradients { .. } | Op::SyncEmbedding | Op::Step => {}
        }
        if output_of(shape, rank, op).is_some() {
            self.sends.rise();
        }
        if input_of(shape, rank, op).is_some() {
            self.receives.fall();
        }
        Ok(())
    }
}
