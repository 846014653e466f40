//! How fast this machine encodes, prepares and reads: the measurements behind `henge bench data`.

use crate::error::DataError;
use crate::order::SampleOrder;
use crate::prepare::{PrepareOptions, prepare};
use crate::tokenizer::Tokenizer;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Work done in a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Bytes of text, or of tokens as stored.
    pub bytes: u64,
    pub tokens: u64,
    pub seconds: f64,
}

impl Rate {
    fn since(started: Instant, bytes: u64, tokens: u64) -> Self {
        Rate { bytes, tokens, seconds: started.elapsed().max(Duration::from_nanos(1)).as_secs_f64() }
    }

    /// Million bytes a second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }
}

/// Encodes all texts on `threads` threads.
pub fn encode(texts: &[String], tokenizer: &Tokenizer, threads: usize) -> Result<Rate, DataError> {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let counts = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| encode_some(texts, tokenizer, &next))).collect();
        workers.into_iter().map(|w| w.join().expect("an encoder panicked")).collect::<Result<Vec<u64>, _>>()
    })?;
    Ok(Rate::since(started, text_bytes(texts), counts.iter().sum()))
}

fn encode_some(texts: &[String], tokenizer: &Tokenizer, next: &AtomicUsize) -> Result<u64, DataError> {
    let (mut encoder, mut ids, mut tokens) = (tokenizer.encoder(), Vec::new(), 0);
    while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
        ids.clear();
        encoder.encode(text, &mut ids)?;
        tokens += ids.len() as u64;
    }
    Ok(tokens)
}

/// The `tokenizers` library's batch encoding of the same texts, on as many threads as it takes.
pub fn library_batch(texts: &[String], tokenizer_json: &Path) -> Result<Rate, DataError> {
    let fault = |error: tokenizers::Error| DataError::Tokenizer {
        name: tokenizer_json.display().to_string(),
        fault: error.to_string(),
    };
    let library = tokenizers::Tokenizer::from_file(tokenizer_json).map_err(fault)?;
    let batch: Vec<&str> = texts.iter().map(String::as_str).collect();
    let started = Instant::now();
    let encodings = library.encode_batch(batch, false).map_err(fault)?;
    let tokens = encodings.iter().map(|encoding| encoding.len() as u64).sum();
    Ok(Rate::since(started, text_bytes(texts), tokens))
}

/// A whole preparation; `bytes` are those of its inputs as they lie on disk.
pub fn end_to_end(options: &PrepareOptions, tokenizer: &Tokenizer) -> Result<Rate, DataError> {
    let started = Instant::now();
    let mut bytes = 0;
    let summary = prepare(options, tokenizer, &AtomicBool::new(false), &mut |progress| bytes = progress.bytes)?;
    Ok(Rate::since(started, bytes, summary.corpora.iter().map(|(_, card)| card.tokens).sum()))
}

/// Reads `samples` samples from the first on.
pub fn read_samples(order: &SampleOrder, samples: u64) -> Result<Rate, DataError> {
    let mut buffer = Vec::with_capacity(order.sequence_length() as usize + 1);
    let started = Instant::now();
    let (mut bytes, mut tokens) = (0, 0);
    for i in 0..samples {
        buffer.clear();
        order.read(i, &mut buffer)?;
        tokens += buffer.len() as u64;
        bytes += buffer.len() as u64 * order.token_width(i)?;
    }
    Ok(Rate::since(started, bytes, tokens))
}

fn text_bytes(texts: &[String]) -> u64 {
    texts.iter().map(|text| text.len() as u64).sum()
}
