//! What can go wrong before a rank has its end.

use std::ffi::{c_char, c_int};
use thiserror::Error;

/// MPI could not be used.
#[derive(Debug, Error)]
pub enum MpiError {
    /// MPI was started before.
    #[error("MPI was already started in this process")]
    AlreadyStarted,
    /// The library does not let even one thread of several call it.
    #[error(
        "this MPI grants {granted:?} and Henge needs MPI_THREAD_FUNNELED; \
         use an MPI that was built with threads (`ompi_info | grep -i thread`)"
    )]
    Threads {
        /// What it grants.
        granted: mpi::Threading,
    },
    /// The library's tags hold too few messages apart.
    #[error("this MPI has tags up to {largest} and Henge needs {needed}; use Open MPI or MPICH")]
    Tags {
        /// Its largest tag.
        largest: c_int,
        /// What is needed.
        needed: c_int,
    },
    /// A rank cannot be watched.
    #[error("rank {rank} cannot join the others: {words}")]
    Watch {
        /// The first such rank.
        rank: usize,
        /// Why, and what to do.
        words: String,
    },
    /// MPI refused a call.
    #[error("{call} failed: {refusal}")]
    Refused {
        /// The function.
        call: &'static str,
        /// Its words.
        refusal: Refusal,
    },
}

/// MPI's words for a call that it refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Refusal(pub String);

/// What a call's return code says.
pub(crate) fn check(code: c_int) -> Result<(), Refusal> {
    if code == mpi::ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = vec![0u8; mpi::ffi::MPI_MAX_ERROR_STRING as usize];
    let mut length = 0;
    // SAFETY: the text has the length that MPI promises not to exceed.
    unsafe { mpi::ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut length) };
    text.truncate(usize::try_from(length).unwrap_or(0));
    Err(Refusal(String::from_utf8_lossy(&text).into_owned()))
}

/// [`check`], with the function's name.
pub(crate) fn called(call: &'static str, code: c_int) -> Result<(), MpiError> {
    check(code).map_err(|refusal| MpiError::Refused { call, refusal })
}
