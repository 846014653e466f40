//! Blocks to results over any number of threads, consumed in the order of the blocks.

use super::budget::Budget;
use super::reader::{BLOCK_BYTES, Block, Position, Reader};
use crate::error::DataError;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Bytes of raw text between reader and consumer, besides [`BLOCKS_A_WORKER`]. A longer document passes alone.
const IN_FLIGHT_BYTES: usize = 16 << 20;
/// Blocks in flight for each worker: one in hand, one ready.
const BLOCKS_A_WORKER: usize = 2;

/// Takes what became of each block, in order, on the calling thread.
pub(crate) type Consume<'c, T> = dyn FnMut(&Block, T) -> Result<(), DataError> + 'c;

type Work = (u64, Result<Block, DataError>);

/// A block on its way: its number and what became of it.
struct Outcome<T> {
    number: u64,
    result: Result<(Block, T), DataError>,
}

/// Reads everything from `start` on, gives each block to one of `workers` threads, each of which has a
/// function of its own from `worker`, and the results to `consume`.
///
/// # Errors
/// The first one in the order of the blocks.
pub(crate) fn in_order<T, W>(
    reader: Reader<'_>,
    start: Position,
    workers: usize,
    worker: &(dyn Fn() -> W + Sync),
    consume: &mut Consume<'_, T>,
) -> Result<(), DataError>
where
    T: Send,
    W: FnMut(&Block) -> Result<T, DataError>,
{
    let budget = Budget::new(IN_FLIGHT_BYTES + workers * BLOCKS_A_WORKER * BLOCK_BYTES);
    let (work_in, work_out) = channel::<Work>();
    let (outcome_in, outcomes) = channel::<Outcome<T>>();
    let work_out = Mutex::new(work_out);
    thread::scope(|scope| {
        let (budget, work_out) = (&budget, &work_out);
        scope.spawn(move || read(reader, start, budget, &work_in));
        for _ in 0..workers {
            let outcome_in = outcome_in.clone();
            scope.spawn(move || work(worker(), work_out, &outcome_in));
        }
        drop(outcome_in);
        let consumed = consume_in_order(&outcomes, budget, consume);
        budget.close();
        consumed
    })
}

/// The reader thread.
fn read(mut reader: Reader<'_>, start: Position, budget: &Budget, work: &Sender<Work>) {
    let mut number = 0;
    let done = reader.run(start, &mut |block| {
        let wanted = budget.take(block.bytes()) && work.send((number, Ok(block))).is_ok();
        number += 1;
        wanted
    });
    if let Err(error) = done {
        // Nobody listens only when the consumer has failed, and then its error is the one to report.
        let _ = work.send((number, Err(error)));
    }
}

/// A worker thread.
fn work<T>(
    mut worker: impl FnMut(&Block) -> Result<T, DataError>,
    work: &Mutex<Receiver<Work>>,
    outcomes: &Sender<Outcome<T>>,
) {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, block)) = next else { return };
        let _alarm = Alarm { number, outcomes };
        let result = block.and_then(|block| worker(&block).map(|done| (block, done)));
        if outcomes.send(Outcome { number, result }).is_err() {
            return;
        }
    }
}

/// Wakes the consumer when a worker panics: it would wait for that block for ever.
struct Alarm<'a, T> {
    number: u64,
    outcomes: &'a Sender<Outcome<T>>,
}

impl<T> Drop for Alarm<'_, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            // The panic itself goes on when the threads are joined, so what error stops the work is no matter.
            let _ = self.outcomes.send(Outcome { number: self.number, result: Err(DataError::Cancelled) });
        }
    }
}

fn consume_in_order<T>(
    outcomes: &Receiver<Outcome<T>>,
    budget: &Budget,
    consume: &mut Consume<'_, T>,
) -> Result<(), DataError> {
    let (mut waiting, mut next) = (BTreeMap::new(), 0);
    for outcome in outcomes {
        waiting.insert(outcome.number, outcome.result);
        while let Some(result) = waiting.remove(&next) {
            let (block, done) = result?;
            consume(&block, done)?;
            budget.give_back(block.bytes());
            next += 1;
        }
    }
    Ok(())
}
