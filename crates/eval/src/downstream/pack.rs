//! Texts to sequences as BERT reads them: `[CLS] first [SEP] second [SEP]`.

use super::examples::{MultipleChoice, Pair};
use crate::EvalError;
use henge_data::DataError;
use henge_data::tokenizer::{Encoder, Tokenizer};
use std::ops::Range;

/// `[CLS]` and two `[SEP]`.
const MARKS: usize = 3;
/// Tokens of a question with its option in RACE [Megatron-LM, `tasks/race/data.py`].
const LONGEST_QUESTION_OF_RACE: usize = 128;

/// One sequence, not padded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Token ids, at most the packer's length.
    pub tokens: Vec<u32>,
    /// 0 up to and with the first `[SEP]`, then 1.
    pub types: Vec<u8>,
}

/// Sequences of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padded {
    /// `[b, s]` token ids, `[PAD]` behind each sequence's end.
    pub tokens: Vec<u32>,
    /// `[b, s]` token types, 0 behind the end.
    pub types: Vec<u8>,
    /// `[b, s]` whether a position holds a token, and may be attended to.
    pub mask: Vec<bool>,
    /// `s`.
    pub length: usize,
}

/// An example ready for the model: the sequences it is made of and what is to be learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// One; of multiple choice one for each option.
    pub sequences: Vec<Sequence>,
    /// The truth.
    pub target: Target,
}

/// What an example's output is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Index of the class, or of the right option.
    Class(usize),
    /// First and last position of the answer in the sequence; both 0, `[CLS]`, where it holds none.
    Span {
        /// First token.
        start: usize,
        /// Last token.
        end: usize,
    },
}

/// What to cut where two texts are too long together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncation {
    /// The end of the longer text, a token at a time; of equal ones the second. BERT's rule.
    LongestFirst,
    /// The end of the whole, which then ends in `[SEP]`. Megatron's rule.
    Tail,
}

/// Encodes texts and frames them. Not shared between threads.
pub struct Packer<'t> {
    encoder: Encoder<'t>,
    cls: u32,
    sep: u32,
    pad: u32,
    length: usize,
    truncation: Truncation,
}

impl<'t> Packer<'t> {
    /// Frames to at most `length` tokens.
    ///
    /// # Errors
    /// A tokenizer without `[CLS]`, `[SEP]` or `[PAD]`; a length without room for a token of each text.
    pub fn new(tokenizer: &'t Tokenizer, length: usize, truncation: Truncation) -> Result<Self, EvalError> {
        let id = |token: &str| {
            let fault = || format!("has no token {token}; give the tokenizer of a BERT");
            let missing = || DataError::Tokenizer { name: tokenizer.name().to_string(), fault: fault() };
            tokenizer.token_id(token).ok_or_else(missing)
        };
        if length < MARKS + 2 {
            let expected = "5 or more, for three marks and a token of each text";
            return Err(EvalError::Setting { setting: "sequence length", value: length.to_string(), expected });
        }
        let (cls, sep, pad) = (id("[CLS]")?, id("[SEP]")?, id("[PAD]")?);
        Ok(Self { encoder: tokenizer.encoder(), cls, sep, pad, length, truncation })
    }

    /// The longest sequence.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The id behind each sequence's end.
    pub fn pad(&self) -> u32 {
        self.pad
    }

    /// A pair of texts with its class.
    pub fn pair(&mut self, pair: &Pair) -> Result<Encoded, EvalError> {
        let (first, second) = (self.encode(&pair.first)?, self.encode(&pair.second)?);
        Ok(Encoded { sequences: vec![self.frame(&first, &second)], target: Target::Class(pair.label) })
    }

    /// A question as four sequences: the question with the option, of at most 128 tokens, then the passage
    /// [Megatron-LM, `tasks/race/data.py`]. An option fills the question's blanks, or follows it.
    pub fn choice(&mut self, choice: &MultipleChoice) -> Result<Encoded, EvalError> {
        let passage = self.encode(&choice.passage)?;
        let sequence = |option: &String| {
            let mut question = self.encode(&statement(&choice.question, option))?;
            question.truncate(LONGEST_QUESTION_OF_RACE);
            Ok(self.frame(&question, &passage))
        };
        let sequences = choice.options.iter().map(sequence).collect::<Result<_, EvalError>>()?;
        Ok(Encoded { sequences, target: Target::Class(choice.label) })
    }

