//! Memory that is taken from the system once and used for the whole run.
//!
//! A buffer goes back to the pool it came from wherever it is dropped, also on another
//! rank's thread: a message hands its buffer over, and the receiver's drop sends it
//! home. Buffers of [`HUGE_PAGE`] bytes or more lie on huge pages where the system
//! grants them, because the first touch of small pages costs ten times a copy.
//!
//! ```text
//!   take(n) -> class = n rounded up -> free list of the class -> else the system
//!   drop    -> free list of the class (nothing is given back before the pool ends)
//! ```
//!
//! Rejected: one large arena cut into pieces (fragments when evaluation and training
//! alternate); giving memory back (the next step would pay for first touch again).

use bytemuck::Pod;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a huge page on the systems that have them.
pub const HUGE_PAGE: usize = 2 << 20;

/// Every buffer starts on a cache line.
const LINE: usize = 64;

/// What a buffer is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Parameters, in master and in prepared form.
    Weight,
    /// Gradients of parameters.
    Gradient,
    /// Moments of the optimizer.
    Optimizer,
    /// What forward keeps for backward, and what flows between layers.
    Activation,
    /// Scratch: packed operands, messages, staging.
    Buffer,
}

impl Kind {
    /// Every kind, in the order of reports.
    pub const ALL: [Kind; 5] = [Kind::Weight, Kind::Gradient, Kind::Optimizer, Kind::Activation, Kind::Buffer];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Weight => "weights",
            Kind::Gradient => "gradients",
            Kind::Optimizer => "optimizer",
            Kind::Activation => "activations",
            Kind::Buffer => "buffers",
        }
    }
}

/// Bytes asked for and not yet dropped, by kind: now, and at most since the pool began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    now: [u64; Kind::ALL.len()],
    peak: [u64; Kind::ALL.len()],
    total_peak: u64,
}

impl Held {
    /// Bytes of one kind held now.
    pub fn bytes(&self, kind: Kind) -> u64 {
        self.now[kind as usize]
    }

    /// The most bytes of one kind held at once.
    pub fn peak(&self, kind: Kind) -> u64 {
        self.peak[kind as usize]
    }

    /// Bytes of all kinds held now.
    pub fn total(&self) -> u64 {
        self.now.iter().sum()
    }

    /// The most bytes of all kinds together held at once.
    pub fn total_peak(&self) -> u64 {
        self.total_peak
    }

    fn add(&mut self, kind: Kind, bytes: usize) {
        self.now[kind as usize] += bytes as u64;
        self.peak[kind as usize] = self.peak[kind as usize].max(self.now[kind as usize]);
        self.total_peak = self.total_peak.max(self.total());
    }

    fn remove(&mut self, kind: Kind, bytes: usize) {
        self.now[kind as usize] -= bytes as u64;
    }
}

/// A source of buffers. Clones share one store.
#[derive(Clone)]
pub struct Pool {
    home: Arc<Mutex<Store>>,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = lock(&self.home);
        f.debug_struct("Pool").field("held", &store.held).field("system_bytes", &store.system).finish()
    }
}

impl Pool {
    /// An empty pool; it takes memory from the system as buffers are asked for.
    pub fn new() -> Self {
        Self { home: Arc::new(Mutex::new(Store::default())) }
    }

    /// A buffer of `bytes` bytes, aligned to 64, whose contents are those of its last use.
    ///
    /// Ends the process as Rust's allocator does when the system has no memory left.
    pub fn take(&self, bytes: usize, kind: Kind) -> Pooled {
        let mut store = lock(&self.home);
        store.held.add(kind, bytes);
        let (block, fresh) = store.block(size_class(bytes));
        Pooled { block: Some(block), bytes, kind, fresh, home: Arc::clone(&self.home) }
    }

    /// A buffer of `bytes` zero bytes.
    pub fn take_zeroed(&self, bytes: usize, kind: Kind) -> Pooled {
        let mut buffer = self.take(bytes, kind);
        // Fresh memory is zero already; writing it here would touch it on one thread.
        if !buffer.fresh {
            buffer.fill(0);
        }
        buffer
    }

