//! Perplexity of WikiText103's test set by the protocol of 1909.08053, section 5.3.

use crate::perplexity::{Measured, mean_loss};
use crate::{EvalError, Passage, Tokens, windows};
use henge_data::tokenizer::Tokenizer;
use henge_model::Score;
use serde::Serialize;

/// The protocol in words.
const PROTOCOL: &str = "WikiText103 by 1909.08053: file stripped and detokenised; windows that overlap, each target \
                        scored once; perplexity = exp(loss sum / (words of the raw file - 1))";

/// The prepared test set.
pub struct WikiText {
    /// Words of the stripped file, split at single spaces (T_o).
    pub words: usize,
    /// Tokens of the detokenised text (T).
    pub tokens: usize,
    /// Tokens that are scored, all unless limited.
    used: usize,
    stride: usize,
    length: usize,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct WikiTextReport {
    /// How it was measured.
    pub protocol: &'static str,
    /// Words of the raw file (T_o).
    pub words: usize,
    /// Tokens after detokenising (T).
    pub tokens: usize,
    /// Targets scored; `tokens - 1` of a whole run.
    pub targets: usize,
    /// Whether only the first tokens were scored. Words are then counted in proportion.
    pub is_part: bool,
    /// Windows run.
    pub windows: usize,
    /// Targets of a whole window.
    pub window: usize,
    /// Distance of windows.
    pub stride: usize,
    /// Perplexity per word of the raw file: the paper's figure.
    pub perplexity: f64,
    /// Perplexity per token.
    pub token_perplexity: f64,
    /// Sum of the losses, natural units.
    pub loss_sum: f64,
    /// Mean loss of a target.
    pub loss_per_token: f64,
}

impl WikiText {
    /// Targets of the paper's windows.
    pub const WINDOW: usize = 1024;

    /// Detokenises and encodes the raw file, and cuts windows of `length` targets. Only
    /// the first `limit` tokens are used, where given.
    pub fn prepare(
        raw: &str,
        tokenizer: &Tokenizer,
        length: usize,
        stride: usize,
        limit: Option<usize>,
    ) -> Result<(Self, Tokens), EvalError> {
        let raw = raw.trim();
        let mut ids = Vec::new();
        tokenizer.encoder().encode(&detokenize(raw), &mut ids)?;
        let (words, tokens) = (raw.split(' ').count(), ids.len());
        ids.truncate(limit.unwrap_or(tokens));
        let passages: Vec<Passage> = windows(ids.len(), length, stride)?;
        if passages.is_empty() {
            let (place, problem) = ("the test set".to_string(), "there is no token to predict".to_string());
            return Err(EvalError::Empty { place, problem });
        }
        Ok((Self { words, tokens, used: ids.len(), stride, length }, Tokens { ids, passages }))
    }

    /// The result from the scores of each window.
    pub fn report(&self, scores: &[Vec<Score>]) -> WikiTextReport {
        let Measured { targets, loss_sum } = Measured::of(scores);
        let words = (self.words - 1) as f64 * targets as f64 / (self.tokens - 1) as f64;
        let loss_per_token = mean_loss(loss_sum, targets as f64);
        WikiTextReport {
            protocol: PROTOCOL,
            words: self.words,
            tokens: self.tokens,
            targets,
            is_part: self.used < self.tokens,
            windows: scores.len(),
            window: self.length,
            stride: self.stride,
            perplexity: mean_loss(loss_sum, words).exp(),
            token_perplexity: loss_per_token.exp(),
            loss_sum,
            loss_per_token,
        }
    }
}

/// Undoes WikiText's word splitting, in the order of the protocol.
pub fn detokenize(text: &str) -> String {
    let mut text = text.replace("s '", "s'");
    for (from, to) in [(" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", ".")] {
        text = text.replace(from, to);
    }
    for mark in [":", ";", ".", "!", "?", ","] {
        text = text.replace(&format!(" {mark} "), &format!("{mark} "));
    }
    for (open, close) in [('(', ')'), ('[', ']'), ('{', '}'), ('"', '"'), ('\'', '\'')] {
        text = tighten(&text, open, close);
    }
    let rest = [
        ("= = = =", "===="),
        ("= = =", "==="),
        ("= =", "=="),
        (" \u{b0} ", "\u{b0}"),
        (" \n", "\n"),
        ("\n ", "\n"),
        (" N ", " 1 "),
        (" 's", "'s"),
    ];
    for (from, to) in rest {
        text = text.replace(from, to);
    }
    text
}

/// Removes the blanks inside each pair of marks: an opening one and the next closing one.
fn tighten(text: &str, open: char, close: char) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, inside)) = rest.split_once(open) {
        let Some((inside, after)) = inside.split_once(close) else { break };
        out.push_str(before);
        out.push(open);
        out.push_str(inside.trim());
        out.push(close);
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_splitting_is_undone() {
        let cases = [
            ("the players ' cup", "the players' cup"),
            ("a well @-@ known 1 @,@ 000 or 2 @.@ 5", "a well-known 1,000 or 2.5"),
            ("said : no ; yes . Oh ! why ? so , then", "said: no; yes. Oh! why? so, then"),
            ("one ( or two ) and [ three ] or { four }", "one (or two) and [three] or {four}"),
            ("he said \" come in \" and ' lay ' down", "he said \"come in\" and 'lay' down"),
            ("an open ( one", "an open ( one"),
            (" \n = = Early = = \n \n text", "\n== Early ==\n\ntext"),
            ("10 \u{b0} N 5 N b , John 's", "10\u{b0}N 5 1 b, John's"),
        ];
        for (raw, expected) in cases {
            assert_eq!(detokenize(raw), expected, "{raw:?}");
        }
    }
}
