//! Corpora into other corpora: merged, split, converted; document by document in constant memory.

use crate::card::CorpusCard;
use crate::corpus::Corpus;
use crate::error::DataError;
use crate::indexed::{IndexedWriter, TokenType, beside};
use crate::order::Split;
use henge_files::LockFile;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Tokens copied at a time.
const STRIDE: u64 = 1 << 18;

/// Writes the documents of all corpora, one after another, as one corpus.
///
/// The element type is the widest of them. The card is kept where all have one and agree on the tokenizer.
///
/// # Errors
/// Corpora known to have been made with different tokenizers, corpora of which only some have modes, an
/// output that is one of the inputs.
pub fn merge(corpora: &[Arc<Corpus>], output: &Path) -> Result<(), DataError> {
    assert!(!corpora.is_empty(), "a merge of nothing");
    check_mergeable(corpora, output)?;
    let _lock = LockFile::acquire(&beside(output, ".lock"))?;
    let types = corpora.iter().map(|corpus| corpus.indexed().token_type());
    let token_type = types.max_by_key(|t| (t.largest_id(), t.width())).unwrap_or(TokenType::I32);
    let mut writer = writer_like(&corpora[0], output, token_type)?;
    for corpus in corpora {
        copy_documents(corpus, 0..corpus.indexed().documents(), &mut writer)?;
    }
    let cards: Option<Vec<&CorpusCard>> = corpora.iter().map(|corpus| corpus.card()).collect();
    finish(writer, output, token_type, cards.and_then(|cards| cards.first().copied()))
}

/// Writes the three parts of a corpus, cut between documents by `split`, to three corpora.
///
/// A part with no document is not written. Returns the documents of each.
///
/// # Errors
/// An output that is the input or another output; nothing is written then.
pub fn split(corpus: &Arc<Corpus>, split: &Split, outputs: [&Path; 3]) -> Result<[Range<u64>; 3], DataError> {
    for (i, output) in outputs.iter().enumerate() {
        check_is_other(corpus, output)?;
        if let Some(twin) = outputs[..i].iter().find(|other| is_same(other, output)) {
            return Err(DataError::BadRequest {
                what: format!("{} and {} are one corpus", twin.display(), output.display()),
                remedy: "name three outputs".into(),
            });
        }
    }
    let parts = split.cut(corpus.indexed().documents());
    for (documents, output) in parts.iter().zip(outputs) {
        if !documents.is_empty() {
            extract(corpus, documents.clone(), output)?;
        }
    }
    Ok(parts)
}

/// Writes some documents of a corpus as a corpus of their own.
pub fn extract(corpus: &Arc<Corpus>, documents: Range<u64>, output: &Path) -> Result<(), DataError> {
    check_is_other(corpus, output)?;
    let _lock = LockFile::acquire(&beside(output, ".lock"))?;
    let token_type = corpus.indexed().token_type();
    let mut writer = writer_like(corpus, output, token_type)?;
    copy_documents(corpus, documents, &mut writer)?;
    finish(writer, output, token_type, corpus.card())
}

fn check_mergeable(corpora: &[Arc<Corpus>], output: &Path) -> Result<(), DataError> {
    let mut made_with: Option<(&Corpus, &CorpusCard)> = None;
    for corpus in corpora {
        check_is_other(corpus, output)?;
        if corpus.indexed().layout().has_modes != corpora[0].indexed().layout().has_modes {
            return Err(DataError::BadRequest {
                what: format!("only one of {} and {} has modes", name(corpus), name(&corpora[0])),
                remedy: "merge corpora of one kind".into(),
            });
        }
        let Some(card) = corpus.card() else { continue };
        let (first, other) = *made_with.get_or_insert((corpus, card));
        if other.tokenizer.fingerprint != card.tokenizer.fingerprint {
            return Err(DataError::BadRequest {
                what: format!(
                    "{} was made with tokenizer {} and {} with {}",
                    name(first),
                    other.tokenizer.name,
                    name(corpus),
                    card.tokenizer.name
                ),
                remedy: "prepare them with one tokenizer".into(),
            });
        }
    }
    Ok(())
}

fn check_is_other(corpus: &Corpus, output: &Path) -> Result<(), DataError> {
    if !is_same(corpus.indexed().prefix(), output) {
        return Ok(());
    }
    Err(DataError::BadRequest {
        what: format!("{} is input and output", name(corpus)),
        remedy: "name another output".into(),
    })
}

/// Whether two prefixes name one corpus, by whatever path or link.
fn is_same(a: &Path, b: &Path) -> bool {
    let resolved = |prefix: &Path| {
        let bin = beside(prefix, ".bin");
        let folder = prefix.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let by_folder = || Some(folder.canonicalize().ok()?.join(bin.file_name()?));
        bin.canonicalize().ok().or_else(by_folder).unwrap_or(bin.clone())
    };
    resolved(a) == resolved(b)
}

fn name(corpus: &Corpus) -> String {
    corpus.indexed().prefix().display().to_string()
}

fn writer_like(corpus: &Corpus, output: &Path, token_type: TokenType) -> Result<IndexedWriter, DataError> {
    match corpus.indexed().layout().has_modes {
        true => IndexedWriter::create_with_modes(output, token_type),
        false => IndexedWriter::create(output, token_type),
    }
}

fn copy_documents(corpus: &Corpus, documents: Range<u64>, writer: &mut IndexedWriter) -> Result<(), DataError> {
    let indexed = corpus.indexed();
    let mut ids = Vec::new();
    for document in documents {
        for sequence in indexed.document(document)? {
            let length = u64::from(indexed.length(sequence));
            for skip in (0..length).step_by(STRIDE as usize) {
                ids.clear();
                indexed.read_part(sequence, skip, (length - skip).min(STRIDE) as usize, &mut ids)?;
                writer.push(&ids)?;
            }
            writer.end_sequence_with_mode(indexed.mode(sequence).unwrap_or(0))?;
        }
        writer.end_document()?;
    }
    Ok(())
}

fn finish(
    writer: IndexedWriter,
    output: &Path,
    token_type: TokenType,
    card: Option<&CorpusCard>,
) -> Result<(), DataError> {
    CorpusCard::remove(output)?;
    let state = writer.finish()?;
    let Some(card) = card else { return Ok(()) };
    let (tokens, sequences, documents) = (state.tokens, state.sequences, state.documents);
    let (dtype, largest_id) = (token_type.name().to_string(), state.largest_id);
    CorpusCard { tokens, sequences, documents, dtype, largest_id, ..card.clone() }.write(output)
}
