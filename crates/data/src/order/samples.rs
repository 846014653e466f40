//! Samples by their position in the run.

use super::blend::Blend;
use crate::corpus::CorpusPart;
use crate::error::DataError;
use henge_random::{Permutation, key, mix};

/// The samples of a run, in order, without end.
#[derive(Debug)]
pub struct SampleOrder {
    sequence_length: u64,
    sources: Vec<Source>,
    blend: Option<Blend>,
    /// Key of the shuffles; `None` for the sequential order.
    shuffle: Option<u64>,
}

#[derive(Debug)]
struct Source {
    part: CorpusPart,
    /// Samples an epoch.
    samples: u64,
}

/// Where sample `i` of the run lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Which of the order's corpora, counted from 0.
    pub corpus: usize,
    /// How many times all samples of that corpus came before.
    pub epoch: u64,
    /// The sample's number in its part before shuffling.
    pub number: u64,
    /// Position of its first token in the `.bin`.
    pub first_token: u64,
}

/// A stretch of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub document: u64,
    /// Tokens of the document before the stretch.
    pub offset: u64,
    pub tokens: u64,
}

impl SampleOrder {
    /// Corpora blended by weight, the samples of each shuffled anew every epoch under `seed`.
    ///
    /// # Errors
    /// A part without a full sample, or a weight that is not positive.
    pub fn shuffled(parts: Vec<(CorpusPart, f64)>, sequence_length: u64, seed: u64) -> Result<Self, DataError> {
        let weights: Vec<f64> = parts.iter().map(|(_, weight)| *weight).collect();
        let blend = Some(Blend::new(&weights)?);
        let sources = sources(parts.into_iter().map(|(part, _)| part), sequence_length)?;
        Ok(SampleOrder { sequence_length, sources, blend, shuffle: Some(key(seed, "data.sample_order")) })
    }

    /// Corpora one after another, each from its first sample to its last; then again from the start.
    ///
    /// # Errors
    /// A part without a full sample.
    pub fn sequential(parts: Vec<CorpusPart>, sequence_length: u64) -> Result<Self, DataError> {
        assert!(!parts.is_empty(), "an order of no corpora");
        let sources = sources(parts.into_iter(), sequence_length)?;
        Ok(SampleOrder { sequence_length, sources, blend: None, shuffle: None })
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
        let location = self.locate(i);
        let indexed = self.sources[location.corpus].part.corpus.indexed();
        indexed.read(location.first_token, self.sequence_length as usize + 1, out)
    }

    /// Where sample `i` lies.
    pub fn locate(&self, i: u64) -> Location {
        let (corpus, turn) = match &self.blend {
            Some(blend) => blend.turn(i),
            None => self.in_sequence(i),
        };
        let source = &self.sources[corpus];
        let (epoch, place) = (turn / source.samples, turn % source.samples);
        let number = match self.permutation(corpus, epoch) {
            Some(permutation) => permutation.apply(place),
            None => place,
        };
        let first_token = source.part.tokens.start + number * self.sequence_length;
        Location { corpus, epoch, number, first_token }
    }

    /// The documents of a location, in order, with the stretch of each.
    pub fn pieces(&self, location: &Location) -> Result<Vec<Piece>, DataError> {
        let indexed = self.sources[location.corpus].part.corpus.indexed();
        let (mut at, end) = (location.first_token, location.first_token + self.sequence_length + 1);
        let mut document = indexed.document_of(indexed.sequence_of(at));
        let mut pieces = Vec::new();
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
        Ok(pieces)
    }

    /// The samples below `limit` of the run that read any token of `document` of corpus `corpus`, in order.
    ///
    /// Only for shuffled orders of any number of corpora and sequential ones of one.
    pub fn samples_of_document(&self, corpus: usize, document: u64, limit: u64) -> Result<Vec<u64>, DataError> {
        let source = &self.sources[corpus];
        let indexed = source.part.corpus.indexed();
        let sequences = indexed.document(document)?;
        let (start, s) = (source.part.tokens.start, self.sequence_length);
        let first = indexed.sequence_start(sequences.start)?.max(start);
        let end = indexed.sequence_start(sequences.end)?.min(source.part.tokens.end);
        let mut found = Vec::new();
        if first >= end {
            return Ok(found);
        }
        // Sample `number` reads tokens start + number * s up to and with start + (number + 1) * s.
        let numbers = (first - start).saturating_sub(1) / s..((end - 1 - start) / s + 1).min(source.samples);
        let turns = match &self.blend {
            Some(blend) => blend.count(corpus, limit),
            None => limit,
        };
        for epoch in 0..turns.div_ceil(source.samples) {
            let permutation = self.permutation(corpus, epoch);
            for number in numbers.clone() {
                let turn = epoch * source.samples + permutation.map_or(number, |p| p.invert(number));
                if turn < turns {
                    found.push(self.blend.as_ref().map_or(turn, |blend| blend.position(corpus, turn)));
                }
            }
        }
        found.sort_unstable();
        Ok(found)
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

fn sources(parts: impl Iterator<Item = CorpusPart>, sequence_length: u64) -> Result<Vec<Source>, DataError> {
    assert!(sequence_length > 0, "samples of no tokens");
    parts.map(|part| Ok(Source { samples: part.samples(sequence_length)?, part })).collect()
}
