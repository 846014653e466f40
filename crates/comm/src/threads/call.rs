//! A collective once all of its ranks have arrived: chunks, claimed and done by whoever
//! is awake.

use crate::{Kind, Reduce, Signature};
use henge_spec::DType;
use henge_tensor::Real;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

const CACHE_LINE: usize = 64;
/// Below, waking a second rank costs more than it saves.
const SMALLEST_CHUNK: usize = 16 << 10;
/// Above, a chunk of every buffer no longer fits the second-level cache.
const LARGEST_CHUNK: usize = 128 << 10;
/// Bytes of the partial result, which stays in the first-level cache.
const BLOCK: usize = 4 << 10;

/// Where a rank's part of a collective lies.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    pub source: *const u8,
    pub target: *mut u8,
}

// SAFETY: the memory is borrowed by the rank's call, which lasts until no thread uses the
// operand any more; the address itself may travel.
unsafe impl Send for Operand {}
// SAFETY: as above; nothing is reached through a shared operand but by `Call::run`.
unsafe impl Sync for Operand {}

/// A started collective.
pub(super) struct Call {
    signature: Signature,
    /// In the order of the group.
    operands: Vec<Operand>,
    /// Bytes of each rank's part.
    bytes: usize,
    chunk_bytes: usize,
    chunks: usize,
    claimed: AtomicUsize,
    left: AtomicUsize,
}

impl Call {
    pub fn new(signature: Signature, operands: Vec<Operand>) -> Self {
        let bytes = signature.len * signature.dtype.bytes();
        let share = bytes / (4 * operands.len());
        let chunk_bytes = share.clamp(SMALLEST_CHUNK, LARGEST_CHUNK).next_multiple_of(CACHE_LINE);
        let parts = if signature.kind == Kind::AllGather { operands.len() } else { 1 };
        // At least one, so that every call has a last chunk, whose worker wakes the others.
        let chunks = parts * bytes.div_ceil(chunk_bytes).max(1);
        let (claimed, left) = (AtomicUsize::new(0), AtomicUsize::new(chunks));
        Self { signature, operands, bytes, chunk_bytes, chunks, claimed, left }
    }

    /// Whether others can help.
    pub fn is_divisible(&self) -> bool {
        self.chunks > 1
    }

    /// Whether the last chunk is done, and with it every access to an operand.
    pub fn is_finished(&self) -> bool {
        // Pairs with the release in `work`: the chunks of all workers are visible.
        self.left.load(Ordering::Acquire) == 0
    }

    /// Does chunks until none is left to claim; says whether it finished the last one.
    pub fn work(&self) -> bool {
        let guard = AbortOnUnwind;
        let mut finished = false;
        loop {
            let chunk = self.claimed.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.chunks {
                break;
            }
            // SAFETY: the claim makes this thread the only one to run this chunk. All ranks
            // of the group have arrived (the board's lock makes their writes visible) and
            // none leaves before `left`, which counts this chunk, is 0.
            unsafe { self.run(chunk) };
            finished = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        }
        std::mem::forget(guard);
        finished
    }

    /// # Safety
    /// Every operand addresses its part (for a gather, the target addresses all parts),
    /// is aligned for the element type and is used by no one but the workers of this call,
    /// of whom only the caller runs this chunk.
    unsafe fn run(&self, chunk: usize) {
        // SAFETY: the caller's promise is each callee's.
        unsafe {
            match self.signature.kind {
                Kind::Barrier => {}
                Kind::Broadcast { root } => self.copy(root, self.range(chunk), 0),
                Kind::AllGather => {
                    let chunks_each = self.chunks / self.operands.len();
                    let from = chunk / chunks_each;
                    self.copy(from, self.range(chunk % chunks_each), from * self.bytes);
                }
                Kind::AllReduce(how) => match self.signature.dtype {
                    DType::F32 => self.reduce::<f32>(self.range(chunk), how),
                    DType::F64 => self.reduce::<f64>(self.range(chunk), how),
                    other => unreachable!("{other} was refused on arrival"),
                },
            }
        }
    }

    /// Bytes of a chunk within a part.
    fn range(&self, chunk: usize) -> Range<usize> {
        let start = chunk * self.chunk_bytes;
        start..(start + self.chunk_bytes).min(self.bytes)
    }

    /// Copies a range of one rank's part to `offset` further on in everyone's target.
    ///
    /// # Safety
    /// As [`Call::run`]; `range` lies in the part.
    unsafe fn copy(&self, from: usize, range: Range<usize>, offset: usize) {
        // SAFETY: the range lies in the part.
        let source = unsafe { self.operands[from].source.add(range.start) };
        for operand in &self.operands {
            // SAFETY: so does it in the target, after the parts before it.
            let target = unsafe { operand.target.add(offset + range.start) };
            if source != target {
                // SAFETY: both are valid for the range; buffers of two calls of exclusive
                // borrows do not overlap, nor do `mine` and `all` of one.
                unsafe { std::ptr::copy_nonoverlapping(source, target, range.len()) };
            }
        }
    }

    /// Combines a range of all parts, in rank order for every element, and writes the
    /// result to all.
    ///
    /// # Safety
    /// As [`Call::run`]; `range` is of bytes and lies in the part.
    unsafe fn reduce<T: Real>(&self, range: Range<usize>, how: Reduce) {
        let mut block = [T::zero(); BLOCK / size_of::<f32>()];
        let step = BLOCK / size_of::<T>();
        let (mut start, end) = (range.start / size_of::<T>(), range.end / size_of::<T>());
        while start < end {
            let result = &mut block[..step.min(end - start)];
            for (member, operand) in self.operands.iter().enumerate() {
                // SAFETY: in the chunk, which this thread alone uses, and aligned.
                let part = unsafe { std::slice::from_raw_parts(operand.target.cast::<T>().add(start), result.len()) };
                match member {
                    0 => result.copy_from_slice(part),
                    _ => how.fold(result, part),
                }
            }
            for operand in &self.operands {
                // SAFETY: as above; the block is this function's own.
                unsafe {
                    let target = operand.target.cast::<T>().add(start);
                    std::ptr::copy_nonoverlapping(result.as_ptr(), target, result.len());
                }
            }
            start += result.len();
        }
    }
}

/// Unwinding out of a started call would free a buffer that others still use. Nothing in
/// it panics; should it, the process ends here.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}
