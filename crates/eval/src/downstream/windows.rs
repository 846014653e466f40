//! Passages longer than the model: windows that slide over them, and where the answer stands in each.

use super::examples::{Answer, SpanQuestion};
use super::pack::{Encoded, Packer, Sequence, Target};
use crate::EvalError;
use std::ops::Range;

/// How passages are cut [Devlin et al. 2018, the published SQuAD code].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sliding {
    /// Tokens from one window's begin to the next's.
    pub step: usize,
    /// Tokens of the question that are kept.
    pub longest_question: usize,
}

impl Sliding {
    /// BERT's: a window each 128 tokens, questions of 64.
    pub const BERT: Self = Self { step: 128, longest_question: 64 };
}

/// A part of a passage behind its question: `[CLS] question [SEP] part [SEP]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Index of the question it belongs to.
    pub question: usize,
    /// The tokens.
    pub sequence: Sequence,
    /// The answer in it; [`Target::Span`] of `[CLS]` where the window does not hold the whole answer.
    pub target: Target,
    /// Position of the part's first token.
    pub first: usize,
    /// For each token of the part, its bytes in the passage.
    pub places: Vec<Range<u32>>,
    /// For each token of the part, whether no other window shows more of what stands around it.
    pub is_best_context: Vec<bool>,
}

impl Window {
    /// The window as an example to learn from.
    pub fn encoded(&self) -> Encoded {
        Encoded { sequences: vec![self.sequence.clone()], target: self.target }
    }
}

impl Packer<'_> {
    /// The windows of each of `questions`, in order.
    ///
    /// The answer learnt is the first one, from the first token that shares a byte with it to the last.
    ///
    /// # Errors
    /// A tokenizer that does not say where tokens stand, a step of 0 or past a window's end, a sequence
    /// length without room for the passage, a passage or an answer without any token.
    pub fn windows(&mut self, questions: &[SpanQuestion], sliding: Sliding) -> Result<Vec<Window>, EvalError> {
        let mut windows = Vec::new();
        let mut passage = Passage::default();
        for (index, question) in questions.iter().enumerate() {
            // Questions of one passage follow one another.
            if index == 0 || questions[index - 1].passage != question.passage {
                passage = self.passage(question)?;
            }
            self.windows_of(index, question, &passage, sliding, &mut windows)?;
        }
        Ok(windows)
    }

    fn passage(&mut self, question: &SpanQuestion) -> Result<Passage, EvalError> {
        let (ids, places) = self.encode_with_places(&question.passage)?;
        if ids.is_empty() {
            return Err(empty(question, "its passage has no token; remove it"));
        }
        let length = question.passage.len();
        u32::try_from(length).map_err(|_| empty(question, "its passage has more than 4 GiB; split it"))?;
        let places = places.into_iter().map(|place| place.start as u32..place.end as u32).collect();
        Ok(Passage { ids, places })
    }

    fn windows_of(
        &mut self,
        index: usize,
        question: &SpanQuestion,
        passage: &Passage,
        sliding: Sliding,
        windows: &mut Vec<Window>,
    ) -> Result<(), EvalError> {
        let mut asked = self.encode(&question.question)?;
        asked.truncate(sliding.longest_question);
        // Two marks before the passage, one behind it.
        let first = asked.len() + 2;
        let room = self.length().saturating_sub(first + 1);
        let answer = question.answers.first().map(|answer| passage.tokens_of(answer));
        let answer = answer.map(|span| span.ok_or_else(|| empty(question, "its answer has no token; repair it")));
        let (answer, parts) = (answer.transpose()?, parts(passage.ids.len(), room, sliding.step)?);
        for part in &parts {
            windows.push(Window {
                question: index,
                sequence: self.frame(&asked, &passage.ids[part.clone()]),
                target: target(answer.as_ref(), part, first),
                first,
                places: passage.places[part.clone()].to_vec(),
                is_best_context: part.clone().map(|token| best_part(&parts, token) == Some(part)).collect(),
            });
        }
        Ok(())
    }
}

