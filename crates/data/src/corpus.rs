//! A corpus as the trainer sees it: tokens, documents, and shares of them.

use crate::card::CorpusCard;
use crate::error::DataError;
use crate::indexed::IndexedCorpus;
use crate::order::{Part, Split};
use crate::tokenizer::Tokenizer;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Tokens read at a time where a whole corpus is walked.
const STRIDE: usize = 1 << 20;

/// An open corpus with at least one document, and its card if it has one.
#[derive(Debug)]
pub struct Corpus {
    indexed: IndexedCorpus,
    card: Option<CorpusCard>,
}

/// A contiguous share of a corpus.
#[derive(Clone, Debug)]
pub struct CorpusPart {
    pub corpus: Arc<Corpus>,
    pub part: Part,
    /// Positions in the `.bin`.
    pub tokens: Range<u64>,
}

impl Corpus {
    /// Opens `PREFIX.bin`, `PREFIX.idx` and, where it is there, `PREFIX.json`.
    ///
    /// # Errors
    /// A missing or damaged file, or a corpus without documents.
    pub fn open(prefix: &Path) -> Result<Arc<Self>, DataError> {
        let indexed = IndexedCorpus::open(prefix)?;
        if indexed.documents() == 0 || indexed.tokens() == 0 {
            return Err(DataError::EmptyCorpus { path: indexed.bin_path().to_path_buf() });
        }
        let card = CorpusCard::read(prefix)?;
        Ok(Arc::new(Corpus { indexed, card }))
    }

    /// The files themselves.
    pub fn indexed(&self) -> &IndexedCorpus {
        &self.indexed
    }

    /// What was recorded when it was prepared.
    pub fn card(&self) -> Option<&CorpusCard> {
        self.card.as_ref()
    }

    /// The largest token id: from the card, else by reading every token once.
    pub fn largest_id(&self) -> Result<u32, DataError> {
        match &self.card {
            Some(card) => Ok(card.largest_id),
            None => scan_largest_id(&self.indexed),
        }
    }

    /// Fails when the corpus is known to have been made with another tokenizer.
    pub fn check_tokenizer(&self, tokenizer: &Tokenizer) -> Result<(), DataError> {
        let Some(made_with) = self.card.as_ref().map(|card| &card.tokenizer) else { return Ok(()) };
        if made_with.fingerprint == tokenizer.fingerprint() {
            return Ok(());
        }
        Err(DataError::BadRequest {
            what: format!(
                "{} was prepared with tokenizer {} (fingerprint {}), not {} ({})",
                self.indexed.bin_path().display(),
                made_with.name,
                made_with.fingerprint,
                tokenizer.name(),
                tokenizer.fingerprint()
            ),
            remedy: "name that tokenizer or prepare the corpus again".into(),
        })
    }

    /// The whole corpus as one part.
    pub fn whole(self: &Arc<Self>, part: Part) -> CorpusPart {
        CorpusPart { corpus: Arc::clone(self), part, tokens: 0..self.indexed.tokens() }
    }

    /// The share of the corpus that `split` gives to `part`: a contiguous range of documents, as
    /// Megatron cuts them.
    ///
    /// Where the documents are so few that a part with a positive share would get none (a plain text is
    /// one document), all three parts are cut between tokens instead, by the same ratio.
    pub fn part(self: &Arc<Self>, split: &Split, part: Part) -> Result<CorpusPart, DataError> {
        let documents = split.cut(self.indexed.documents());
        let starved = (0..3).any(|i| split.shares()[i] > 0.0 && documents[i].is_empty());
        let tokens = if starved {
            split.cut(self.indexed.tokens())[part.index()].clone()
        } else {
            let Range { start, end } = documents[part.index()];
            self.document_position(start)?..self.document_position(end)?
        };
        Ok(CorpusPart { corpus: Arc::clone(self), part, tokens })
    }

    fn document_position(&self, document: u64) -> Result<u64, DataError> {
        let sequence = self.indexed.document_start(document);
        if sequence > self.indexed.sequences() {
            let at = self.indexed.layout().document_at(document);
            let fault = format!("document {document} begins at sequence {sequence}, past the last");
            return Err(self.indexed.corrupt(at, fault));
        }
        self.indexed.sequence_start(sequence)
    }
}

impl CorpusPart {
    /// How many samples of `sequence_length` tokens plus one the part holds, at least one.
    ///
    /// # Errors
    /// [`DataError::NoFullSample`] when it holds none.
    pub fn samples(&self, sequence_length: u64) -> Result<u64, DataError> {
        let tokens = self.tokens.end - self.tokens.start;
        let samples = tokens.saturating_sub(1) / sequence_length;
        if samples == 0 {
            return Err(DataError::NoFullSample {
                path: self.corpus.indexed.prefix().to_path_buf(),
                part: self.part.name(),
                tokens,
                needed: sequence_length + 1,
            });
        }
        Ok(samples)
    }
}

fn scan_largest_id(indexed: &IndexedCorpus) -> Result<u32, DataError> {
    let (mut largest, mut ids) = (0, Vec::with_capacity(STRIDE));
    let mut first = 0;
    while first < indexed.tokens() {
        let count = (indexed.tokens() - first).min(STRIDE as u64);
        ids.clear();
        indexed.read(first, count as usize, &mut ids)?;
        largest = ids.iter().copied().fold(largest, u32::max);
        first += count;
    }
    Ok(largest)
}