    /// Bytes in use, by kind.
    pub fn held(&self) -> Held {
        lock(&self.home).held
    }

    /// Bytes taken from the system since the pool began, in use or waiting for use. Stops
    /// growing once every size that a run needs has been seen.
    pub fn system_bytes(&self) -> u64 {
        lock(&self.home).system
    }
}

/// A buffer on loan from a [`Pool`]: derefs to its bytes, goes home when dropped.
pub struct Pooled {
    /// Empty only while dropping.
    block: Option<Block>,
    bytes: usize,
    kind: Kind,
    fresh: bool,
    home: Arc<Mutex<Store>>,
}

impl Pooled {
    /// What it is held for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its bytes as elements of `T`.
    ///
    /// # Panics
    /// When the size is not a whole number of elements.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self)
    }

    /// Its bytes as elements of `T`, to write.
    ///
    /// # Panics
    /// When the size is not a whole number of elements.
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self)
    }

    fn start(&self) -> NonNull<u8> {
        self.block.as_ref().map_or(NonNull::dangling(), |block| block.start)
    }
}

impl std::ops::Deref for Pooled {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the block holds at least `bytes` bytes, initialised when it was taken
        // from the system, and this value is its only owner.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.bytes) }
    }
}

impl std::ops::DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.bytes) }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut store = lock(&self.home);
        store.held.remove(self.kind, self.bytes);
        if let Some(block) = self.block.take() {
            store.free.entry(block.size).or_default().push(block);
        }
    }
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled").field("bytes", &self.bytes).field("kind", &self.kind).finish()
    }
}

/// The free blocks by size, and the account.
#[derive(Default)]
struct Store {
    free: BTreeMap<usize, Vec<Block>>,
    held: Held,
    system: u64,
}

impl Store {
    /// A block of exactly `size` bytes, and whether it is new (all zero).
    fn block(&mut self, size: usize) -> (Block, bool) {
        if let Some(block) = self.free.get_mut(&size).and_then(Vec::pop) {
            return (block, false);
        }
        self.system += size as u64;
        (Block::from_system(size), true)
    }
}

/// A panic while the lock was held leaves counters at worst one buffer off, so the
/// store stays usable: drops during unwinding must not panic again.
fn lock(home: &Mutex<Store>) -> MutexGuard<'_, Store> {
    home.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `bytes` rounded up so that near sizes share blocks: to a line, above 16 KiB to an
/// eighth of the power of two below, and to whole huge pages from one huge page on.
fn size_class(bytes: usize) -> usize {
    let step = if bytes <= 16 << 10 { LINE } else { (1 << bytes.ilog2()) / 8 };
    let step = if bytes >= HUGE_PAGE { step.max(HUGE_PAGE) } else { step };
    bytes.max(1).next_multiple_of(step)
}

/// Memory of the system's, owned.
struct Block {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: a block is plain memory with one owner.
unsafe impl Send for Block {}
// SAFETY: a shared block is only read.
unsafe impl Sync for Block {}

impl Block {
    /// `size` zero bytes, on huge pages where they fill one.
    fn from_system(size: usize) -> Self {
        #[cfg(unix)]
        if size >= HUGE_PAGE {
            return Self { start: map_huge(size), size };
        }
        let layout = Self::layout(size);
        // SAFETY: size classes are never zero.
        let start = unsafe { alloc_zeroed(layout) };
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), size }
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, LINE).expect("a size class of a buffer that fits the address space")
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        #[cfg(unix)]
        if self.size >= HUGE_PAGE {
            // SAFETY: mapped by `map_huge` with this size and not used after.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
            return;
        }
        // SAFETY: allocated by `from_system` with this layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.size)) };
    }
}

