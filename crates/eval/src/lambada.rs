//! LAMBADA: the last word of a passage, by the protocol of 1909.08053, section 5.3.
//!
//! Strict: the last word is what follows the last white space, the context is the text
//! before it, and every token of the word must have the largest logit. The easier form
//! asks for the last token of the text as it is encoded whole.

use crate::task::{Line, read_lines, string};
use crate::{EvalError, Passage, Tokens};
use henge_data::tokenizer::{Encoder, Tokenizer};
use henge_model::Score;
use serde::Serialize;
use std::path::Path;

const PROTOCOL: &str = "LAMBADA by 1909.08053, teacher forcing: strict accuracy counts examples whose every token of \
                        the last word has the largest logit; the last-token form asks for the last token only";

/// The prepared examples.
pub struct Lambada {
    /// For each example its passage in the strict form and in the last-token form, which
    /// are one where both are encoded alike.
    examples: Vec<(usize, usize)>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct LambadaReport {
    /// How it was measured.
    pub protocol: &'static str,
    /// Number of examples.
    pub examples: usize,
    /// Examples whose last word was right.
    pub strict_correct: usize,
    /// Their share.
    pub strict_accuracy: f64,
    /// Examples whose last token was right.
    pub last_token_correct: usize,
    /// Their share.
    pub last_token_accuracy: f64,
    /// Perplexity of the last words in the strict form, per word.
    pub word_perplexity: f64,
}

impl Lambada {
    /// Reads JSON lines with a `text` each, at most `limit` of them, for a model of
    /// `length` positions.
    pub fn prepare(
        path: &Path,
        tokenizer: &Tokenizer,
        length: usize,
        limit: Option<usize>,
    ) -> Result<(Self, Tokens), EvalError> {
        let (mut tokens, mut examples) = (Tokens::default(), Vec::new());
        let mut encoder = tokenizer.encoder();
        for line in read_lines(path, limit)? {
            let text = string(&line, &["text"])?;
            let (strict, scored) = strict_form(&mut encoder, &line, &text)?;
            let mut whole = Vec::new();
            encoder.encode(&text, &mut whole)?;
            for ids in [&strict, &whole] {
                line.check_length(ids.len(), length)?;
            }
            let is_same = strict == whole;
            let first = tokens.push(&strict, scored);
            let second = if is_same { first } else { tokens.push(&whole, 1) };
            examples.push((first, second));
        }
        Ok((Self { examples }, tokens))
    }

    /// The result from the scores of each passage.
    pub fn report(&self, scores: &[Vec<Score>]) -> LambadaReport {
        let examples = self.examples.len();
        let is_right = |scores: &Vec<Score>| scores.iter().all(|score| score.is_best);
        let strict_correct = self.examples.iter().filter(|(strict, _)| is_right(&scores[*strict])).count();
        let last = |scores: &Vec<Score>| scores.last().is_some_and(|score| score.is_best);
        let last_token_correct = self.examples.iter().filter(|(_, whole)| last(&scores[*whole])).count();
        let losses = self.examples.iter().flat_map(|(strict, _)| &scores[*strict]).map(|score| score.loss);
        LambadaReport {
            protocol: PROTOCOL,
            examples,
            strict_correct,
            strict_accuracy: strict_correct as f64 / examples as f64,
            last_token_correct,
            last_token_accuracy: last_token_correct as f64 / examples as f64,
            word_perplexity: (losses.sum::<f64>() / examples as f64).exp(),
        }
    }
}

/// Tokens of context and last word, and how many of them are the word's.
fn strict_form(encoder: &mut Encoder, line: &Line, text: &str) -> Result<(Vec<u32>, usize), EvalError> {
    let word = text.split_whitespace().next_back();
    let split = word.and_then(|word| Some((word, text[..text.rfind(word)?].trim())));
    let Some((word, context)) = split.filter(|(_, context)| !context.is_empty()) else {
        return Err(line.wrong("`text` needs a last word and something before it"));
    };
    let mut ids = Vec::new();
    encoder.encode(context, &mut ids)?;
    let before = ids.len();
    encoder.encode(&format!(" {word}"), &mut ids)?;
    let scored = ids.len() - before;
    Ok((ids, scored))
}

impl Tokens {
    /// Appends a passage whose last `scored` tokens are targets; returns its index.
    pub(crate) fn push(&mut self, ids: &[u32], scored: usize) -> usize {
        let start = self.ids.len();
        self.ids.extend_from_slice(ids);
        self.passages.push(Passage { tokens: start..self.ids.len(), scored: scored.min(ids.len().saturating_sub(1)) });
        self.passages.len() - 1
    }
}
