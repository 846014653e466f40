//! How a run is split over ranks.

use crate::model::named;

/// Order of forwards and backwards on a pipeline (2104.04473, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleKind {
    /// All forwards, then all backwards.
    GPipe,
    /// One forward, one backward (PipeDream-Flush).
    OneForwardOneBackward,
    /// One forward, one backward over several chunks a rank.
    Interleaved,
}

named!(ScheduleKind, "a schedule", "gpipe" => GPipe, "1f1b" => OneForwardOneBackward, "interleaved" => Interleaved);

/// Which layer inputs are kept between forward and backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recompute {
    /// Everything a backward needs is kept.
    None,
    /// Attention scores only are computed again (2205.05198); for planning.
    Selective,
    /// Only the input of every n-th layer is kept; the rest is computed again.
    Every(usize),
}

impl Recompute {
    /// Full recomputation: the input of every layer is kept.
    pub const FULL: Self = Self::Every(1);
}

/// The three axes of the rank grid and the pipeline's schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Tensor parallel ranks (t).
    pub tensor: usize,
    /// Pipeline ranks (p).
    pub pipeline: usize,
    /// Data parallel replicas (d).
    pub data: usize,
    /// Model chunks a pipeline rank holds (v).
    pub chunks: usize,
    /// Order of forwards and backwards.
    pub schedule: ScheduleKind,
    /// What is kept between forward and backward.
    pub recompute: Recompute,
}

impl Layout {
    /// One rank.
    pub const ONE: Self = Self {
        tensor: 1,
        pipeline: 1,
        data: 1,
        chunks: 1,
        schedule: ScheduleKind::OneForwardOneBackward,
        recompute: Recompute::None,
    };

    /// Number of ranks, `tensor * pipeline * data`.
    pub fn ranks(&self) -> usize {
        self.tensor * self.pipeline * self.data
    }

    /// Number of virtual stages, `pipeline * chunks`.
    pub fn stages(&self) -> usize {
        self.pipeline * self.chunks
    }
}
