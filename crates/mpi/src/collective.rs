//! Collectives over transfers between two members.
//!
//! A small one gathers everything on every rank in `ceil(log2 n)` rounds (Bruck and others,
//! 1997) and combines it there. A large all-reduce goes window by window: each member gets every
//! other's part of its piece, combines them in the order of ranks, and sends the result to all,
//! so that each byte crosses the network twice, as in a ring, in two rounds instead of 2 (n - 1).

use crate::comm::{Members, MpiComm};
use crate::request::Request;
use henge_comm::{CommError, Kind, Reduce, Signature, Wait};
use henge_spec::DType;
use henge_tensor::{Real, View, ViewMut};
use std::ffi::c_int;
use std::ops::Range;

/// Below, an all-reduce's time is that of its rounds, not of its bytes.
const SMALL: usize = 16 << 10;
/// Bytes of a member's piece of a window: small enough for its parts to stay in the cache
/// until they are combined.
const PIECE: usize = 256 << 10;

/// Memory that MPI receives into, aligned for every element.
#[derive(Default)]
pub(crate) struct Scratch {
    words: Vec<u64>,
}

impl Scratch {
    /// The first `bytes`, with whatever they held.
    fn take(&mut self, bytes: usize) -> *mut u8 {
        let words = bytes.div_ceil(size_of::<u64>());
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        self.words.as_mut_ptr().cast()
    }
}

/// Bytes from or for a member, by its index in the group.
struct Part<P> {
    member: usize,
    memory: P,
    bytes: usize,
}

impl<M> MpiComm<M> {
    /// Sends and receives at once.
    ///
    /// # Safety
    /// All memory is valid for its bytes, what is received into is this engine's own, and none
    /// of it is used by others until the call returns.
    unsafe fn exchange(
        &self,
        signature: &Signature,
        receives: &[Part<*mut u8>],
        sends: &[Part<*const u8>],
    ) -> Result<(), CommError> {
        let (what, tag) = (Wait::Collective(*signature), number(signature.kind));
        let Members { communicator, ranks, .. } = self.members(signature.group);
        let mut transfers = Vec::with_capacity(receives.len() + sends.len());
        for part in receives {
            // SAFETY: the caller's promise; this engine's memory outlives a failed wait.
            let begun = unsafe { Request::receive(communicator, part.memory, part.bytes, part.member, tag) };
            let begun = begun.or_else(|refusal| self.refused(&what, &refusal))?;
            transfers.extend(begun.into_iter().map(|request| (ranks[part.member], request)));
        }
        for part in sends {
            // SAFETY: the caller's promise; after a failed wait MPI is not called any more.
            let begun = unsafe { Request::send(communicator, part.memory, part.bytes, part.member, tag) };
            let begun = begun.or_else(|refusal| self.refused(&what, &refusal))?;
            transfers.extend(begun.into_iter().map(|request| (ranks[part.member], request)));
        }
        self.wait_for(&what, &mut transfers)
    }

    pub(crate) fn reduce_view(
        &self,
        signature: Signature,
        how: Reduce,
        mut data: ViewMut<'_>,
    ) -> Result<(), CommError> {
        match signature.dtype {
            // SAFETY: the signature has checked type and alignment; the view is exclusive.
            DType::F32 => self.reduce::<f32>(&signature, how, unsafe { elements(&mut data) }),
            // SAFETY: as above.
            DType::F64 => self.reduce::<f64>(&signature, how, unsafe { elements(&mut data) }),
            other => unreachable!("{other} was refused by the signature"),
        }
    }

    fn reduce<T: Real>(&self, signature: &Signature, how: Reduce, data: &mut [T]) -> Result<(), CommError> {
        let members = self.members(signature.group).ranks.len();
        if members == 1 || data.is_empty() {
            return Ok(());
        }
        if signature.bytes() <= SMALL {
            return self.reduce_small(signature, how, data);
        }
        let window = members * PIECE / size_of::<T>();
        data.chunks_mut(window).try_for_each(|window| self.reduce_window(signature, how, window))
    }

    /// Everyone combines everything.
    fn reduce_small<T: Real>(&self, signature: &Signature, how: Reduce, data: &mut [T]) -> Result<(), CommError> {
        let bytes = size_of_val(data);
        let members = self.members(signature.group);
        let gathered = self.gather_blocks(signature, data.as_ptr().cast(), bytes)?;
        for (index, member) in (0..members.ranks.len()).enumerate() {
            let block = block_of(member, members);
            // SAFETY: a block of as many elements, at a multiple of their size, in scratch that
            // this rank alone uses now.
            let part = unsafe { std::slice::from_raw_parts(gathered.add(block * bytes).cast::<T>(), data.len()) };
            match index {
                0 => data.copy_from_slice(part),
                _ => how.fold(data, part),
            }
        }
        Ok(())
    }

    /// Reduces to the owners of the window's pieces, then gathers the pieces.
    fn reduce_window<T: Real>(&self, signature: &Signature, how: Reduce, window: &mut [T]) -> Result<(), CommError> {
        let members = self.members(signature.group);
        let (count, here) = (members.ranks.len(), members.here);
        let (len, piece) = (window.len(), window.len().div_ceil(count));
        let range = |member: usize| -> Range<usize> { (member * piece).min(len)..((member + 1) * piece).min(len) };
        let size = size_of::<T>();
        let scratch = self.scratch.borrow_mut().take(count * piece * size);
        // SAFETY: each member has a piece's room.
        let room = |member: usize| unsafe { scratch.add(member * piece * size) };
        let others = || (1..count).map(|step| (here + step) % count);
        let mine = range(here);
        let receives: Vec<_> =
            others().map(|m| Part { member: m, memory: room(m), bytes: mine.len() * size }).collect();
        let sends: Vec<_> = others().map(|m| part_of(window, m, range(m))).collect();
        // SAFETY: ranges lie in the window, which is borrowed; rooms in the scratch.
        unsafe { self.exchange(signature, &receives, &sends)? };
        combine(how, &mut window[mine.clone()], here, count, room);

        let receives: Vec<_> =
            others().map(|m| Part { member: m, memory: room(m), bytes: range(m).len() * size }).collect();
        let sends: Vec<_> = others().map(|m| part_of(window, m, mine.clone())).collect();
        // SAFETY: as above.
        unsafe { self.exchange(signature, &receives, &sends)? };
        for member in others() {
            let target = &mut window[range(member)];
            // SAFETY: the member's piece was received there.
            target.copy_from_slice(unsafe { std::slice::from_raw_parts(room(member).cast::<T>(), target.len()) });
        }
        Ok(())
    }

