//! What a resumed run goes on from, shown to a person and held against what was saved.

use crate::TrainError;
use crate::evaluation::losses;
use crate::prefetch::microbatch;
use crate::rank::{Rank, stages};
use crate::saving::read_into;
use crate::totals::{self, LossSums};
use henge_checkpoint::{Checkpoint, Kind, Norms, Probe, RunState};
use henge_comm::Group;
use henge_files::Checksum;
use henge_model::{Dropouts, Microbatch};
use henge_spec::{Arch, Precision};
use henge_tensor::Backend;
use std::ops::Range;
use std::path::PathBuf;

/// What a resumed run goes on from, for a person to check.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The checkpoint.
    pub folder: PathBuf,
    /// Steps taken.
    pub step: u64,
    /// Samples consumed; the next sample has this number.
    pub samples: u64,
    /// Samples of the next batch; empty where there is none.
    pub next: Range<u64>,
    /// Updates applied.
    pub updates: u64,
    /// Learning rate of the next update.
    pub lr: f64,
    /// Loss of the last step before the save.
    pub loss: Option<f64>,
    /// Norms of what was loaded, which are those of what was saved.
    pub norms: Norms,
    /// The loss that was computed again.
    pub again: Again,
}

/// The loss at the start of one sample of the last batch, computed with the weights that were loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Again {
    /// It is the recorded one, as closely as the precisions allow.
    Same {
        /// The sample.
        sample: u64,
        /// Its loss now.
        loss: f64,
        /// Its loss when the checkpoint was saved.
        recorded: f64,
    },
    /// The sample has other tokens than when it was saved: the data or its order changed.
    OtherData {
        /// The sample.
        sample: u64,
    },
    /// The checkpoint records none.
    NotRecorded,
}

/// Largest relative difference of norms, which are sums in double precision of the same numbers.
const NORM_TOLERANCE: f64 = 1e-9;

/// Largest relative difference of losses: another order of sums in float32, or products of
/// numbers with 8 bits.
fn loss_tolerance(saved: &str, now: Precision) -> f64 {
    if saved == "f32" && now == Precision::F32 { 1e-5 } else { 2e-2 }
}

/// Tokens of a sample whose loss is recorded with a save: a save holds the step up for as long as
/// they take, and a decoder's loss at the first tokens tells weights apart as well as at all.
const PROBED_TOKENS: usize = 32;