    /// A text alone: `[CLS] text [SEP]`; `place` names it in errors.
    ///
    /// # Errors
    /// A text that is too long.
    pub fn single(&mut self, place: &str, text: &str) -> Result<Sequence, EvalError> {
        let ids = self.encode(text)?;
        let (tokens, limit) = (ids.len() + 2, self.length);
        if tokens > limit {
            let (place, fix) = (place.to_string(), "shorten it, or give its parts one by one");
            return Err(EvalError::TooLong { place, tokens, limit, fix });
        }
        let tokens = [&[self.cls][..], &ids, &[self.sep]].concat();
        Ok(Sequence { types: vec![0; tokens.len()], tokens })
    }

    pub(super) fn encode(&mut self, text: &str) -> Result<Vec<u32>, EvalError> {
        let mut ids = Vec::new();
        self.encoder.encode(text, &mut ids)?;
        Ok(ids)
    }

    /// The ids of a text, and the bytes that each stands for.
    pub(super) fn encode_with_places(&mut self, text: &str) -> Result<(Vec<u32>, Vec<Range<usize>>), EvalError> {
        let (mut ids, mut places) = (Vec::new(), Vec::new());
        self.encoder.encode_with_places(text, &mut ids, &mut places)?;
        Ok((ids, places))
    }

    pub(super) fn frame(&self, first: &[u32], second: &[u32]) -> Sequence {
        let (first, second) = match self.truncation {
            Truncation::LongestFirst => cut_longest(first, second, self.length - MARKS),
            Truncation::Tail => (first, second),
        };
        let mut tokens = [&[self.cls], first, &[self.sep], second].concat();
        let mut types: Vec<u8> = (0..tokens.len()).map(|at| u8::from(at > first.len() + 1)).collect();
        tokens.truncate(self.length - 1);
        types.truncate(self.length - 1);
        tokens.push(self.sep);
        types.push(1);
        Sequence { tokens, types }
    }
}

impl Padded {
    /// The sequences with `pad` behind each, to `length` or, where it is `None`, to the longest.
    ///
    /// # Panics
    /// When a sequence is longer than `length`.
    pub fn new<'a>(sequences: impl IntoIterator<Item = &'a Sequence>, length: Option<usize>, pad: u32) -> Self {
        let sequences: Vec<&Sequence> = sequences.into_iter().collect();
        let longest = sequences.iter().map(|sequence| sequence.tokens.len()).max().unwrap_or(0);
        let length = length.unwrap_or(longest);
        assert!(longest <= length, "a sequence of {longest} tokens does not fit {length}");
        let mut padded = Self { tokens: Vec::new(), types: Vec::new(), mask: Vec::new(), length };
        for (row, Sequence { tokens, types }) in (1..).zip(sequences) {
            padded.tokens.extend(tokens);
            padded.types.extend(types);
            padded.mask.resize(padded.tokens.len(), true);
            padded.tokens.resize(row * length, pad);
            padded.types.resize(row * length, 0);
            padded.mask.resize(row * length, false);
        }
        padded
    }
}

fn cut_longest<'a>(first: &'a [u32], second: &'a [u32], room: usize) -> (&'a [u32], &'a [u32]) {
    let excess = (first.len() + second.len()).saturating_sub(room);
    // The longer is cut to the other's length, then each in turn, the second before the first.
    let (long, short) = (first.len().max(second.len()), first.len().min(second.len()));
    let alone = excess.min(long - short);
    let both = excess - alone;
    let (mut cut_first, mut cut_second) = (both / 2, both.div_ceil(2));
    *(if first.len() > second.len() { &mut cut_first } else { &mut cut_second }) += alone;
    (&first[..first.len() - cut_first], &second[..second.len() - cut_second])
}

fn statement(question: &str, option: &str) -> String {
    match question.contains('_') {
        true => question.replace('_', option),
        false => format!("{question} {option}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule as BERT states it: a token at a time.
    fn one_at_a_time(mut first: usize, mut second: usize, room: usize) -> (usize, usize) {
        while first + second > room {
            if first > second { first -= 1 } else { second -= 1 }
        }
        (first, second)
    }

    #[test]
    fn the_longer_text_is_cut_first() {
        let ids = [7; 12];
        for (first, second, room) in (0..12).flat_map(|a| (0..12).flat_map(move |b| (2..24).map(move |r| (a, b, r)))) {
            let (cut_first, cut_second) = cut_longest(&ids[..first], &ids[..second], room);
            let expected = one_at_a_time(first, second, room);
            assert_eq!((cut_first.len(), cut_second.len()), expected, "{first} {second} {room}");
        }
    }

    #[test]
    fn an_option_fills_the_blank_or_follows_the_question() {
        assert_eq!(statement("Ann is _ and _ .", "kind"), "Ann is kind and kind .");
        assert_eq!(statement("Who is Ann?", "A cook."), "Who is Ann? A cook.");
    }
}
