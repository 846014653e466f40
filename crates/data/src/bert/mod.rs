//! Samples for BERT: sentence pairs with order prediction and whole-word n-gram masking, as the first
//! Megatron paper trained it.
//!
//! A corpus prepared by sentences holds one sequence a sentence. Consecutive sentences of a document make
//! a sample of up to `s - 3` tokens (a tenth of them shorter); a random cut splits it into two segments,
//! which change places half of the time; 15% of the tokens are to be predicted. Every choice is drawn from
//! (seed, position of the sample in the run), so any layout sees the same samples. The draws are Henge's
//! own: the laws are Megatron's, the streams are not.

mod draws;
mod mask;
mod spans;

pub use mask::{MaskedToken, Masking};

use crate::corpus::{Corpus, CorpusPart};
use crate::error::DataError;
use crate::tokenizer::Tokenizer;
use draws::Draws;
use henge_random::{Permutation, key, mix};
use spans::{SentenceSpan, sentence_spans};
use std::sync::Arc;

/// `[CLS]` and two `[SEP]`.
const MARKS: u64 = 3;

/// What masking and framing need of a WordPiece vocabulary.
#[derive(Clone, Debug)]
pub struct BertVocabulary {
    pub cls: u32,
    pub sep: u32,
    pub mask: u32,
    pub pad: u32,
    /// For each id, whether it goes on a word (`##...`).
    pub continues: Vec<bool>,
}

impl BertVocabulary {
    /// # Errors
    /// A vocabulary without one of `[CLS]`, `[SEP]`, `[MASK]` and `[PAD]`.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self, DataError> {
        let id = |token: &str| {
            tokenizer.token_id(token).ok_or_else(|| DataError::Tokenizer {
                name: tokenizer.name().to_string(),
                fault: format!("has no token {token}, which BERT samples need"),
            })
        };
        let tokens = (0..tokenizer.vocabulary_size() as u32).map(|id| tokenizer.token_text(id));
        let continues = tokens.map(|token| token.is_some_and(|text| text.starts_with("##"))).collect();
        Ok(BertVocabulary { cls: id("[CLS]")?, sep: id("[SEP]")?, mask: id("[MASK]")?, pad: id("[PAD]")?, continues })
    }
}

/// One sample, not padded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BertSample {
    /// `[CLS] A [SEP] B [SEP]` after masking.
    pub tokens: Vec<u32>,
    /// 0 up to and with the first `[SEP]`, then 1.
    pub types: Vec<u8>,
    /// What is to be predicted, by position.
    pub masked: Vec<MaskedToken>,
    /// Whether the segments changed places.
    pub is_swapped: bool,
}

/// The samples of a sentence corpus, in the order of a run.
#[derive(Debug)]
pub struct BertSamples {
    corpus: Arc<Corpus>,
    spans: Vec<SentenceSpan>,
    vocabulary: BertVocabulary,
    masking: Masking,
    key: u64,
}

impl BertSamples {
    /// Samples of at most `sequence_length` tokens; walks the lengths of all sentences once.
    ///
    /// # Errors
    /// A part without a document of two sentences.
    pub fn new(
        part: &CorpusPart,
        vocabulary: BertVocabulary,
        sequence_length: u64,
        seed: u64,
    ) -> Result<Self, DataError> {
        assert!(sequence_length > MARKS + 1, "a BERT sequence of {sequence_length}");
        let key = key(seed, "data.bert");
        let corpus = &part.corpus;
        let spans = sentence_spans(corpus.indexed(), &part.tokens, sequence_length - MARKS, key)?;
        if spans.is_empty() {
            return Err(DataError::BadRequest {
                what: format!(
                    "the {} part of {} has no document of two sentences or more",
                    part.part.name(),
                    corpus.indexed().prefix().display()
                ),
                remedy: "prepare it by sentences".into(),
            });
        }
        Ok(BertSamples { corpus: Arc::clone(corpus), spans, vocabulary, masking: Masking::MEGATRON, key })
    }

    /// Samples an epoch.
    pub fn distinct_samples(&self) -> u64 {
        self.spans.len() as u64
    }

    /// Sample `i` of the run; each epoch is shuffled and masked anew.
    pub fn sample(&self, i: u64) -> Result<BertSample, DataError> {
        let samples = self.distinct_samples();
        let order = Permutation::new(mix(self.key, i / samples), samples);
        let span = self.spans[order.apply(i % samples) as usize];
        let mut draws = Draws::new(mix(mix(self.key, u64::MAX), i));
        let (mut first, mut second) = self.segments(span, &mut draws)?;
        let is_swapped = draws.unit() < 0.5;
        if is_swapped {
            std::mem::swap(&mut first, &mut second);
        }
        truncate(&mut first, &mut second, span.target as usize, &mut draws);
        Ok(self.frame(&first, &second, is_swapped, &mut draws))
    }

    fn segments(&self, span: SentenceSpan, draws: &mut Draws) -> Result<(Vec<u32>, Vec<u32>), DataError> {
        let cut = span.first + 1 + draws.below(span.sentences() - 1);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for sentence in span.first..span.end {
            let segment = if sentence < cut { &mut first } else { &mut second };
            self.corpus.indexed().read_sequence(sentence, segment)?;
        }
        Ok((first, second))
    }

    fn frame(&self, first: &[u32], second: &[u32], is_swapped: bool, draws: &mut Draws) -> BertSample {
        let BertVocabulary { cls, sep, .. } = self.vocabulary;
        let mut tokens = [&[cls][..], first, &[sep], second, &[sep]].concat();
        let types = (0..tokens.len()).map(|at| u8::from(at > first.len() + 1)).collect();
        let masked = self.masking.apply(&mut tokens, &self.vocabulary, draws);
        BertSample { tokens, types, masked, is_swapped }
    }
}

/// Takes tokens off the longer segment, from its front or back at random, until both fit.
fn truncate(first: &mut Vec<u32>, second: &mut Vec<u32>, target: usize, draws: &mut Draws) {
    let (mut fronts, mut kept) = ([0, 0], [first.len(), second.len()]);
    while kept[0] + kept[1] > target {
        let longer = usize::from(kept[0] <= kept[1]);
        kept[longer] -= 1;
        fronts[longer] += usize::from(draws.unit() < 0.5);
    }
    for (segment, (front, kept)) in [first, second].into_iter().zip(fronts.into_iter().zip(kept)) {
        segment.drain(..front);
        segment.truncate(kept);
    }
}
