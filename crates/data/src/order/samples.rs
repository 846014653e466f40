//! Samples by their position in the run.

use super::blend::Blend;
use super::curriculum::{BlendStage, Curriculum};
use super::megatron::{MegatronIndex, MegatronOptions};
use super::split::{Part, Split};
use crate::corpus::{Corpus, CorpusPart};
use crate::error::DataError;
use crate::indexed::IndexedCorpus;
use henge_random::{Permutation, key, mix};
use std::path::Path;
use std::sync::Arc;

/// What Megatron's order depends on besides corpora and split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MegatronRun {
    /// `s`: inputs a sample.
    pub sequence_length: u64,
    /// numpy's seed.
    pub seed: u32,
    /// Samples the run asks for; `None` for one epoch.
    pub samples: Option<u64>,
}

/// The samples of a run, in order, without end.
#[derive(Debug)]
pub struct SampleOrder {
    sequence_length: u64,
    sources: Vec<Source>,
    /// Which corpus comes when; `None` for one after another.
    curriculum: Option<Curriculum>,
    /// Key of the shuffles; `None` for the sequential order.
    shuffle: Option<u64>,
}

#[derive(Debug)]
struct Source {
    part: CorpusPart,
    /// Samples an epoch.
    samples: u64,
    /// Megatron's tables, in its order.
    index: Option<MegatronIndex>,
}

/// Where sample `i` of the run lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Which of the order's corpora, counted from 0.
    pub corpus: usize,
    /// How many times all samples of that corpus came before; 0 in Megatron's order, which mixes epochs.
    pub epoch: u64,
    /// The sample's number in its part before shuffling.
    pub number: u64,
}

/// A stretch of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub document: u64,
    /// Tokens of the document before the stretch.
    pub offset: u64,
    pub tokens: u64,
}

/// Consecutive tokens of a `.bin`.
struct Span {
    first: u64,
    tokens: u64,
}

/// What Megatron adds to the samples it asks of each corpus of a blend.
const MEGATRON_SURPLUS: f64 = 0.005;

impl SampleOrder {
    /// Corpora blended by weight, the samples of each shuffled anew every epoch under `seed`.
    ///
    /// # Errors
    /// A part without a full sample, or a weight that is not positive.
    pub fn shuffled(parts: Vec<(CorpusPart, f64)>, sequence_length: u64, seed: u64) -> Result<Self, DataError> {
        let weights = parts.iter().map(|(_, weight)| *weight).enumerate().collect();
        let parts = parts.into_iter().map(|(part, _)| part).collect();
        Self::staged(parts, &[BlendStage { from: 0, weights }], sequence_length, seed)
    }

    /// As [`SampleOrder::shuffled`] with blends that take over from each other.
    ///
    /// # Errors
    /// A part without a full sample, or a weight that is not positive.
    ///
    /// # Panics
    /// When the first stage does not begin at sample 0, a later one not after the one before it, or a
    /// stage names a corpus that is not in `parts`.
    pub fn staged(
        parts: Vec<CorpusPart>,
        stages: &[BlendStage],
        sequence_length: u64,
        seed: u64,
    ) -> Result<Self, DataError> {
        let curriculum = Some(Curriculum::new(stages, parts.len())?);
        let sources = sources(parts.into_iter(), sequence_length)?;
        Ok(SampleOrder { sequence_length, sources, curriculum, shuffle: Some(key(seed, "data.sample_order")) })
    }

    /// Corpora one after another, each from its first sample to its last; then again from the start.
    ///
    /// # Errors
    /// A part without a full sample.
    pub fn sequential(parts: Vec<CorpusPart>, sequence_length: u64) -> Result<Self, DataError> {
        assert!(!parts.is_empty(), "an order of no corpora");
        let sources = sources(parts.into_iter(), sequence_length)?;
        Ok(SampleOrder { sequence_length, sources, curriculum: None, shuffle: None })
    }

