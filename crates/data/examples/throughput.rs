//! Prints what this machine encodes, prepares and reads a second:
//! `cargo run --release -p henge-data --example throughput -- TOKENIZER.json CORPUS.jsonl`.

use henge_data::order::{Part, SampleOrder};
use henge_data::prepare::{Format, PrepareOptions, RECORD_EVERY, find_inputs};
use henge_data::throughput::{encode, end_to_end, library_batch, read_samples};
use henge_data::{Corpus, tokenizer::Tokenizer};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, tokenizer_json, corpus] = &arguments[..] else {
        return Err("usage: throughput TOKENIZER.json CORPUS.jsonl".into());
    };
    let tokenizer = Tokenizer::load(tokenizer_json)?;
    let lines = std::fs::read_to_string(corpus)?;
    let texts: Vec<String> = lines
        .lines()
        .map(|line| Ok(serde_json::from_str::<serde_json::Value>(line)?["text"].as_str().unwrap_or("").to_string()))
        .collect::<Result<_, serde_json::Error>>()?;
    for threads in [1, 2] {
        println!("encode, {threads} threads: {:.1} MB/s", encode(&texts, &tokenizer, threads)?.megabytes_per_second());
    }
    println!("tokenizers, batch: {:.1} MB/s", library_batch(&texts, Path::new(tokenizer_json))?.megabytes_per_second());

    let folder = tempfile::tempdir()?;
    let packed = folder.path().join("corpus.jsonl.zst");
    std::fs::write(&packed, zstd::encode_all(lines.repeat(20).as_bytes(), 3)?)?;
    let text_bytes = texts.iter().map(|t| t.len()).sum::<usize>() * 20;
    let options = PrepareOptions {
        inputs: find_inputs(&[packed.display().to_string()], Format::FromName)?,
        keys: vec!["text".into()],
        output: folder.path().join("corpus"),
        end_of_document: tokenizer.end_of_document(),
        workers: 2,
        record_every: RECORD_EVERY,
    };
    let repeated: Vec<String> = std::iter::repeat_n(&texts, 20).flatten().cloned().collect();
    println!("encode 20 times, 2 threads: {:.1} MB/s", encode(&repeated, &tokenizer, 2)?.megabytes_per_second());
    let rate = end_to_end(&options, &tokenizer)?;
    println!("JSONL.zst to .bin/.idx: {:.1} MB/s of text", text_bytes as f64 / rate.seconds / 1e6);
    let order = SampleOrder::shuffled(vec![(Corpus::open(&options.output)?.whole(Part::Train), 1.0)], 1024, 1)?;
    println!("samples of 1024: {:.0} MB/s", read_samples(&order, 100_000)?.megabytes_per_second());
    Ok(())
}
