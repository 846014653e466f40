//! The cores of this process, and how ranks share them.

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads of each rank: an even share, at least one.
pub fn threads_per_rank(threads: usize, ranks: usize) -> usize {
    (threads / ranks).max(1)
}
