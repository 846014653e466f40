//! The checks that opening a corpus leaves out because they read all of it.

use crate::corpus::Corpus;
use crate::error::DataError;
use crate::indexed::IndexedCorpus;
use serde::Serialize;

/// Tokens read at a time.
const STRIDE: u64 = 1 << 20;

/// What a corpus that passed holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub tokens: u64,
    pub sequences: u64,
    pub documents: u64,
    pub largest_id: u32,
}

/// Checks every pointer, length, document entry and token, and the card against them, in constant memory.
///
/// Pointers must be the running sum of the lengths: that is how every writer lays a corpus out, and what
/// the sample orders rely on.
///
/// # Errors
/// The first fault, by file and offset; with `vocabulary_size`, also an id that is not below it.
pub fn verify(corpus: &Corpus, vocabulary_size: Option<u32>) -> Result<Verified, DataError> {
    let indexed = corpus.indexed();
    check_pointers(indexed)?;
    check_documents(indexed)?;
    let largest_id = check_ids(indexed, vocabulary_size)?;
    let (tokens, sequences, documents) = (indexed.tokens(), indexed.sequences(), indexed.documents());
    let verified = Verified { tokens, sequences, documents, largest_id };
    check_card(corpus, &verified)?;
    Ok(verified)
}

fn check_pointers(indexed: &IndexedCorpus) -> Result<(), DataError> {
    let (layout, width) = (indexed.layout(), indexed.token_type().width() as u64);
    let mut expected = 0u64;
    for i in 0..indexed.sequences() {
        let (length, pointer) = (indexed.length(i), indexed.pointer(i));
        if length > i32::MAX as u32 {
            let fault = format!("the length of sequence {i} is negative ({})", length as i32);
            return Err(indexed.corrupt(layout.length_at(i), fault));
        }
        if pointer != expected {
            let fault =
                format!("sequence {i} is said to begin at byte {pointer}, but the one before ends at {expected}");
            return Err(indexed.corrupt(layout.pointer_at(i), fault));
        }
        expected += u64::from(length) * width;
    }
    Ok(())
}

fn check_documents(indexed: &IndexedCorpus) -> Result<(), DataError> {
    for document in 0..indexed.documents() {
        indexed.document(document)?;
    }
    Ok(())
}

fn check_ids(indexed: &IndexedCorpus, vocabulary_size: Option<u32>) -> Result<u32, DataError> {
    let (mut first, mut largest, mut ids) = (0, 0, Vec::new());
    while first < indexed.tokens() {
        let count = (indexed.tokens() - first).min(STRIDE);
        ids.clear();
        indexed.read(first, count as usize, &mut ids)?;
        if let Some(size) = vocabulary_size
            && let Some(at) = ids.iter().position(|&id| id >= size)
        {
            return Err(DataError::BadRequest {
                what: format!(
                    "{}: token {} is {}, beyond a vocabulary of {size}",
                    indexed.bin_path().display(),
                    first + at as u64,
                    ids[at]
                ),
                remedy: "name the vocabulary the corpus was made with or prepare it again".into(),
            });
        }
        largest = ids.iter().copied().fold(largest, u32::max);
        first += count;
    }
    Ok(largest)
}

fn check_card(corpus: &Corpus, found: &Verified) -> Result<(), DataError> {
    let Some(card) = corpus.card() else { return Ok(()) };
    let recorded = Verified {
        tokens: card.tokens,
        sequences: card.sequences,
        documents: card.documents,
        largest_id: card.largest_id,
    };
    if recorded == *found && card.dtype == corpus.indexed().token_type().name() {
        return Ok(());
    }
    Err(DataError::BadRequest {
        what: format!(
            "{}.json records {recorded:?} of {}, but the corpus has {found:?} of {}",
            corpus.indexed().prefix().display(),
            card.dtype,
            corpus.indexed().token_type().name()
        ),
        remedy: "the three files do not belong together; copy them again".into(),
    })
}