/// Anonymous memory of `size` bytes (whole huge pages) that starts on a huge page.
#[cfg(unix)]
fn map_huge(size: usize) -> NonNull<u8> {
    let layout = Block::layout(size);
    // One page more than asked, so that an aligned start lies inside; the ends go back.
    let span = size + HUGE_PAGE;
    // SAFETY: a new anonymous mapping touches no memory of ours.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            span,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        handle_alloc_error(layout);
    }
    let base = base.cast::<u8>();
    let lead = base.align_offset(HUGE_PAGE);
    // SAFETY: lead < HUGE_PAGE, so both ends and the middle lie in the mapping just made.
    unsafe {
        if lead > 0 {
            libc::munmap(base.cast(), lead);
        }
        libc::munmap(base.add(lead + size).cast(), HUGE_PAGE - lead);
        let start = base.add(lead);
        // A refusal only costs speed.
        #[cfg(target_os = "linux")]
        libc::madvise(start.cast(), size, libc::MADV_HUGEPAGE);
        NonNull::new_unchecked(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zero_at_first_and_come_back_to_their_class() {
        let pool = Pool::new();
        for bytes in [0, 1, 64, 1000, 16 << 10, (16 << 10) + 1, 1 << 20, HUGE_PAGE - 1, HUGE_PAGE, 5 * HUGE_PAGE / 2] {
            let mut first = pool.take_zeroed(bytes, Kind::Buffer);
            assert_eq!(first.len(), bytes);
            assert_eq!(first.as_ptr() as usize % 64, 0);
            assert!(bytes < HUGE_PAGE || (first.as_ptr() as usize).is_multiple_of(HUGE_PAGE));
            assert!(first.iter().all(|&byte| byte == 0));
            first.fill(7);
            drop(first);
            let taken = pool.system_bytes();
            let again = pool.take_zeroed(bytes, Kind::Activation);
            assert!(again.iter().all(|&byte| byte == 0));
            assert_eq!(pool.system_bytes(), taken, "{bytes} bytes were in the pool");
        }
    }

    #[test]
    fn classes_hold_the_size_and_waste_at_most_an_eighth_or_a_page() {
        for bytes in (1..4096).chain([20_000, 33_333, 1_000_001, HUGE_PAGE + 1, 100 << 20, (100 << 20) + 5]) {
            let class = size_class(bytes);
            assert!(class >= bytes);
            let waste = if bytes >= HUGE_PAGE { HUGE_PAGE.max(bytes / 8) } else { LINE.max(bytes / 8) };
            assert!(class - bytes <= waste, "{bytes} -> {class}");
            assert_eq!(size_class(class), class);
        }
    }

    #[test]
    fn held_counts_by_kind_and_remembers_the_peak() {
        let pool = Pool::new();
        let weights = pool.take(100, Kind::Weight);
        let first = pool.take(1000, Kind::Activation);
        drop(first);
        let second = pool.take(500, Kind::Activation);
        let held = pool.held();
        assert_eq!((held.bytes(Kind::Weight), held.bytes(Kind::Activation)), (100, 500));
        assert_eq!((held.peak(Kind::Activation), held.total(), held.total_peak()), (1000, 600, 1100));
        drop((weights, second));
        assert_eq!(pool.held().total(), 0);
    }

    #[test]
    fn a_buffer_dropped_on_another_thread_goes_home() {
        let pool = Pool::new();
        let buffer = pool.take(3 * HUGE_PAGE, Kind::Activation);
        let address = buffer.as_ptr() as usize;
        std::thread::spawn(move || drop(buffer)).join().expect("dropping does not panic");
        assert_eq!(pool.held().total(), 0);
        assert_eq!(pool.take(3 * HUGE_PAGE, Kind::Buffer).as_ptr() as usize, address);
    }

    #[test]
    fn a_buffer_may_outlive_its_pool() {
        let mut buffer = Pool::new().take_zeroed(HUGE_PAGE, Kind::Buffer);
        buffer.as_mut_slice::<f32>()[5] = 1.5;
        assert_eq!(buffer.as_slice::<f32>()[5], 1.5);
    }
}
