//! Reads the next steps' microbatches while a step computes.
//!
//! What a step reads follows from the samples consumed before it, so a thread of its own can walk ahead
//! without being asked, and the order of what it delivers is the order of the steps. It waits once
//! [`STEPS_AHEAD`] steps lie ready.

use crate::TrainError;
use crate::source::{Pair, Source};
use henge_model::Microbatch;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Steps that lie ready, besides the one that is being read.
const STEPS_AHEAD: usize = 1;

/// One replica's share of every batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which replica, from 0.
    pub replica: usize,
    /// Replicas that share a batch evenly.
    pub replicas: usize,
    /// Sequences of a microbatch.
    pub micro: usize,
}

impl Share {
    /// The samples of each microbatch of this replica, of a batch of `global` sequences from `first` on:
    /// replicas take the batch in stretches, one after another.
    ///
    /// # Panics
    /// When the batch is not whole microbatches for every replica.
    pub fn microbatches(&self, first: u64, global: usize) -> impl Iterator<Item = Range<u64>> + use<> {
        let &Share { replica, replicas, micro } = self;
        assert!(global.is_multiple_of(micro * replicas), "{global} sequences over {replicas} replicas of {micro}");
        let own = (global / replicas) as u64;
        let begin = first + replica as u64 * own;
        (begin..begin + own).step_by(micro).map(move |first| first..first + micro as u64)
    }
}

/// What one step reads.
pub(crate) struct Batch {
    /// Sequences of the batch over all replicas.
    pub global: usize,
    /// Tokens of a sequence as the source pads it; a microbatch is as long as its longest.
    pub seq: usize,
    /// This replica's part.
    pub micros: Vec<Microbatch>,
}

/// Batches on their way; dropping it ends the reading.
pub(crate) struct Prefetch {
    batches: Option<Receiver<Result<Batch, TrainError>>>,
    reader: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// Starts to read the batches of `steps` (from 0); `consumed` samples lie before the first.
    pub fn start(source: Arc<dyn Source>, share: Share, steps: Range<u64>, consumed: u64) -> Self {
        let (ready, batches) = sync_channel(STEPS_AHEAD);
        let read = move || {
            let mut consumed = consumed;
            for step in steps {
                let Some(global) = source.batch(step, consumed) else { return };
                let batch = read(source.as_ref(), &share, consumed, global);
                let failed = batch.is_err();
                // Nobody listens once the run has ended for another reason.
                if ready.send(batch).is_err() || failed {
                    return;
                }
                consumed += global as u64;
            }
        };
        let reader = Builder::new().name("reader".to_string()).spawn(read).expect("the system has a thread to give");
        Prefetch { batches: Some(batches), reader: Some(reader) }
    }

    /// The next step's batch; `None` once the steps or the source are used up.
    ///
    /// # Errors
    /// What went wrong while it was read.
    pub fn next(&mut self) -> Option<Result<Batch, TrainError>> {
        match self.batches.as_ref()?.recv() {
            Ok(batch) => Some(batch),
            Err(_) => {
                self.join();
                None
            }
        }
    }

    /// Ends the reading; a panic of the reader goes on here.
    fn join(&mut self) {
        self.batches = None;
        if let Some(Err(panic)) = self.reader.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(reader) = self.reader.take() {
            // Whoever drops a reader that has work left has an error of its own.
            let _ = reader.join();
        }
    }
}

fn read(source: &dyn Source, share: &Share, first: u64, global: usize) -> Result<Batch, TrainError> {
    let micros = share.microbatches(first, global).map(|samples| microbatch(source, samples));
    let mut micros = micros.collect::<Result<Vec<Microbatch>, _>>()?;
    let seq = micros[0].seq();
    micros.iter_mut().for_each(Microbatch::trim);
    Ok(Batch { global, seq, micros })
}

