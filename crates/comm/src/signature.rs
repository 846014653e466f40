//! Collectives by what their ranks must agree on.

use crate::{Group, Reduce};
use henge_spec::DType;
use henge_tensor::{Device, View, ViewMut};
use std::fmt;

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Combines what all give.
    AllReduce(Reduce),
    /// Concatenates what all give.
    AllGather,
    /// Copies what one gives.
    Broadcast {
        /// Its index in the group.
        root: usize,
    },
    /// Waits for all.
    Barrier,
}

/// What all ranks of a collective must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Over whom.
    pub group: Group,
    /// What it does.
    pub kind: Kind,
    /// Elements that each rank gives.
    pub len: usize,
    /// Their type.
    pub dtype: DType,
}

impl Signature {
    /// # Panics
    /// If `data` is not of `f32` or `f64` in this host's memory.
    pub fn all_reduce(rank: usize, group: Group, data: &ViewMut<'_>, how: Reduce) -> Self {
        let dtype = data.dtype();
        check_host(rank, data.device(), data.pointer(), dtype);
        assert!(matches!(dtype, DType::F32 | DType::F64), "rank {rank} reduces {dtype}, not f32 or f64");
        Self { group, kind: Kind::AllReduce(how), len: data.len(), dtype }
    }

    /// # Panics
    /// If `all` does not hold `mine` of every one of `members`, or either is not in this host's
    /// memory.
    pub fn all_gather(rank: usize, group: Group, members: usize, mine: &View<'_>, all: &ViewMut<'_>) -> Self {
        check_host(rank, mine.device(), mine.pointer(), mine.dtype());
        check_host(rank, all.device(), all.pointer(), all.dtype());
        assert_eq!(mine.dtype(), all.dtype(), "rank {rank} gathers one type into another");
        assert_eq!(mine.len() * members, all.len(), "rank {rank} gathers {} from {members} ranks", mine.len());
        Self { group, kind: Kind::AllGather, len: mine.len(), dtype: mine.dtype() }
    }

    /// # Panics
    /// If there is no member `root` or `data` is not in this host's memory.
    pub fn broadcast(rank: usize, group: Group, members: usize, root: usize, data: &ViewMut<'_>) -> Self {
        check_host(rank, data.device(), data.pointer(), data.dtype());
        assert!(root < members, "rank {rank} names member {root} of {members} as root");
        Self { group, kind: Kind::Broadcast { root }, len: data.len(), dtype: data.dtype() }
    }

    /// Of no elements.
    pub fn barrier(group: Group) -> Self {
        Self { group, kind: Kind::Barrier, len: 0, dtype: DType::F32 }
    }

    /// Bytes that each rank gives.
    pub fn bytes(&self) -> usize {
        self.len * self.dtype.bytes()
    }
}

fn check_host(rank: usize, device: Device, pointer: *const u8, dtype: DType) {
    assert!(device == Device::Cpu, "rank {rank} gave memory of {device:?} to an engine of host memory");
    assert!(pointer.addr().is_multiple_of(dtype.bytes()), "rank {rank} gave misaligned {dtype} at {pointer:?}");
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, kind, len, dtype } = self;
        match kind {
            Kind::AllReduce(Reduce::Sum) => write!(f, "all-reduce (sum) of {len} {dtype}")?,
            Kind::AllReduce(Reduce::Max) => write!(f, "all-reduce (max) of {len} {dtype}")?,
            Kind::AllGather => write!(f, "all-gather of {len} {dtype} each")?,
            Kind::Broadcast { root } => write!(f, "broadcast of {len} {dtype} from member {root}")?,
            Kind::Barrier => write!(f, "barrier")?,
        }
        write!(f, " over the {group} group")
    }
}