impl<B: Backend> Rank<'_, B> {
    /// Tokens of a sample that a save computes: a decoder's first do not see the others, an
    /// encoder's all see each other.
    pub(crate) fn probed_length(&self) -> Option<u64> {
        let model = &self.job.run.model;
        (model.arch != Arch::Bert).then_some(PROBED_TOKENS as u64)
    }

    /// The loss of one sample, or of its first `length` tokens, without dropout, for the receipt of
    /// a resume. The first replica computes it; every rank has it.
    pub(crate) fn probe(&self, sample: u64, length: Option<u64>) -> Result<Probe, TrainError> {
        let (mut sums, mut scored, mut tokens) = (LossSums::default(), LossSums::default(), [0.0]);
        // One of several options is judged beside the others.
        let group = self.job.run.model.task.map_or(1, |task| task.group()) as u64;
        let mut micro = microbatch(self.job.train.as_ref(), sample..sample + group);
        if let (Ok(micro), Some(length)) = (&mut micro, length) {
            cut(micro, length);
        }
        if let (0, Ok(micro)) = (self.place.data, &micro) {
            let stages = stages(self.job, &self.backend, self.comm, &self.places, &self.stages, Dropouts::NONE);
            if let Some(losses) = losses(&self.backend, self.comm, &stages, micro, 0)? {
                sums.add(&losses);
            }
            scored = LossSums::scored(std::slice::from_ref(micro));
            tokens = [f64::from(tokens_checksum(micro))];
        }
        let (sums, scored) = LossSums::from_last_stage(self.comm, sums, scored)?;
        totals::from_last_stage(self.comm, &mut tokens)?;
        let precision = self.job.run.train.precision.to_string();
        Ok(Probe { sample, tokens: tokens[0] as u32, length, loss: sums.over(scored).total(), precision })
    }

    /// Norms of weights and moments over the whole model, as every rank holds its part.
    fn norms(&self) -> Result<Norms, TrainError> {
        let mut squares = [0.0; 3];
        for part in self.parts() {
            let mut values = vec![0.0; part.block.len()];
            read_into(self.buffer(part.kind), part.start, &mut values);
            squares[part.kind as usize] += sum_of_squares(&values);
        }
        totals::sum(self.comm, Group::World, &mut squares)?;
        Ok(Norms::of_squares(squares))
    }

    /// Looks again at what [`Rank::restore`] took back, and holds it against what was recorded.
    ///
    /// # Errors
    /// [`TrainError::Receipt`], the same on every rank, where it is not what was saved.
    pub(crate) fn receipt(&self, checkpoint: &Checkpoint) -> Result<Receipt, TrainError> {
        let state = &checkpoint.manifest().run;
        let (samples, source) = (self.progress.samples, &self.job.train);
        let batch = source.batch(self.progress.steps, samples).unwrap_or(0) as u64;
        let receipt = Receipt {
            folder: checkpoint.folder().to_path_buf(),
            step: self.progress.steps,
            samples,
            next: samples..samples + batch,
            updates: self.optimizer.updates,
            lr: self.optimizer.lr(),
            loss: state.loss,
            norms: self.norms()?,
            again: self.loss_again(state)?,
        };
        let differs = norms_differ(&receipt.norms, state).or_else(|| self.loss_differs(&receipt.again, state));
        match differs {
            None => Ok(receipt),
            Some(problem) => Err(TrainError::Receipt { folder: receipt.folder, problem }),
        }
    }

    fn loss_again(&self, state: &RunState) -> Result<Again, TrainError> {
        let Some(recorded) = &state.probe else { return Ok(Again::NotRecorded) };
        let now = self.probe(recorded.sample, recorded.length)?;
        Ok(match now.tokens == recorded.tokens {
            true => Again::Same { sample: now.sample, loss: now.loss, recorded: recorded.loss },
            false => Again::OtherData { sample: now.sample },
        })
    }

    fn loss_differs(&self, again: &Again, state: &RunState) -> Option<String> {
        let (&Again::Same { sample, loss, recorded }, Some(probe)) = (again, &state.probe) else { return None };
        let tolerance = loss_tolerance(&probe.precision, self.job.run.train.precision);
        let off = (loss - recorded).abs() / recorded.abs().max(1.0);
        // Written so that a loss that is no number differs too.
        let same = off <= tolerance;
        (!same).then(|| format!("the loss of sample {sample} is {loss} here and was {recorded} when it was saved"))
    }
}

/// Leaves the first `length` tokens of the one sequence of a decoder.
fn cut(micro: &mut Microbatch, length: u64) {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    micro.tokens.truncate(length);
    micro.labels.truncate(length);
}

fn norms_differ(norms: &Norms, state: &RunState) -> Option<String> {
    let recorded = state.norms.as_ref()?;
    let pairs = Kind::ALL.map(|kind| (kind, norms.of(kind), recorded.of(kind)));
    let same = |found: f64, saved: f64| (found - saved).abs() <= NORM_TOLERANCE * saved.abs();
    let differing = pairs.into_iter().find(|&(_, found, saved)| !same(found, saved));
    differing.map(|(kind, found, saved)| {
        format!("the norm of every {kind} is {found} here and was {saved} when it was saved")
    })
}

/// Sum of squares in double precision.
pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value) * f64::from(value)).sum()
}

/// 32 bits that tell a sample's tokens and targets from others; exact in a double.
fn tokens_checksum(micro: &Microbatch) -> u32 {
    let mut checksum = Checksum::new();
    micro.tokens.iter().for_each(|token| checksum.update(&token.to_le_bytes()));
    micro.labels.iter().for_each(|label| checksum.update(&label.to_le_bytes()));
    micro.types.iter().for_each(|kind| checksum.update(&kind.to_le_bytes()));
    micro.lengths.iter().for_each(|&length| checksum.update(&(length as u64).to_le_bytes()));
    micro.classes.iter().chain(&micro.ends).for_each(|class| checksum.update(&class.to_le_bytes()));
    (checksum.value() & u128::from(u32::MAX)) as u32
}
