//! A fine-tuned model's answers: a task's logits of every sequence of a set.

use crate::evaluation::last_hidden;
use crate::prefetch::Prefetch;
use crate::rank::{Rank, stages};
use crate::{Source, TrainError, totals};
use henge_model::{Dropouts, Microbatch};
use henge_tensor::Backend;
use std::sync::Arc;

impl<B: Backend> Rank<'_, B> {
    /// Tells the observer, on rank 0, the logits of each set that the job asks for.
    pub(crate) fn predict_all(&self) -> Result<(), TrainError> {
        for (set, source) in &self.job.predict {
            let logits = self.predict(source)?;
            if self.comm.rank() == 0 {
                self.job.observer.predicted(set, &logits);
            }
        }
        Ok(())
    }

    /// Logits of each sequence in order, the same on every rank: `[classes]`, `[1]` or, of
    /// spans, `[s, 2]`, zeros where a batch was shorter.
    fn predict(&self, source: &Arc<dyn Source>) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut batches = Prefetch::start(source.clone(), self.share(), 0..u64::MAX, 0);
        let mut logits = Vec::new();
        while let Some(batch) = batches.next() {
            let batch = batch?;
            let first = logits.len() as u64;
            let width = self.width(batch.seq);
            let mut all = vec![0.0; batch.global * width];
            for (index, micro) in batch.micros.iter().enumerate() {
                if let Some(own) = self.logits_of(micro, index)? {
                    let places = all[(micro.samples[0] - first) as usize * width..].chunks_mut(width);
                    let own = own.chunks(own.len() / micro.batch());
                    places.zip(own).for_each(|(place, own)| place[..own.len()].copy_from_slice(own));
                }
            }
            totals::from_last_stage(self.comm, &mut all)?;
            logits.extend(all.chunks(width).map(|row| row.iter().map(|&logit| logit as f32).collect()));
        }
        Ok(logits)
    }

    /// Logits of a sequence of `seq` tokens, its padding counted.
    fn width(&self, seq: usize) -> usize {
        let task = self.job.run.model.task.expect("predictions are asked of a task's head");
        task.outputs() * if task.is_pooled() { 1 } else { seq }
    }

    /// A microbatch's logits, on the ranks of the last stage.
    fn logits_of(&self, micro: &Microbatch, index: usize) -> Result<Option<Vec<f64>>, TrainError> {
        let stages = stages(self.job, self.backend(), self.comm, &self.places, &self.stages, Dropouts::NONE);
        let Some(hidden) = last_hidden(self.backend(), self.comm, &stages, micro, index)? else { return Ok(None) };
        let chunk = stages.stages.len() - 1;
        let logits = stages.stages[chunk].task_logits(&stages.contexts[chunk], hidden, micro);
        Ok(Some(logits.into_iter().map(f64::from).collect()))
    }
}
