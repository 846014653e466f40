//! How fast this machine encodes, prepares and reads: the measurements behind `henge bench data`.

use crate::corpus::Corpus;
use crate::error::DataError;
use crate::indexed::{IndexedWriter, TokenType};
use crate::order::SampleOrder;
use crate::prepare::{PrepareOptions, prepare};
use crate::tokenizer::Tokenizer;
use henge_files::{Operation, WithPath};
use henge_random::Philox;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Tokens that [`copy`] reads at a time.
const COPIED: usize = 1 << 14;

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

/// Encodes all texts `copies` times over on `threads` threads, each with a cache that begins empty.
pub fn encode(texts: &[String], copies: usize, tokenizer: &Tokenizer, threads: usize) -> Result<Rate, DataError> {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let some = || encode_some(texts, copies, tokenizer, &next);
    let counts = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        workers.into_iter().map(|w| w.join().expect("an encoder panicked")).collect::<Result<Vec<u64>, _>>()
    })?;
    Ok(Rate::since(started, text_bytes(texts) * copies as u64, counts.iter().sum()))
}

fn encode_some(texts: &[String], copies: usize, tokenizer: &Tokenizer, next: &AtomicUsize) -> Result<u64, DataError> {
    let (mut encoder, mut ids, mut tokens) = (tokenizer.encoder(), Vec::new(), 0);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= texts.len() * copies {
            return Ok(tokens);
        }
        ids.clear();
        encoder.encode(&texts[number % texts.len()], &mut ids)?;
        tokens += ids.len() as u64;
    }
}

/// A tokenizer as the `tokenizers` library runs it, on threads of its own.
pub struct Library {
    name: String,
    tokenizer: tokenizers::Tokenizer,
    threads: rayon::ThreadPool,
}

impl Library {
    /// `None` where the library has no such tokenizer.
    pub fn of(tokenizer: &Tokenizer, threads: usize) -> Result<Option<Self>, DataError> {
        let Some(library) = tokenizer.to_library()? else { return Ok(None) };
        let name = tokenizer.name().to_string();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let threads = pool.map_err(|error| DataError::Tokenizer { name: name.clone(), fault: error.to_string() })?;
        Ok(Some(Library { name, tokenizer: library, threads }))
    }

    /// The library's batch encoding of all texts.
    pub fn encode(&self, texts: &[String]) -> Result<Rate, DataError> {
        let started = Instant::now();
        let encodings = self.batch(texts)?;
        let tokens = encodings.iter().map(|encoding| encoding.len() as u64).sum();
        Ok(Rate::since(started, text_bytes(texts), tokens))
    }

    fn batch(&self, texts: &[String]) -> Result<Vec<tokenizers::Encoding>, DataError> {
        let batch: Vec<&str> = texts.iter().map(String::as_str).collect();
        let encodings = self.threads.install(|| self.tokenizer.encode_batch(batch, false));
        encodings.map_err(|error| DataError::Tokenizer { name: self.name.clone(), fault: error.to_string() })
    }

    /// The first text that the library encodes to other ids than we do, if there is one.
    pub fn first_difference(&self, texts: &[String], tokenizer: &Tokenizer) -> Result<Option<usize>, DataError> {
        let (encodings, mut encoder, mut ids) = (self.batch(texts)?, tokenizer.encoder(), Vec::new());
        for (number, (text, encoding)) in texts.iter().zip(&encodings).enumerate() {
            ids.clear();
            encoder.encode(text, &mut ids)?;
            if ids != encoding.get_ids() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

/// Writes texts as JSON lines, packed by zstd where the name says so: an input of [`end_to_end`].
pub fn write_lines(texts: &[String], copies: usize, path: &Path) -> Result<(), DataError> {
    let packed = path.extension().is_some_and(|ending| ending == "zst");
    let file = BufWriter::new(File::create(path).with_path(path, Operation::Create)?);
    let wrote = if packed { write_packed(texts, copies, file) } else { write_plain(texts, copies, file) };
    Ok(wrote.with_path(path, Operation::Write)?)
}

fn write_packed(texts: &[String], copies: usize, file: BufWriter<File>) -> io::Result<()> {
    let mut packer = zstd::stream::write::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    write_plain(texts, copies, &mut packer)?;
    packer.finish()?.flush()
}

fn write_plain(texts: &[String], copies: usize, mut out: impl Write) -> io::Result<()> {
    for text in (0..copies).flat_map(|_| texts) {
        serde_json::to_writer(&mut out, &serde_json::json!({ "text": text }))?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Writes a corpus of `tokens` random 16-bit ids in documents of about a thousand, for [`read_samples`].
pub fn write_random(prefix: &Path, tokens: u64) -> Result<(), DataError> {
    let mut writer = IndexedWriter::create(prefix, TokenType::U16)?;
    let (random, mut ids) = (Philox::new(1), Vec::with_capacity(1024));
    for document in 0..tokens / 1024 {
        ids.clear();
        for block in 0..256 {
            ids.extend(random.block([document as u32, block, 0, 0]).map(|word| word >> 16));
        }
        writer.push(&ids)?;
        writer.end_sequence()?;
        writer.end_document()?;
    }
    writer.finish()?;
    Ok(())
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

/// Reads all tokens of a corpus as they lie: what reading samples is held against.
pub fn copy(corpus: &Corpus) -> Result<Rate, DataError> {
    let indexed = corpus.indexed();
    let (mut buffer, started) = (Vec::with_capacity(COPIED), Instant::now());
    for first in (0..indexed.tokens()).step_by(COPIED) {
        buffer.clear();
        indexed.read(first, COPIED.min((indexed.tokens() - first) as usize), &mut buffer)?;
    }
    Ok(Rate::since(started, indexed.tokens() * indexed.token_type().width() as u64, indexed.tokens()))
}

fn text_bytes(texts: &[String]) -> u64 {
    texts.iter().map(|text| text.len() as u64).sum()
}
