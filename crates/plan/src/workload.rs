//! One question to the planner: which model, on which cluster, split how, over which batch.

use crate::{Cluster, PlanError, Switches};
use henge_schedule::Shape;
use henge_spec::{Layout, Model, Recompute, ScheduleKind};
use std::fmt::Write;

/// A step to be priced.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    /// The machines.
    pub cluster: &'a Cluster,
    /// The model.
    pub model: &'a Model,
    /// Its split over ranks.
    pub layout: Layout,
    /// Sequences of a microbatch (b).
    pub microbatch: usize,
    /// Sequences of a step (B).
    pub batch: usize,
    /// What the software does.
    pub switches: Switches,
}

impl Workload<'_> {
    /// Microbatches of a pipeline in a step (m).
    pub fn microbatches(&self) -> usize {
        self.batch / (self.microbatch * self.layout.data)
    }

    /// The shape of its program. One rank with one chunk needs no interleaving.
    pub fn shape(&self) -> Shape {
        let Layout { schedule: kind, pipeline, chunks, .. } = self.layout;
        Shape { kind, pipeline, chunks, microbatches: self.microbatches() }
    }

    /// The layout in words, as `--layout` takes it.
    pub fn words(&self) -> String {
        let Layout { tensor, pipeline, data, chunks, .. } = self.layout;
        let mut words = format!("t={tensor},p={pipeline},d={data},");
        if chunks > 1 {
            let _ = write!(words, "v={chunks},");
        }
        let _ = write!(words, "b={}", self.microbatch);
        words
    }

    /// Layers of each virtual stage: equal, or with the embedding and the head counted as
    /// a layer each where only that divides (as BLOOM and Llama 3 were cut).
    pub fn stage_layers(&self) -> Vec<usize> {
        let stages = self.layout.stages();
        let layers = self.model.layers;
        if layers.is_multiple_of(stages) {
            return vec![layers / stages; stages];
        }
        let mut split = vec![(layers + 2) / stages; stages];
        split[0] -= 1;
        split[stages - 1] -= 1;
        split
    }

    /// Checks every rule that a layout must keep.
    ///
    /// # Errors
    /// [`PlanError::Layout`] with the first rule broken, or the schedule's own.
    pub fn check(&self) -> Result<(), PlanError> {
        self.check_sizes()?;
        self.check_tensor()?;
        self.check_pipeline()?;
        self.check_batch()?;
        Ok(self.shape().validate()?)
    }

    fn refuse(&self, rule: String, fix: &str) -> PlanError {
        PlanError::Layout { layout: self.words(), rule, fix: fix.to_string() }
    }

    fn check_sizes(&self) -> Result<(), PlanError> {
        let Layout { tensor, pipeline, data, chunks, .. } = self.layout;
        let sizes =
            [("t", tensor), ("p", pipeline), ("d", data), ("v", chunks), ("b", self.microbatch), ("B", self.batch)];
        for (name, size) in sizes {
            if size == 0 {
                return Err(self.refuse(format!("{name} is 0"), "every size is at least 1"));
            }
            if size > 1 << 24 {
                return Err(self.refuse(format!("{name} = {size} is beyond any machine"), "use a smaller one"));
            }
        }
        Ok(())
    }

    fn check_tensor(&self) -> Result<(), PlanError> {
        let (model, t) = (self.model, self.layout.tensor);
        for (what, size) in [("heads", model.heads), ("ffn_hidden", model.ffn_hidden)] {
            if !size.is_multiple_of(t) {
                let rule = format!("{what} = {size} is not divisible by t = {t}");
                return Err(self.refuse(rule, "tensor parallelism splits whole heads and equal MLP columns"));
            }
        }
        if !model.kv_heads.is_multiple_of(t) && !t.is_multiple_of(model.kv_heads) {
            let rule = format!("kv_heads = {} and t = {t}: neither divides the other", model.kv_heads);
            return Err(self.refuse(rule, "each rank holds whole key and value heads, or copies of one"));
        }
        Ok(())
    }

    fn check_pipeline(&self) -> Result<(), PlanError> {
        let (layers, stages) = (self.model.layers, self.layout.stages());
        let even = layers.is_multiple_of(stages);
        let lighter_ends = stages > 1 && (layers + 2).is_multiple_of(stages) && (layers + 2) / stages > 1;
        if !(even || lighter_ends) {
            let rule = format!("{layers} layers are not divisible by p x v = {stages} stages");
            return Err(self.refuse(rule, "choose p and v whose product divides the layers, or the layers plus 2"));
        }
        if let Recompute::Every(every) = self.layout.recompute
            && every > layers / stages
            && every > 1
        {
            let rule = format!("recompute every {every} layers, but a stage has {}", layers / stages);
            return Err(self.refuse(rule, "keep the input of at least one layer of a stage"));
        }
        Ok(())
    }

    fn check_batch(&self) -> Result<(), PlanError> {
        let step = self.microbatch * self.layout.data;
        if self.batch.is_multiple_of(step) {
            return Ok(());
        }
        let rule = format!("batch {} is not divisible by b x d = {step}", self.batch);
        Err(self.refuse(rule, "change the batch, b or d"))
    }
}

/// Reads `t=8,p=12,d=1,v=4,b=1`; what is left out is 1.
///
/// # Errors
/// [`PlanError::LayoutText`] for a letter that does not exist or comes twice, or no number.
pub fn parse_layout(text: &str) -> Result<(Layout, usize), PlanError> {
    let mut sizes = [("t", None), ("p", None), ("d", None), ("v", None), ("b", None)];
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = |problem: String| PlanError::LayoutText { text: text.to_string(), problem };
        let (letter, number) = part.split_once('=').ok_or_else(|| wrong(format!("`{part}` has no `=`")))?;
        let size: usize =
            number.trim().parse().map_err(|_| wrong(format!("`{number}` is not a whole number up to {}", 1 << 24)))?;
        let slot = sizes.iter_mut().find(|(name, _)| *name == letter.trim());
        let (_, slot) = slot.ok_or_else(|| wrong(format!("there is no `{letter}`; there are t, p, d, v, b")))?;
        if slot.replace(size).is_some() {
            return Err(wrong(format!("`{letter}` is given twice")));
        }
    }
    let [tensor, pipeline, data, chunks, microbatch] = sizes.map(|(_, size)| size.unwrap_or(1));
    let schedule = if chunks > 1 { ScheduleKind::Interleaved } else { ScheduleKind::OneForwardOneBackward };
    Ok((Layout { tensor, pipeline, data, chunks, schedule, ..Layout::ONE }, microbatch))
}
