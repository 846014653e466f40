//! A process's start under MPI.

use crate::MpiComm;
use crate::comm::{Members, NEEDED_TAG, Patience};
use crate::error::{MpiError, called};
use crate::request::Communicator;
use henge_comm::{Grid, Group};
use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi;
use mpi::traits::{Communicator as _, CommunicatorCollectives, Root as _};
use std::ffi::{c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::ManuallyDrop;
use std::time::Duration;

/// The processes that one launcher started.
///
/// A process that ends without [`World::finish`] makes the launcher end the others.
pub struct World {
    /// Not ended on drop: that waits for all ranks, and a failed one leaves while others wait.
    universe: ManuallyDrop<Universe>,
    rank: usize,
    ranks: usize,
    local: usize,
    sharing: usize,
    largest_tag: c_int,
}

impl World {
    /// Starts MPI; every process of the launcher calls this once.
    ///
    /// # Errors
    /// [`MpiError`] where MPI was started before or cannot do what Henge needs.
    pub fn start() -> Result<Self, MpiError> {
        let (universe, granted) =
            mpi::initialize_with_threading(Threading::Funneled).ok_or(MpiError::AlreadyStarted)?;
        if granted < Threading::Funneled {
            return Err(MpiError::Threads { granted });
        }
        let world = universe.world();
        let host = world.split_shared(world.rank());
        let (rank, ranks, local) = (world.rank() as usize, world.size() as usize, host.size() as usize);
        let largest_tag = largest_tag()?;
        if largest_tag < NEEDED_TAG {
            return Err(MpiError::Tags { largest: largest_tag, needed: NEEDED_TAG });
        }
        let sharing = ranks_of_these_cores(&host);
        Ok(Self { universe: ManuallyDrop::new(universe), rank, ranks, local, sharing, largest_tag })
    }

    /// Ends MPI on this process, once all ranks are at this point.
    pub fn finish(self) {
        drop(ManuallyDrop::into_inner(self.universe));
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// How many of them share this host.
    pub fn ranks_of_this_host(&self) -> usize {
        self.local
    }

    /// How many of them may run on the cores that this process may run on: the launcher can bind
    /// each to cores of its own.
    pub fn ranks_of_these_cores(&self) -> usize {
        self.sharing
    }

    /// Rank 0's words, on every rank.
    pub fn share(&self, words: Vec<u8>) -> Vec<u8> {
        self.share_from(0, words)
    }

    fn share_from(&self, rank: usize, mut words: Vec<u8>) -> Vec<u8> {
        let (world, mut length) = (self.universe.world(), words.len() as u64);
        let root = world.process_at_rank(rank as c_int);
        root.broadcast_into(&mut length);
        words.resize(usize::try_from(length).expect("the same program on every rank"), 0);
        if !words.is_empty() {
            root.broadcast_into(&mut words[..]);
        }
        words
    }

    /// Each rank says whether it goes on, or why not; all learn the first rank that does not,
    /// and its words.
    pub fn first_objection(&self, objection: Option<Vec<u8>>) -> Option<(usize, Vec<u8>)> {
        let world = self.universe.world();
        let mine = if objection.is_some() { self.rank } else { self.ranks } as u64;
        let mut first = mine;
        world.all_reduce_into(&mine, &mut first, mpi::collective::SystemOperation::min());
        let first = usize::try_from(first).ok().filter(|&rank| rank < self.ranks)?;
        Some((first, self.share_from(first, objection.unwrap_or_default())))
    }

    /// Every rank's number, summed.
    pub fn sum(&self, mine: f64) -> f64 {
        let mut sum = mine;
        self.universe.world().all_reduce_into(&mine, &mut sum, mpi::collective::SystemOperation::sum());
        sum
    }

    /// This rank's end of a grid that fills the world; every rank calls this with the same grid.
    /// `threads` are those of a rank that compute.
    ///
    /// # Errors
    /// [`MpiError`] where MPI gives no communicators.
    ///
    /// # Panics
    /// If the grid has another number of ranks.
    pub fn comm<M>(&self, grid: Grid, timeout: Duration, threads: usize) -> Result<MpiComm<M>, MpiError> {
        assert_eq!(grid.ranks(), self.ranks, "the grid fills the world");
        let mut groups = Vec::new();
        for group in Group::ALL {
            let ranks = grid.members(group, self.rank);
            let here = ranks.iter().position(|&rank| rank == self.rank).expect("a rank is of its own groups");
            // The groups of a kind share no rank: their first rank names each.
            let communicator = Communicator::split_world(ranks[0] as c_int)?;
            groups.push(Members { communicator, ranks, here });
        }
        let Ok(groups) = groups.try_into() else { unreachable!("one of each kind") };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let patience = Patience { timeout, owns_core: self.sharing * threads <= cores };
        let messages = Communicator::split_world(0)?;
        Ok(MpiComm::new(self.rank, grid, groups, messages, patience, self.largest_tag))
    }
}

/// Processes of a host that are bound to the same cores. Bindings that overlap in part are not
/// what launchers make, and count as apart.
fn ranks_of_these_cores(host: &impl CommunicatorCollectives) -> usize {
    let mut hasher = DefaultHasher::new();
    allowed_cores().hash(&mut hasher);
    let mine = hasher.finish();
    let mut all = vec![0u64; host.size() as usize];
    host.all_gather_into(&mine, &mut all[..]);
    all.iter().filter(|&&theirs| theirs == mine).count()
}

/// The list of cores as Linux writes it; elsewhere all processes count as sharing all.
fn allowed_cores() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(str::to_owned)
}

fn largest_tag() -> Result<c_int, MpiError> {
    let (mut value, mut flag) = (std::ptr::null_mut::<c_int>(), 0);
    // SAFETY: MPI is started; the attribute of this name is a pointer to an int of MPI's own.
    unsafe {
        let target = (&raw mut value).cast::<c_void>();
        let code = ffi::MPI_Comm_get_attr(ffi::RSMPI_COMM_WORLD, ffi::MPI_TAG_UB as c_int, target, &mut flag);
        called("MPI_Comm_get_attr", code)?;
        // The standard's least where the library does not say.
        Ok(if flag == 0 || value.is_null() { 32767 } else { *value })
    }
}