    /// Megatron's own order: the same samples in the same order as its GPTDataset (of one corpus) or its
    /// BlendedDataset (of several) serves for `samples` samples under `seed`.
    ///
    /// # Errors
    /// A part without a full sample, or a weight that is not positive.
    pub fn megatron(
        corpora: Vec<(Arc<Corpus>, f64)>,
        split: &Split,
        part: Part,
        options: &MegatronRun,
    ) -> Result<Self, DataError> {
        let weights: Vec<f64> = corpora.iter().map(|(_, weight)| *weight).collect();
        let blend = Blend::megatron(&weights)?;
        let mut sources = Vec::new();
        for ((corpus, _), &weight) in corpora.iter().zip(blend.weights()) {
            let indexed = corpus.indexed();
            let sequences = split.cut(indexed.sequences())[part.index()].clone();
            let samples = match corpora.len() {
                1 => options.samples,
                _ => options.samples.map(|n| ((n as f64 * weight).ceil() * (1.0 + MEGATRON_SURPLUS)).ceil() as u64),
            };
            let (sequence_length, seed) = (options.sequence_length, options.seed);
            let wanted = MegatronOptions { sequences: sequences.clone(), sequence_length, seed, samples };
            let index = MegatronIndex::build(indexed, &wanted)?;
            let tokens = indexed.sequence_start(sequences.start)?..indexed.sequence_start(sequences.end)?;
            let part = CorpusPart { corpus: Arc::clone(corpus), part, tokens };
            sources.push(Source { part, samples: index.samples(), index: Some(index) });
        }
        let curriculum = Some(Curriculum::of_one(blend));
        Ok(SampleOrder { sequence_length: options.sequence_length, sources, curriculum, shuffle: None })
    }

    /// `s`: inputs a sample; a sample has one token more.
    pub fn sequence_length(&self) -> u64 {
        self.sequence_length
    }

    /// Distinct samples of all corpora together.
    pub fn distinct_samples(&self) -> u64 {
        self.sources.iter().map(|source| source.samples).sum()
    }

    /// The tokens `[s + 1]` of sample `i`.
    pub fn sample(&self, i: u64) -> Result<Vec<u32>, DataError> {
        let mut tokens = Vec::with_capacity(self.sequence_length as usize + 1);
        self.read(i, &mut tokens)?;
        Ok(tokens)
    }

    /// Appends the tokens `[s + 1]` of sample `i` to `out`.
    pub fn read(&self, i: u64, out: &mut Vec<u32>) -> Result<(), DataError> {
        let location = self.locate(i)?;
        let indexed = self.sources[location.corpus].part.corpus.indexed();
        for span in self.spans(&location)? {
            indexed.read(span.first, span.tokens as usize, out)?;
        }
        Ok(())
    }

    /// Where sample `i` lies.
    ///
    /// # Errors
    /// In Megatron's order, a sample past those that were asked for.
    pub fn locate(&self, i: u64) -> Result<Location, DataError> {
        let (corpus, turn) = match &self.curriculum {
            Some(curriculum) => curriculum.turn(i),
            None => self.in_sequence(i),
        };
        let source = &self.sources[corpus];
        if let Some(index) = &source.index {
            let number = index.shuffle_index.get(turn as usize).copied();
            let number = number.ok_or_else(|| DataError::BadRequest {
                what: format!("sample {i} needs sample {turn} of corpus {corpus}, whose order has {}", source.samples),
                remedy: "build the order for as many samples as the run reads".into(),
            })?;
            return Ok(Location { corpus, epoch: 0, number });
        }
        let (epoch, place) = (turn / source.samples, turn % source.samples);
        let number = self.permutation(corpus, epoch).map_or(place, |permutation| permutation.apply(place));
        Ok(Location { corpus, epoch, number })
    }

    /// Stretches of the `.bin` that make up a sample, in order.
    fn spans(&self, location: &Location) -> Result<Vec<Span>, DataError> {
        let source = &self.sources[location.corpus];
        let indexed = source.part.corpus.indexed();
        let Some(index) = &source.index else {
            let first = source.part.tokens.start + location.number * self.sequence_length;
            return Ok(vec![Span { first, tokens: self.sequence_length + 1 }]);
        };
        let stretches = index.stretches(location.number, indexed).into_iter();
        stretches
            .map(|(sequence, skip, tokens)| {
                let first = indexed.sequence_start(sequence)? + skip;
                Ok(Span { first, tokens })
            })
            .collect()
    }

    /// The documents of a location, in order, with the stretch of each.
    pub fn pieces(&self, location: &Location) -> Result<Vec<Piece>, DataError> {
        let indexed = self.sources[location.corpus].part.corpus.indexed();
        let mut pieces = Vec::new();
        for span in self.spans(location)? {
            add_pieces(indexed, span, &mut pieces)?;
        }
        Ok(pieces)
    }

    /// The samples below `limit` of the run that read any token of `document` of corpus `corpus`, in order.
    ///
    /// The formula order inverts its permutation; the others, kept for small corpora, look at each sample.
    ///
    /// # Errors
    /// A corpus or document that is not there.
    pub fn samples_of_document(&self, corpus: usize, document: u64, limit: u64) -> Result<Vec<u64>, DataError> {
        self.check_document(corpus, document)?;
        if let (Some(curriculum), true) = (&self.curriculum, self.shuffle.is_some()) {
            return self.invert(curriculum, corpus, document, limit);
        }
        let mut found = Vec::new();
        for i in 0..limit {
            let location = self.locate(i)?;
            if location.corpus == corpus && self.pieces(&location)?.iter().any(|piece| piece.document == document) {
                found.push(i);
            }
        }
        Ok(found)
    }

