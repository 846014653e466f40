//! A process's start under MPI.

use crate::MpiComm;
use crate::comm::{Members, NEEDED_TAG, Patience};
use crate::error::{MpiError, called};
use crate::request::Communicator;
use crate::watch::{Invitation, Meeting, Tell, Watch, join};
use crate::{Failed, Verdict};
use henge_comm::{Grid, Group};
use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi;
use mpi::traits::{Communicator as _, CommunicatorCollectives, Root as _};
use std::ffi::{c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

/// The processes that one launcher started.
///
/// From their start on they watch each other: a process that ends without [`World::finish`], or
/// is not heard from, ends all others.
pub struct World {
    /// Not ended on drop: that waits for all ranks, and a failed one leaves while others wait.
    universe: ManuallyDrop<Universe>,
    rank: usize,
    ranks: usize,
    local: usize,
    sharing: usize,
    largest_tag: c_int,
    watch: Arc<Watch>,
}

impl World {
    /// Starts MPI and the watch; every process of the launcher calls this once. `tell` is called
    /// with the verdict that ends the job, if one does: on rank 0, or, where that is lost, on one
    /// process of each host. The process ends soon after, with the verdict's status.
    ///
    /// # Errors
    /// [`MpiError`] where MPI was started before or cannot do what Henge needs, or where a rank
    /// finds no way to rank 0.
    pub fn start(tell: impl FnOnce(&Verdict) + Send + 'static) -> Result<Self, MpiError> {
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
        let is_spokesman = host.rank() == i32::from(shares_host_with_first(&world, &host));
        let universe = ManuallyDrop::new(universe);
        let watch = watch(&universe, is_spokesman, Box::new(tell))?;
        Ok(Self { universe, rank, ranks, local, sharing, largest_tag, watch })
    }

    /// From now on a rank that is not heard from for so long ends the job.
    pub fn set_heartbeat_timeout(&self, limit: Duration) {
        self.watch.set_silence(limit);
    }

    /// This rank has failed: all others end too. Returns the verdict on it, which is told already,
    /// or nothing where nobody is left to bring one.
    pub fn fail(&self, failed: Failed) -> Option<Verdict> {
        self.watch.fail(failed);
        self.watch.await_verdict()
    }

    /// Ends MPI on this process, once all ranks are at this point.
    pub fn finish(self) {
        self.watch.finish();
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
        share_from(&self.universe, 0, words)
    }

    /// Each rank says whether it goes on, or why not; all learn the first rank that does not,
    /// and its words.
    pub fn first_objection(&self, objection: Option<Vec<u8>>) -> Option<(usize, Vec<u8>)> {
        first_objection(&self.universe, objection)
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
        Ok(MpiComm::new(self.rank, grid, groups, messages, patience, self.largest_tag, self.watch.clone()))
    }
}

/// The library's own words for its version; MPI need not be started.
pub fn library_version() -> String {
    mpi::environment::library_version().unwrap_or_else(|_| "an MPI that does not say its version".to_owned())
}

fn share_from(universe: &Universe, rank: usize, mut words: Vec<u8>) -> Vec<u8> {
    let (world, mut length) = (universe.world(), words.len() as u64);
    let root = world.process_at_rank(rank as c_int);
    root.broadcast_into(&mut length);
    words.resize(usize::try_from(length).expect("the same program on every rank"), 0);
    if !words.is_empty() {
        root.broadcast_into(&mut words[..]);
    }
    words
}

fn first_objection(universe: &Universe, objection: Option<Vec<u8>>) -> Option<(usize, Vec<u8>)> {
    let (world, ranks) = (universe.world(), universe.world().size());
    let mine = if objection.is_some() { world.rank() } else { ranks };
    let mut first = mine;
    world.all_reduce_into(&mine, &mut first, mpi::collective::SystemOperation::min());
    let first = usize::try_from(first).ok().filter(|_| first < ranks)?;
    Some((first, share_from(universe, first, objection.unwrap_or_default())))
}

/// Rank 0 listens, the others come; either all are there or none goes on.
fn watch(universe: &Universe, is_spokesman: bool, tell: Tell) -> Result<Arc<Watch>, MpiError> {
    let world = universe.world();
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);
    let host = mpi::environment::processor_name().unwrap_or_else(|_| "unknown".to_owned());
    let mine = match rank {
        0 => {
            let opened = Meeting::open(&host).map_err(|error| error.to_string());
            let invited = opened.as_ref().map_or(vec![], |(_, invitation)| {
                serde_json::to_vec(invitation).expect("addresses have a form in JSON")
            });
            share_from(universe, 0, invited);
            opened.and_then(|(meeting, _)| meeting.start(ranks, host, tell).map_err(|error| error.to_string()))
        }
        _ => match serde_json::from_slice::<Invitation>(&share_from(universe, 0, vec![])) {
            Ok(invitation) => join(&invitation, rank, host, is_spokesman.then_some(tell)),
            Err(_) => Err("rank 0 does not listen".to_owned()),
        },
    };
    match first_objection(universe, mine.as_ref().err().map(|words| words.clone().into_bytes())) {
        Some((rank, words)) => Err(MpiError::Watch { rank, words: String::from_utf8_lossy(&words).into_owned() }),
        None => Ok(mine.expect("nobody objected")),
    }
}

/// Whether rank 0 is one of this host's.
fn shares_host_with_first(world: &impl CommunicatorCollectives, host: &impl CommunicatorCollectives) -> bool {
    let (mine, mut least) = (world.rank(), 0);
    host.all_reduce_into(&mine, &mut least, mpi::collective::SystemOperation::min());
    least == 0
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
