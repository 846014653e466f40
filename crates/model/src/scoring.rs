//! How well given targets are predicted.

use crate::{Context, Microbatch, Score, Stage};
use henge_comm::CommError;
use henge_tensor::Backend;

/// What comes out of a stage that scores.
pub enum Scored<B: Backend> {
    /// An activation for the next stage.
    Hidden(B::Activation),
    /// On the last stage, a score for each label of the microbatch that is not negative.
    Scores(Vec<Score>),
}

impl<B: Backend> Stage<B> {
    /// Forward without anything kept. The head sees only tokens that have a target: of a
    /// window that overlaps the one before, most have none.
    pub fn score(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        input: Option<B::Activation>,
    ) -> Result<Scored<B>, CommError> {
        let y = self.hidden(at, micro, input)?;
        let Some(head) = &self.head else { return Ok(Scored::Hidden(y)) };
        let rows: Vec<usize> = (0..micro.labels.len()).filter(|&row| micro.labels[row] >= 0).collect();
        let targets: Vec<i64> = rows.iter().map(|&row| micro.labels[row]).collect();
        if rows.is_empty() {
            return Ok(Scored::Scores(Vec::new()));
        }
        let table = self.embedding.as_ref().map(|embedding| &embedding.table);
        Ok(Scored::Scores(head.score(at, table, at.backend.take_rows(&y, &rows), &targets)?))
    }
}
