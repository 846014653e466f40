//! The writer of the corpora, and how a preparation stops and goes on.

use super::encode::{EncodeOptions, Encoded, encode_block};
use super::journal::{Journal, name_request};
use super::parallel::in_order;
use super::reader::{Block, Position, Reader};
use super::{InputKind, PrepareOptions, SequenceUnit};
use crate::card::{CorpusCard, TokenizerCard};
use crate::error::DataError;
use crate::indexed::{IndexedWriter, TokenType, WriterState, beside};
use crate::tokenizer::Tokenizer;
use henge_files::LockFile;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How far a preparation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Packed bytes read of the inputs, including those of an interrupted run.
    pub bytes: u64,
    /// Packed bytes of all inputs; `None` when standard input is among them.
    pub total_bytes: Option<u64>,
    pub documents: u64,
    pub tokens: u64,
    pub elapsed: Duration,
}

/// What a preparation has made.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The corpora, one a key, with their cards.
    pub corpora: Vec<(PathBuf, CorpusCard)>,
    /// Documents without any token.
    pub empty_documents: u64,
    pub elapsed: Duration,
}

/// Prepares a corpus; `progress` is called now and then from the calling thread, and `stop`, once true,
/// ends the work at the next block with [`DataError::Cancelled`].
///
/// A stopped or killed preparation leaves its unfinished files and a journal beside the output, and the
/// same request goes on from there. After any other error nothing is left.
///
/// # Errors
/// Unreadable or invalid input, by file and line; a full disk; another run that writes the same output.
pub fn prepare(
    options: &PrepareOptions,
    tokenizer: &Tokenizer,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, DataError> {
    prepare_units(options, SequenceUnit::Document, tokenizer, stop, progress)
}

/// As [`prepare`] with one sequence a sentence, for BERT; an end-of-document token goes to the last.
///
/// # Errors
/// Those of [`prepare`]; also plain text, in which a piece might end inside a sentence.
pub fn prepare_sentences(
    options: &PrepareOptions,
    tokenizer: &Tokenizer,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, DataError> {
    if let Some(text) = options.inputs.iter().find(|input| input.kind == InputKind::Text) {
        return Err(DataError::BadRequest {
            what: format!("{} is plain text, which is not prepared by sentences", text.path.display()),
            remedy: "write each document as a line of JSON".into(),
        });
    }
    prepare_units(options, SequenceUnit::Sentence, tokenizer, stop, progress)
}

fn prepare_units(
    options: &PrepareOptions,
    unit: SequenceUnit,
    tokenizer: &Tokenizer,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, DataError> {
    assert!(options.workers > 0 && !options.keys.is_empty(), "no workers or no keys");
    let started = Instant::now();
    let _lock = LockFile::acquire(&beside(&options.output, ".lock"))?;
    let token_type = TokenType::for_vocabulary(tokenizer.vocabulary_size());
    let request = name_request(options, tokenizer, token_type)?.map(|name| format!("{unit:?} {name}"));
    let mut writer = Writer::open(options, token_type, request)?;
    let done = run(options, unit, tokenizer, &mut writer, stop, &mut |writer, bytes| {
        progress(&writer.progress(bytes, total_bytes(options), started.elapsed()));
    });
    match done.and_then(|()| writer.finish(tokenizer)) {
        Ok(corpora) => Ok(Summary { corpora: corpora.0, empty_documents: corpora.1, elapsed: started.elapsed() }),
        Err(DataError::Cancelled) => Err(DataError::Cancelled),
        Err(error) => {
            // The journal speaks of files that are gone by now; the first error is the one to report.
            let _ = Journal::remove(options);
            Err(error)
        }
    }
}

fn total_bytes(options: &PrepareOptions) -> Option<u64> {
    options.inputs.iter().map(|input| std::fs::metadata(&input.path).ok().map(|m| m.len())).sum()
}

fn run(
    options: &PrepareOptions,
    unit: SequenceUnit,
    tokenizer: &Tokenizer,
    writer: &mut Writer<'_>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Writer<'_>, u64),
) -> Result<(), DataError> {
    let start = writer.position.unwrap_or(Position::start_of(0));
    let reader = Reader {
        inputs: &options.inputs,
        keys: &options.keys,
        rule: tokenizer.cut_rule(),
        encoder: Some(tokenizer.encoder()),
        bytes_read: Arc::new(AtomicU64::new(0)),
    };
    let shared = EncodeOptions { unit, keys: &options.keys, end_of_document: options.end_of_document };
    let worker = || {
        let (mut encoder, shared) = (tokenizer.encoder(), &shared);
        move |block: &Block| encode_block(block, shared, &mut encoder)
    };
    in_order(reader, start, options.workers, &worker, &mut |block, encoded: Vec<Encoded>| {
        writer.write(block, &encoded)?;
        progress(writer, block.bytes_read);
        if stop.load(Ordering::Relaxed) { writer.stop() } else { Ok(()) }
    })
}

/// The corpora under way.
struct Writer<'a> {
    options: &'a PrepareOptions,
    token_type: TokenType,
    request: Option<String>,
    corpora: Vec<IndexedWriter>,
    /// `None` inside a line from which no later run can go on.
    position: Option<Position>,
    empty_documents: u64,
    recorded: Instant,
}

impl<'a> Writer<'a> {
    fn open(options: &'a PrepareOptions, token_type: TokenType, request: Option<String>) -> Result<Self, DataError> {
        let journal = request.as_deref().and_then(|request| Journal::read(options, request));
        let states = match &journal {
            Some(journal) => journal.writers.clone(),
            None => {
                // One of another request speaks of files that are about to be emptied.
                Journal::remove(options)?;
                vec![WriterState::default(); options.keys.len()]
            }
        };
        let corpora = prefixes(options)
            .iter()
            .zip(states)
            .map(|(prefix, state)| IndexedWriter::resume(prefix, token_type, state))
            .collect::<Result<_, _>>()?;
        let (position, empty_documents) =
            journal.map_or((Position::start_of(0), 0), |journal| (journal.position, journal.empty_documents));
        Ok(Writer {
            options,
            token_type,
            request,
            corpora,
            position: Some(position),
            empty_documents,
            recorded: Instant::now(),
        })
    }

    fn write(&mut self, block: &Block, encoded: &[Encoded]) -> Result<(), DataError> {
        for (corpus, encoded) in self.corpora.iter_mut().zip(encoded) {
            self.empty_documents += write_encoded(corpus, encoded)?;
        }
        self.position = block.end;
        if self.recorded.elapsed() >= self.options.record_every {
            self.record()?;
        }
        Ok(())
    }

    /// Makes what is written so far survive a kill.
    fn record(&mut self) -> Result<(), DataError> {
        let (Some(request), Some(position)) = (self.request.clone(), self.position) else { return Ok(()) };
        self.recorded = Instant::now();
        let writers = self.corpora.iter_mut().map(IndexedWriter::sync).collect::<Result<_, _>>()?;
        let empty_documents = self.empty_documents;
        Journal { request, position, writers, empty_documents }.write(self.options)
    }

    /// Leaves everything for the next run of the same request, unless there can be none.
    fn stop(&mut self) -> Result<(), DataError> {
        self.record()?;
        if self.request.is_some() {
            self.corpora.iter_mut().for_each(IndexedWriter::keep);
        }
        Err(DataError::Cancelled)
    }

    fn progress(&self, bytes: u64, total_bytes: Option<u64>, elapsed: Duration) -> Progress {
        let states = self.corpora.iter().map(IndexedWriter::state);
        let (documents, tokens) = states.fold((0, 0), |sum, state| (sum.0 + state.documents, sum.1 + state.tokens));
        Progress { bytes, total_bytes, documents, tokens, elapsed }
    }

    fn finish(self, tokenizer: &Tokenizer) -> Result<(Vec<(PathBuf, CorpusCard)>, u64), DataError> {
        if self.corpora.iter().all(|corpus| corpus.state().tokens == 0) {
            let inputs: Vec<_> = self.options.inputs.iter().map(|i| i.path.display().to_string()).collect();
            return Err(DataError::EmptyInput { inputs: inputs.join(", ") });
        }
        let mut finished = Vec::new();
        for (prefix, corpus) in prefixes(self.options).into_iter().zip(self.corpora) {
            CorpusCard::remove(&prefix)?;
            let state = corpus.finish()?;
            let card = card(&state, self.token_type, tokenizer, self.options.end_of_document);
            card.write(&prefix)?;
            finished.push((prefix, card));
        }
        Journal::remove(self.options)?;
        Ok((finished, self.empty_documents))
    }
}

/// The corpora's names: the output, or one a key where there are several.
fn prefixes(options: &PrepareOptions) -> Vec<PathBuf> {
    match &options.keys[..] {
        [_] => vec![options.output.clone()],
        several => several.iter().map(|key| beside(&options.output, &format!("_{key}"))).collect(),
    }
}

/// Writes one block's ids; returns how many documents had none.
fn write_encoded(corpus: &mut IndexedWriter, encoded: &Encoded) -> Result<u64, DataError> {
    let (mut from, mut ended, mut empty) = (0, 0, 0);
    for &document_end in &encoded.document_ends {
        empty += u64::from(document_end == ended);
        for &end in &encoded.sequence_ends[ended..document_end] {
            corpus.push(&encoded.ids[from..end])?;
            corpus.end_sequence()?;
            from = end;
        }
        ended = document_end;
        corpus.end_document()?;
    }
    corpus.push(&encoded.ids[from..])?;
    Ok(empty)
}

fn card(state: &WriterState, token_type: TokenType, tokenizer: &Tokenizer, end_of_document: Option<u32>) -> CorpusCard {
    CorpusCard {
        tokens: state.tokens,
        sequences: state.sequences,
        documents: state.documents,
        dtype: token_type.name().to_string(),
        largest_id: state.largest_id,
        end_of_document,
        tokenizer: TokenizerCard {
            name: tokenizer.name().to_string(),
            fingerprint: tokenizer.fingerprint().to_string(),
            vocabulary_size: tokenizer.vocabulary_size(),
        },
    }
}