/// An encoded passage.
#[derive(Default)]
struct Passage {
    ids: Vec<u32>,
    places: Vec<Range<u32>>,
}

impl Passage {
    /// First and last token that share a byte with `answer`.
    fn tokens_of(&self, answer: &Answer) -> Option<(usize, usize)> {
        let bytes = answer.start..answer.start + answer.text.len();
        let shares = |place: &Range<u32>| (place.start as usize) < bytes.end && bytes.start < place.end as usize;
        Some((self.places.iter().position(shares)?, self.places.iter().rposition(shares)?))
    }
}

/// The parts of a passage of `tokens` in windows with `room` for each, the last one ending with it.
fn parts(tokens: usize, room: usize, step: usize) -> Result<Vec<Range<usize>>, EvalError> {
    if room == 0 {
        let (value, expected) = (room.to_string(), "more, a longer sequence or a shorter `longest_question`");
        return Err(EvalError::Setting { setting: "tokens left to the passage", value, expected });
    }
    if step == 0 || (step > room && tokens > room) {
        let expected = "1 or more, and no more than the tokens left to the passage, or some are never seen";
        return Err(EvalError::Setting { setting: "window step", value: step.to_string(), expected });
    }
    let starts = (0..).map(|window| window * step);
    let last = tokens.saturating_sub(room).div_ceil(step);
    Ok(starts.take(last + 1).map(|start| start..(start + room).min(tokens)).collect())
}

fn target(answer: Option<&(usize, usize)>, part: &Range<usize>, first: usize) -> Target {
    match answer {
        Some(&(start, end)) if part.start <= start && end < part.end => {
            Target::Span { start: start - part.start + first, end: end - part.start + first }
        }
        _ => Target::Span { start: 0, end: 0 },
    }
}

/// The part that shows most of what stands around `token`: the lesser of its two sides counts, and a longer
/// part by a hundredth of its tokens. Of equal parts it is the first. (The published code's rule.)
fn best_part(parts: &[Range<usize>], token: usize) -> Option<&Range<usize>> {
    let worth = |part: &Range<usize>| 100 * (token - part.start).min(part.end - 1 - token) + part.len();
    // `max_by_key` takes the last of equals.
    parts.iter().rev().filter(|part| part.contains(&token)).max_by_key(|part| worth(part))
}

fn empty(question: &SpanQuestion, problem: &str) -> EvalError {
    EvalError::Empty { place: format!("question {}", question.id), problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_passage() {
        let whole = |tokens: usize| vec![Range { start: 0, end: tokens }];
        assert_eq!(parts(5, 8, 4).unwrap(), whole(5));
        assert_eq!(parts(8, 8, 4).unwrap(), whole(8));
        assert_eq!(parts(9, 8, 4).unwrap(), [0..8, 4..9]);
        assert_eq!(parts(13, 8, 4).unwrap(), [0..8, 4..12, 8..13]);
        assert_eq!(parts(5, 8, 100).unwrap(), whole(5), "one window has no step");
        assert!(parts(9, 8, 9).unwrap_err().to_string().contains("window step = 9"));
        assert!(parts(9, 0, 1).unwrap_err().to_string().contains("tokens left to the passage = 0"));
    }

    /// The example in the published code: "the man went to the store and bought a gallon of milk" in windows
    /// of 5 with a step of 3; "bought" stands in the second with 4 left and 0 right, in the third with 1 and 3.
    #[test]
    fn the_best_context_is_that_of_the_published_example() {
        let parts = parts(12, 5, 3).unwrap();
        assert_eq!(parts, [0..5, 3..8, 6..11, 9..12]);
        assert_eq!(best_part(&parts, 7), Some(&(6..11)));
        let best: Vec<Option<&Range<usize>>> = (0..12).map(|token| best_part(&parts, token)).collect();
        let owner = |part: Option<&Range<usize>>| parts.iter().position(|p| Some(p) == part);
        // Of token 9 (right side 1 in the third, left side 0 in the fourth) and its like by hand.
        let expected = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3];
        assert_eq!(best.into_iter().map(owner).collect::<Option<Vec<_>>>().unwrap(), expected);
    }
}