    fn check_document(&self, corpus: usize, document: u64) -> Result<(), DataError> {
        let Some(source) = self.sources.get(corpus) else {
            return Err(DataError::BadRequest {
                what: format!("corpus {corpus} is asked for of {}, counted from 0", self.sources.len()),
                remedy: "name one of the run's".into(),
            });
        };
        let indexed = source.part.corpus.indexed();
        if document < indexed.documents() {
            return Ok(());
        }
        Err(DataError::BadRequest {
            what: format!("document {document} is asked for of {}", indexed.prefix().display()),
            remedy: format!("its documents are 0 to {}", indexed.documents() - 1),
        })
    }

    fn invert(&self, curriculum: &Curriculum, corpus: usize, document: u64, limit: u64) -> Result<Vec<u64>, DataError> {
        let source = &self.sources[corpus];
        let indexed = source.part.corpus.indexed();
        let sequences = indexed.document(document)?;
        let (start, s) = (source.part.tokens.start, self.sequence_length);
        let first = indexed.sequence_start(sequences.start)?.max(start);
        let end = indexed.sequence_start(sequences.end)?.min(source.part.tokens.end);
        if first >= end {
            return Ok(Vec::new());
        }
        // Sample `number` reads tokens start + number * s up to and with start + (number + 1) * s.
        let numbers = (first - start).saturating_sub(1) / s..((end - 1 - start) / s + 1).min(source.samples);
        let turns = curriculum.count(corpus, limit);
        let mut found = Vec::new();
        for epoch in 0..turns.div_ceil(source.samples) {
            let permutation = self.permutation(corpus, epoch);
            for number in numbers.clone() {
                let turn = epoch * source.samples + permutation.map_or(number, |p| p.invert(number));
                if turn < turns {
                    found.push(curriculum.position(corpus, turn));
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Where token `token` of sample `i` stands: the `.bin` and the token's number there.
    ///
    /// # Panics
    /// When the sample has no such token.
    pub fn place_of(&self, i: u64, token: u64) -> Result<(&Path, u64), DataError> {
        let location = self.locate(i)?;
        let bin = self.sources[location.corpus].part.corpus.indexed().bin_path();
        let mut left = token;
        for Span { first, tokens } in self.spans(&location)? {
            if left < tokens {
                return Ok((bin, first + left));
            }
            left -= tokens;
        }
        panic!("token {token} of a sample of {}", self.sequence_length + 1)
    }

    /// Bytes a token takes on disk where sample `i` lies.
    pub fn token_width(&self, i: u64) -> Result<u64, DataError> {
        let location = self.locate(i)?;
        Ok(self.sources[location.corpus].part.corpus.indexed().token_type().width() as u64)
    }

    /// The corpora of the order.
    pub fn parts(&self) -> impl Iterator<Item = &CorpusPart> {
        self.sources.iter().map(|source| &source.part)
    }

    /// Corpus of sample `i` of the sequential order, and the sample's turn there.
    fn in_sequence(&self, i: u64) -> (usize, u64) {
        let all = self.distinct_samples();
        let (epoch, mut place) = (i / all, i % all);
        let mut corpus = 0;
        while place >= self.sources[corpus].samples {
            place -= self.sources[corpus].samples;
            corpus += 1;
        }
        (corpus, epoch * self.sources[corpus].samples + place)
    }

    fn permutation(&self, corpus: usize, epoch: u64) -> Option<Permutation> {
        let key = mix(mix(self.shuffle?, corpus as u64), epoch);
        Some(Permutation::new(key, self.sources[corpus].samples))
    }
}

fn add_pieces(indexed: &IndexedCorpus, span: Span, pieces: &mut Vec<Piece>) -> Result<(), DataError> {
    let (mut at, end) = (span.first, span.first + span.tokens);
    let mut document = indexed.document_of(indexed.sequence_of(at));
    while at < end && document < indexed.documents() {
        let sequences = indexed.document(document)?;
        let (first, last) = (indexed.sequence_start(sequences.start)?, indexed.sequence_start(sequences.end)?);
        let tokens = last.min(end).saturating_sub(at);
        if tokens > 0 {
            pieces.push(Piece { document, offset: at - first, tokens });
        }
        at += tokens;
        document += 1;
    }
    Ok(())
}

fn sources(parts: impl Iterator<Item = CorpusPart>, sequence_length: u64) -> Result<Vec<Source>, DataError> {
    assert!(sequence_length > 0, "samples of no tokens");
    parts.map(|part| Ok(Source { samples: part.samples(sequence_length)?, part, index: None })).collect()
}
