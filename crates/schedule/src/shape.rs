//! The four numbers that determine a program, and which combinations of them exist.

use thiserror::Error;

/// The most forwards (over all ranks, chunks and microbatches) that a shape may ask for.
///
/// A program takes some 300 bytes per forward. The bound turns a slip of the keyboard into an error, not into a
/// process killed for memory; the largest published runs stay a hundred times below it.
pub const MAX_FORWARDS: usize = 1 << 22;

/// Why there is no program for a shape.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ScheduleError {
    #[error("{what} is 0: a schedule needs at least 1")]
    Zero { what: &'static str },
    #[error("schedule {kind} runs one model chunk per rank, not {chunks}: use interleaved, or set chunks = 1")]
    ChunksWithoutInterleaving { kind: Kind, chunks: usize },
    #[error(
        "interleaved with {chunks} chunks needs at least 2 pipeline ranks, and pipeline is 1: \
         set chunks = 1, or raise pipeline"
    )]
    InterleavedOnOneRank { chunks: usize },
    #[error(
        "interleaved needs microbatches divisible by pipeline, and {microbatches} is not divisible by {pipeline}: \
         use {lower_or_pipeline} or {upper} microbatches",
        lower_or_pipeline = (microbatches / pipeline).max(1) * pipeline,
        upper = (microbatches / pipeline).max(1).saturating_add(1).saturating_mul(*pipeline)
    )]
    MicrobatchesNotDivisible { microbatches: usize, pipeline: usize },
    #[error(
        "pipeline {pipeline} x chunks {chunks} x microbatches {microbatches} is more than {MAX_FORWARDS} forwards: \
         use fewer, larger microbatches"
    )]
    TooLarge { pipeline: usize, chunks: usize, microbatches: usize },
}

pub use henge_spec::ScheduleKind as Kind;

/// What determines a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub kind: Kind,
    /// Pipeline ranks, `p`.
    pub pipeline: usize,
    /// Model chunks per rank, `v`.
    pub chunks: usize,
    /// Microbatches per step, `m`.
    pub microbatches: usize,
}

impl Shape {
    /// Says whether a program exists for this shape.
    ///
    /// # Errors
    /// Each variant of [`ScheduleError`].
    pub fn validate(&self) -> Result<(), ScheduleError> {
        let Shape { kind, pipeline, chunks, microbatches } = *self;
        for (what, number) in [("pipeline", pipeline), ("chunks", chunks), ("microbatches", microbatches)] {
            if number == 0 {
                return Err(ScheduleError::Zero { what });
            }
        }
        if kind == Kind::Interleaved {
            self.validate_interleaving()?;
        } else if chunks > 1 {
            return Err(ScheduleError::ChunksWithoutInterleaving { kind, chunks });
        }
        let forwards = pipeline.checked_mul(chunks).and_then(|stages| stages.checked_mul(microbatches));
        match forwards {
            Some(forwards) if forwards <= MAX_FORWARDS => Ok(()),
            _ => Err(ScheduleError::TooLarge { pipeline, chunks, microbatches }),
        }
    }

    fn validate_interleaving(&self) -> Result<(), ScheduleError> {
        let Shape { pipeline, chunks, microbatches, .. } = *self;
        if pipeline == 1 && chunks > 1 {
            // Neighbouring stages would share the rank and need a message to oneself; one larger chunk is the same.
            return Err(ScheduleError::InterleavedOnOneRank { chunks });
        }
        if !microbatches.is_multiple_of(pipeline) {
            return Err(ScheduleError::MicrobatchesNotDivisible { microbatches, pipeline });
        }
        Ok(())
    }

    /// Virtual stages in the whole pipeline.
    pub fn stages(&self) -> usize {
        self.pipeline * self.chunks
    }

    /// Forwards that one rank runs in a step, each of one chunk and one microbatch.
    pub fn forwards_per_rank(&self) -> usize {
        self.chunks * self.microbatches
    }

    /// Forwards that `rank` runs before its first forward-backward pair (`w` in papers of this schedule).
    ///
    /// # Panics
    /// When the shape is not valid or `rank` is not one of its pipeline ranks.
    pub fn warmup(&self, rank: usize) -> usize {
        let behind = self.pipeline - rank - 1;
        let forwards = match self.kind {
            Kind::GPipe => self.forwards_per_rank(),
            Kind::OneForwardOneBackward => behind,
            Kind::Interleaved => 2 * behind + (self.chunks - 1) * self.pipeline,
        };
        forwards.min(self.forwards_per_rank())
    }

    /// The most (chunk, microbatch) pairs for which `rank` has run the forward but not yet the backward.
    ///
    /// GPipe `m`; 1F1B `min(p - r, m)`; interleaved `min(2(p-r-1) + (v-1)p + 1, m*v)`, each 1/v of a rank's layers.
    ///
    /// # Panics
    /// When the shape is not valid or `rank` is not one of its pipeline ranks.
    pub fn peak_in_flight(&self, rank: usize) -> usize {
        (self.warmup(rank) + 1).min(self.forwards_per_rank())
    }
}

/// The virtual stage (0-based position in the model) of `chunk` on pipeline rank `rank`.
pub fn virtual_stage(pipeline: usize, rank: usize, chunk: usize) -> usize {
    chunk * pipeline + rank
}

/// The (rank, chunk) that holds a virtual stage: the inverse of [`virtual_stage`].
pub fn rank_and_chunk(pipeline: usize, stage: usize) -> (usize, usize) {
    (stage % pipeline, stage / pipeline)
}
