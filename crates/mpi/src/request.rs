//! Transfers that MPI has begun.

use crate::error::{MpiError, Refusal, called, check};
use mpi::ffi::{self, MPI_Comm, MPI_Request, MPI_Status};
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// MPI counts in `int`: more goes in pieces, which arrive in the order they were sent.
const LARGEST_PIECE: usize = 1 << 30;

/// A communicator of this process's own: its messages meet no others.
pub(crate) struct Communicator {
    raw: MPI_Comm,
}

impl Communicator {
    /// Collective over the world: ranks that give the same `color` share one, in the order of
    /// their ranks. Its calls return errors instead of ending the process.
    pub fn split_world(color: c_int) -> Result<Self, MpiError> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: MPI is started, and the target is a communicator's place.
        unsafe {
            called("MPI_Comm_split", ffi::MPI_Comm_split(ffi::RSMPI_COMM_WORLD, color, 0, raw.as_mut_ptr()))?;
            let raw = raw.assume_init();
            called("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN))?;
            Ok(Self { raw })
        }
    }
}

/// Bytes on their way to or from a member of a communicator. Dropped before it is done, it
/// goes on.
pub(crate) struct Request {
    raw: MPI_Request,
    /// Bytes that must come.
    awaited: Option<usize>,
}

impl Request {
    /// Begins to send.
    ///
    /// # Safety
    /// The memory stays valid and unchanged until the request is done.
    pub unsafe fn send(
        on: &Communicator,
        source: *const u8,
        bytes: usize,
        to: usize,
        tag: c_int,
    ) -> Result<Vec<Self>, Refusal> {
        pieces(bytes)
            .map(|(start, count)| {
                let mut raw = MaybeUninit::uninit();
                // SAFETY: the caller's promise; a piece lies in the memory.
                unsafe {
                    let source = source.add(start).cast();
                    check(ffi::MPI_Isend(
                        source,
                        count,
                        ffi::RSMPI_UINT8_T,
                        to as c_int,
                        tag,
                        on.raw,
                        raw.as_mut_ptr(),
                    ))?;
                    Ok(Self { raw: raw.assume_init(), awaited: None })
                }
            })
            .collect()
    }

    /// Begins to receive exactly so many bytes.
    ///
    /// # Safety
    /// The memory stays valid and is touched by nobody else until the request is done; where it
    /// never is, for ever.
    pub unsafe fn receive(
        on: &Communicator,
        target: *mut u8,
        bytes: usize,
        from: usize,
        tag: c_int,
    ) -> Result<Vec<Self>, Refusal> {
        pieces(bytes)
            .map(|(start, count)| {
                let mut raw = MaybeUninit::uninit();
                // SAFETY: the caller's promise; a piece lies in the memory.
                unsafe {
                    let target = target.add(start).cast();
                    check(ffi::MPI_Irecv(
                        target,
                        count,
                        ffi::RSMPI_UINT8_T,
                        from as c_int,
                        tag,
                        on.raw,
                        raw.as_mut_ptr(),
                    ))?;
                    Ok(Self { raw: raw.assume_init(), awaited: Some(count as usize) })
                }
            })
            .collect()
    }

    /// Whether the transfer is over. Once it is, the answer stays.
    pub fn is_done(&mut self) -> Result<bool, Refusal> {
        let (mut flag, mut status) = (0, MaybeUninit::<MPI_Status>::uninit());
        // SAFETY: the request is MPI's own, or null once done; both targets are valid.
        check(unsafe { ffi::MPI_Test(&mut self.raw, &mut flag, status.as_mut_ptr()) })?;
        if flag == 0 {
            return Ok(false);
        }
        if let Some(awaited) = self.awaited.take() {
            let mut came = 0;
            // SAFETY: the test filled the status in.
            check(unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut came) })?;
            if usize::try_from(came) != Ok(awaited) {
                return Err(Refusal(format!("{came} bytes came where {awaited} were awaited")));
            }
        }
        Ok(true)
    }
}

/// Start and count of each piece; a message of nothing is one piece.
fn pieces(bytes: usize) -> impl Iterator<Item = (usize, c_int)> {
    let count = bytes.div_ceil(LARGEST_PIECE).max(1);
    (0..count).map(move |piece| {
        let start = piece * LARGEST_PIECE;
        (start, (bytes - start).min(LARGEST_PIECE) as c_int)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_an_int_counts_goes_in_pieces_without_a_gap() {
        let of = |bytes| pieces(bytes).collect::<Vec<_>>();
        assert_eq!(of(0), [(0, 0)]);
        assert_eq!(of(7), [(0, 7)]);
        let large = of((5 << 30) + 3);
        assert_eq!(large.len(), 6);
        let mut next = 0;
        for (start, count) in large {
            assert_eq!(start, next);
            next += usize::try_from(count).unwrap();
        }
        assert_eq!(next, (5 << 30) + 3);
    }
}
