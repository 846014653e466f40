//! Forward passes without backward, over the same stages.
//!
//! A rank takes microbatches in order and, of each, its chunks in order: every message goes
//! from an earlier (microbatch, chunk, rank) to a later one, so no order of waits can close
//! a circle.

use crate::TrainError;
use crate::executor::{Stages, tag};
use henge_comm::Comm;
use henge_model::{Losses, Microbatch, Output};
use henge_schedule::{Direction, Message, virtual_stage};
use henge_tensor::Backend;

/// The losses of microbatch `index`, on the ranks of the last stage.
pub(crate) fn losses<B: Backend>(
    backend: &B,
    comm: &dyn Comm<B::Activation>,
    stages: &Stages<B>,
    micro: &Microbatch,
    index: usize,
) -> Result<Option<Losses>, TrainError> {
    let run = |chunk: usize, input| Ok(stages.stages[chunk].evaluate(&stages.contexts[chunk], micro, input)?);
    Ok(match pass(backend, comm, stages, micro, index, run)? {
        Some(Output::Losses(losses)) => Some(losses),
        _ => None,
    })
}

/// The hidden state `[b s, h]` behind the last layer for microbatch `index`, on the ranks of
/// the last stage.
pub(crate) fn last_hidden<B: Backend>(
    backend: &B,
    comm: &dyn Comm<B::Activation>,
    stages: &Stages<B>,
    micro: &Microbatch,
    index: usize,
) -> Result<Option<B::Activation>, TrainError> {
    let hidden = |chunk: usize, input| stages.stages[chunk].hidden(&stages.contexts[chunk], micro, input);
    Ok(match pass(backend, comm, stages, micro, index, |chunk, input| Ok(Output::Hidden(hidden(chunk, input)?)))? {
        Some(Output::Hidden(hidden)) => Some(hidden),
        _ => None,
    })
}

/// Passes one microbatch through every stage and returns what the last stage of this rank
/// makes of it. `run` is what each stage does.
fn pass<'a, B: Backend>(
    backend: &B,
    comm: &dyn Comm<B::Activation>,
    stages: &Stages<'a, B>,
    micro: &Microbatch,
    index: usize,
    run: impl Fn(usize, Option<B::Activation>) -> Result<Output<B>, TrainError>,
) -> Result<Option<Output<B>>, TrainError> {
    let (grid, here) = (comm.grid(), comm.grid().place(comm.rank()));
    let pipeline = grid.axes().pipeline;
    let peer = |stage: usize| grid.on_pipeline(comm.rank(), stage % pipeline);
    let message = |stage| tag(Message { direction: Direction::Activation, stage, microbatch: index });
    let last = pipeline * stages.stages.len() - 1;
    let mut end = None;
    for chunk in 0..stages.stages.len() {
        let stage = virtual_stage(pipeline, here.pipeline, chunk);
        comm.at(index, &format!("evaluation of microbatch {index} on stage {stage}"));
        let input = match stage.checked_sub(1) {
            None => None,
            Some(before) => {
                let blank = Box::new(|| backend.blank(micro.tokens.len(), stages.contexts[0].model.hidden));
                Some(comm.receive(peer(before), message(before), blank)?)
            }
        };
        match run(chunk, input)? {
            Output::Hidden(hidden) if stage != last => {
                comm.deliver(peer(stage + 1), message(stage), hidden)?;
            }
            output => end = Some(output),
        }
    }
    Ok(end)
}
