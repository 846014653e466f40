//! How fast an all-reduce moves bytes, beside a copy by the same threads in the same run.

use super::{Options, RankFailure, ThreadComm, run_ranks, world};
use crate::{Comm, CommError, Grid, Group, Reduce};
use henge_spec::Layout;
use henge_tensor::{Transfer, ViewMut};
use std::time::Instant;

/// What was measured; rates are of the median round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllReduceRate {
    /// Ranks, each of one thread.
    pub ranks: usize,
    /// Bytes of each rank's buffer.
    pub bytes: usize,
    /// Seconds of one all-reduce.
    pub seconds: f64,
    /// Bytes read and written by all ranks per second: an all-reduce reads each rank's
    /// buffer once and writes it once, `2 * ranks * bytes`.
    pub bytes_per_second: f64,
    /// The same count for a copy of one buffer of that size cut over the same threads, done
    /// `ranks` times, so that it moves as many bytes and other processes disturb it as much.
    pub copy_bytes_per_second: f64,
}

impl AllReduceRate {
    /// The all-reduce's rate as a share of the copy's.
    pub fn share_of_copy(&self) -> f64 {
        self.bytes_per_second / self.copy_bytes_per_second
    }
}

/// There are no messages in this run.
enum NoMessage {}

impl Transfer for NoMessage {
    fn view_mut(&mut self) -> ViewMut<'_> {
        match *self {}
    }
}

/// Times all-reduces (sum) of `bytes` of f32 over `ranks` ranks of one thread, in `rounds`
/// rounds of the copies and one all-reduce each, after two rounds to warm up.
///
/// # Errors
/// The failure of a rank; the engine's own time-out is the only one there can be.
///
/// # Panics
/// If there are no ranks, no rounds, or less than one element for every rank.
pub fn measure_all_reduce(ranks: usize, bytes: usize, rounds: usize) -> Result<AllReduceRate, RankFailure<CommError>> {
    assert!(ranks > 0 && rounds > 0 && bytes >= ranks * size_of::<f32>(), "{ranks} ranks, {rounds} rounds, {bytes} B");
    let grid = Grid::new(&Layout { data: ranks, ..Layout::ONE });
    let ends = world::<NoMessage>(grid, Options::new(ranks, 1));
    let times = run_ranks(ends, move |comm| time_rounds(&comm, bytes, rounds))?;
    let [copy, reduce] = times[0];
    let moved = (2 * ranks * bytes) as f64;
    let (bytes_per_second, copy_bytes_per_second) = (moved / reduce, moved / copy);
    Ok(AllReduceRate { ranks, bytes, seconds: reduce, bytes_per_second, copy_bytes_per_second })
}

/// Median seconds of the copies and of an all-reduce.
fn time_rounds(comm: &ThreadComm<NoMessage>, bytes: usize, rounds: usize) -> Result<[f64; 2], CommError> {
    const WARM_UP: usize = 2;
    let len = bytes / size_of::<f32>();
    // Zeros stay finite however often they are summed; written, so that they have pages.
    let mut data = vec![0.0_f32; len];
    data.fill(std::hint::black_box(0.0));
    let source = vec![1.0_f32; len / comm.grid().ranks()];
    let mut target = vec![2.0_f32; source.len()];
    let (mut copies, mut reductions) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + rounds {
        comm.barrier(Group::World)?;
        let begun = Instant::now();
        for _ in 0..comm.grid().ranks() {
            std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source));
        }
        comm.barrier(Group::World)?;
        let copied = Instant::now();
        comm.all_reduce(Group::World, ViewMut::of(&mut data), Reduce::Sum)?;
        let reduced = Instant::now();
        if round >= WARM_UP {
            copies.push((copied - begun).as_secs_f64());
            reductions.push((reduced - copied).as_secs_f64());
        }
    }
    Ok([copies, reductions].map(median))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
