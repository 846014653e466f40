//! Plain perplexity of a text.

use crate::{EvalError, Tokens, windows};
use henge_data::tokenizer::Tokenizer;
use henge_model::Score;
use serde::Serialize;

const PROTOCOL: &str = "plain text as it stands, no mark before it; windows, each target scored once; words are \
                        stretches without white space";

/// Sums over every scored target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    pub targets: usize,
    pub loss_sum: f64,
}

impl Measured {
    pub fn of(scores: &[Vec<Score>]) -> Self {
        let losses = scores.iter().flatten().map(|score| score.loss);
        Self { targets: scores.iter().map(Vec::len).sum(), loss_sum: losses.sum() }
    }
}

pub(crate) fn mean_loss(sum: f64, count: f64) -> f64 {
    sum / count.max(1.0)
}

/// A prepared text.
pub struct PlainText {
    bytes: usize,
    words: usize,
    length: usize,
    stride: usize,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct PlainTextReport {
    /// How it was measured.
    pub protocol: &'static str,
    /// Bytes of the text.
    pub bytes: usize,
    /// Words of the text.
    pub words: usize,
    /// Targets scored: tokens less the first.
    pub targets: usize,
    /// Windows run.
    pub windows: usize,
    /// Targets of a whole window.
    pub window: usize,
    /// Distance of windows.
    pub stride: usize,
    /// Perplexity per token.
    pub perplexity: f64,
    /// Perplexity per word.
    pub word_perplexity: f64,
    /// Bits per byte of the text.
    pub bits_per_byte: f64,
    /// Sum of the losses, natural units.
    pub loss_sum: f64,
    /// Mean loss of a target.
    pub loss_per_token: f64,
}

impl PlainText {
    /// Encodes a text and cuts windows of `length` targets that begin `stride` apart.
    /// `place` names it in errors.
    pub fn prepare(
        place: &str,
        text: &str,
        tokenizer: &Tokenizer,
        length: usize,
        stride: usize,
    ) -> Result<(Self, Tokens), EvalError> {
        let mut ids = Vec::new();
        tokenizer.encoder().encode(text, &mut ids)?;
        let passages = windows(ids.len(), length, stride)?;
        if passages.is_empty() {
            let problem = "fewer than two tokens, so there is none to predict; give a longer text".to_string();
            return Err(EvalError::Empty { place: place.to_string(), problem });
        }
        let words = text.split_whitespace().count();
        Ok((Self { bytes: text.len(), words, length, stride }, Tokens { ids, passages }))
    }

    /// The result from the scores of each window.
    pub fn report(&self, scores: &[Vec<Score>]) -> PlainTextReport {
        let Measured { targets, loss_sum } = Measured::of(scores);
        let loss_per_token = mean_loss(loss_sum, targets as f64);
        PlainTextReport {
            protocol: PROTOCOL,
            bytes: self.bytes,
            words: self.words,
            targets,
            windows: scores.len(),
            window: self.length,
            stride: self.stride,
            perplexity: loss_per_token.exp(),
            word_perplexity: mean_loss(loss_sum, self.words as f64).exp(),
            bits_per_byte: mean_loss(loss_sum, self.bytes as f64) / std::f64::consts::LN_2,
            loss_sum,
            loss_per_token,
        }
    }
}