/// The sequences of some samples as one microbatch.
pub(crate) fn microbatch(
    source: &dyn Source,
    samples: impl IntoIterator<Item = u64>,
) -> Result<Microbatch, TrainError> {
    let mut micro = Microbatch::default();
    for sample in samples {
        let sequence = source.sequence(sample)?;
        micro.samples.push(sample);
        micro.tokens.extend(sequence.tokens);
        micro.labels.extend(sequence.labels);
        if let Some(Pair { types, length, class, end }) = sequence.pair {
            micro.types.extend(types);
            micro.lengths.push(length);
            micro.classes.push(class);
            micro.ends.extend(end);
        }
    }
    Ok(micro)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sequence;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    /// Batches of 4, then 8; sequence `i` holds the token `i`; the sequence `bad` cannot be read.
    struct Counting {
        read: AtomicU64,
        bad: Option<u64>,
    }

    impl Source for Counting {
        fn batch(&self, step: u64, consumed: u64) -> Option<usize> {
            assert_eq!(consumed, if step < 2 { 4 * step } else { 8 * (step - 1) });
            Some(if step < 2 { 4 } else { 8 })
        }

        fn sequence(&self, position: u64) -> Result<Sequence, TrainError> {
            self.read.fetch_add(1, Ordering::SeqCst);
            if self.bad == Some(position) {
                return Err(TrainError::UsedUp(format!("sequence {position} is gone")));
            }
            Ok(Sequence { tokens: vec![position as u32], labels: vec![position as i64 + 1], pair: None })
        }
    }

    fn counting(bad: Option<u64>) -> Arc<Counting> {
        Arc::new(Counting { read: AtomicU64::new(0), bad })
    }

    #[test]
    fn replicas_together_read_every_sample_of_a_step_once_and_in_order() {
        for (replicas, micro) in [(1, 4), (2, 2), (4, 1)] {
            let mut readers: Vec<Prefetch> = (0..replicas)
                .map(|replica| Prefetch::start(counting(None), Share { replica, replicas, micro }, 0..5, 0))
                .collect();
            let mut expected = 0;
            for _ in 0..5 {
                let batches: Vec<Batch> = readers.iter_mut().map(|r| r.next().unwrap().unwrap()).collect();
                let micros: Vec<&Microbatch> = batches.iter().flat_map(|batch| &batch.micros).collect();
                assert!(micros.iter().all(|m| m.samples.len() == micro));
                let samples: Vec<u64> = micros.iter().flat_map(|m| m.samples.clone()).collect();
                let end = expected + batches[0].global as u64;
                assert_eq!(samples, (expected..end).collect::<Vec<_>>());
                assert!(micros.iter().flat_map(|m| &m.tokens).map(|&t| u64::from(t)).eq(samples));
                expected = end;
            }
            assert!(readers.iter_mut().all(|reader| reader.next().is_none()));
        }
    }

    #[test]
    fn an_error_comes_with_its_step_and_not_before() {
        let share = Share { replica: 0, replicas: 1, micro: 2 };
        let mut reader = Prefetch::start(counting(Some(9)), share, 0..5, 0);
        assert!(reader.next().unwrap().is_ok() && reader.next().unwrap().is_ok());
        let error = reader.next().unwrap().err().unwrap().to_string();
        assert_eq!(error, "sequence 9 is gone");
        assert!(reader.next().is_none());
    }

    /// While nobody takes a batch, no more than the steps ahead and the one in hand are read.
    #[test]
    fn reading_ahead_is_bounded_and_ends_when_nobody_listens() {
        let source = counting(None);
        let reader = Prefetch::start(source.clone(), Share { replica: 0, replicas: 1, micro: 2 }, 2..1_000_000, 8);
        let bound = 8 * (STEPS_AHEAD as u64 + 1);
        let deadline = Instant::now() + Duration::from_secs(20);
        while source.read.load(Ordering::SeqCst) < bound && Instant::now() < deadline {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(source.read.load(Ordering::SeqCst), bound);
        drop(reader);
        assert_eq!(Arc::strong_count(&source), 1);
    }
}