    /// Gathers every member's block of `bytes` in scratch; [`block_of`] says where.
    fn gather_blocks(&self, signature: &Signature, mine: *const u8, bytes: usize) -> Result<*mut u8, CommError> {
        let members = self.members(signature.group);
        let (count, here) = (members.ranks.len(), members.here);
        let blocks = self.scratch.borrow_mut().take(count * bytes);
        // SAFETY: the caller's block, and room for one.
        unsafe { std::ptr::copy_nonoverlapping(mine, blocks, bytes) };
        let mut have = 1;
        while have < count {
            let more = have.min(count - have);
            let (to, from) = ((here + count - have) % count, (here + have) % count);
            // SAFETY: what is there goes out, what is received comes behind it.
            unsafe {
                let receive = Part { member: from, memory: blocks.add(have * bytes), bytes: more * bytes };
                let send = Part { member: to, memory: blocks.cast_const(), bytes: more * bytes };
                self.exchange(signature, &[receive], &[send])?;
            }
            have += more;
        }
        Ok(blocks)
    }

    pub(crate) fn gather_view(&self, signature: Signature, mine: View<'_>, all: ViewMut<'_>) -> Result<(), CommError> {
        let members = self.members(signature.group);
        let bytes = signature.bytes();
        for start in (0..bytes).step_by(PIECE) {
            let piece = PIECE.min(bytes - start);
            // SAFETY: the piece lies in the rank's own part.
            let gathered = self.gather_blocks(&signature, unsafe { mine.pointer().add(start) }, piece)?;
            for member in 0..members.ranks.len() {
                let block = block_of(member, members);
                // SAFETY: a gathered block, and the same piece of the member's part.
                unsafe {
                    let target = all.pointer().add(member * bytes + start);
                    std::ptr::copy_nonoverlapping(gathered.add(block * piece), target, piece);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn broadcast_view(&self, signature: Signature, root: usize, data: ViewMut<'_>) -> Result<(), CommError> {
        let members = self.members(signature.group);
        let bytes = signature.bytes();
        for start in (0..bytes).step_by(PIECE) {
            let piece = PIECE.min(bytes - start);
            // SAFETY: the piece lies in the data.
            let memory = unsafe { data.pointer().add(start) };
            if members.here == root {
                let others = (0..members.ranks.len()).filter(|&member| member != root);
                let sends: Vec<_> =
                    others.map(|member| Part { member, memory: memory.cast_const(), bytes: piece }).collect();
                // SAFETY: the data are borrowed by this call.
                unsafe { self.exchange(&signature, &[], &sends)? };
            } else {
                let scratch = self.scratch.borrow_mut().take(piece);
                let receive = Part { member: root, memory: scratch, bytes: piece };
                // SAFETY: scratch for a piece, copied to the piece of the data.
                unsafe {
                    self.exchange(&signature, &[receive], &[])?;
                    std::ptr::copy_nonoverlapping(scratch, memory, piece);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn meet(&self, signature: Signature) -> Result<(), CommError> {
        self.gather_blocks(&signature, std::ptr::dangling(), 0).map(drop)
    }
}

/// Combines all members' parts of this rank's piece, in their order; `room` says where each was
/// received, and this rank's own is free.
fn combine<T: Real>(how: Reduce, mine: &mut [T], here: usize, count: usize, room: impl Fn(usize) -> *mut u8) {
    let len = mine.len();
    // SAFETY: a room holds as many elements, aligned, and nothing is on its way there.
    let part = |member: usize| unsafe { std::slice::from_raw_parts_mut(room(member).cast::<T>(), len) };
    part(here).copy_from_slice(mine);
    mine.copy_from_slice(part(0));
    (1..count).for_each(|member| how.fold(mine, part(member)));
}

/// Where [`MpiComm::gather_blocks`] leaves a member's block: this rank's own is the first.
fn block_of(member: usize, members: &Members) -> usize {
    let count = members.ranks.len();
    (member + count - members.here) % count
}

/// A range of a window, for a member.
fn part_of<T>(window: &[T], member: usize, range: Range<usize>) -> Part<*const u8> {
    let part = &window[range];
    Part { member, memory: part.as_ptr().cast(), bytes: size_of_val(part) }
}

/// # Safety
/// The view is of `T` in this process's memory.
unsafe fn elements<'a, T>(view: &'a mut ViewMut<'_>) -> &'a mut [T] {
    if view.is_empty() {
        return &mut [];
    }
    // SAFETY: the view is an exclusive borrow of as many elements, aligned.
    unsafe { std::slice::from_raw_parts_mut(view.pointer().cast(), view.len()) }
}

/// A collective's tag on its group's communicator: calls of two kinds never answer each other.
fn number(kind: Kind) -> c_int {
    match kind {
        Kind::AllReduce(_) => 0,
        Kind::AllGather => 1,
        Kind::Broadcast { .. } => 2,
        Kind::Barrier => 3,
    }
}
