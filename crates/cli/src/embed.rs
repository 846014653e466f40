//! `henge embed`: vectors of texts from an encoder, and how near they are to each other.

use crate::asking::{Asked, ModelArgs};
use crate::failure::{Failure, print, print_json};
use henge_eval::downstream::{Packer, Truncation, cosine};
use henge_eval::{Encoding, Unseen, embed};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Texts of which every pair is compared; their number grows with the square.
const MOST_COMPARED: usize = 256;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// A text; may be given several times
    #[arg(long, value_name = "TEXT")]
    text: Vec<String>,
    /// A file of texts, one a line
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Texts that run together
    #[arg(long, default_value_t = 16, value_name = "N")]
    batch: usize,
    /// Print one JSON document, the vectors in it
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let asked = args.model.open_encoder()?;
    let tokenizer = args.model.tokenizer(&asked)?;
    let texts = args.texts()?;
    let mut packer = Packer::new(&tokenizer, asked.loaded.model().seq_len, Truncation::Tail)?;
    let sequences = texts.iter().map(|Text { place, text }| packer.single(place, text));
    let sequences = sequences.collect::<Result<Vec<_>, _>>()?;
    let tokens: Vec<usize> = sequences.iter().map(|sequence| sequence.tokens.len()).collect();
    let (loaded, layout, batch) = (Arc::clone(&asked.loaded), asked.layout, args.batch);
    let job = Encoding { loaded, layout, sequences, batch, progress: Arc::new(Unseen) };
    let vectors = embed(job, asked.engine(), asked.device())?;
    if args.json {
        return print_json(&document(&asked, &texts, &tokens, &vectors));
    }
    let lines = cosines(&vectors)
        .into_iter()
        .map(|(a, b, cosine)| format!("{cosine:.4}  {} | {}\n", texts[a].text, texts[b].text));
    let dimensions = vectors.first().map_or(0, Vec::len);
    let words = format!("{} vectors of {dimensions} numbers; --json shows them\n", vectors.len());
    print(&lines.chain([words]).collect::<String>())
}

/// A text as a person gave it.
struct Text {
    /// The option, or file and line.
    place: String,
    text: String,
}

impl Args {
    fn texts(&self) -> Result<Vec<Text>, Failure> {
        let given = self.text.iter().map(|text| Text { place: "--text".to_string(), text: text.clone() });
        let mut texts: Vec<Text> = given.collect();
        if let Some(file) = &self.file {
            let wrong = |error| Failure::request(format!("{}: {error}", file.display()));
            let content = std::fs::read_to_string(file).map_err(wrong)?;
            let lines = content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            let text = |(at, line): (usize, &str)| Text {
                place: format!("{}:{}", file.display(), at + 1),
                text: line.to_string(),
            };
            texts.extend(lines.map(text));
        }
        if texts.is_empty() {
            return Err(Failure::request("there is no text; give --text, or --file with one a line"));
        }
        Ok(texts)
    }
}

/// Of each pair; none of texts too many to be compared by pairs.
fn cosines(vectors: &[Vec<f32>]) -> Vec<(usize, usize, f64)> {
    let compared = if vectors.len() > MOST_COMPARED { 0 } else { vectors.len() };
    let pairs = (0..compared).flat_map(|a| (a + 1..compared).map(move |b| (a, b)));
    pairs.map(|(a, b)| (a, b, cosine(&vectors[a], &vectors[b]))).collect()
}

fn document(asked: &Asked, texts: &[Text], tokens: &[usize], vectors: &[Vec<f32>]) -> Value {
    let one = |((text, tokens), vector): ((&Text, &usize), &Vec<f32>)| json!({ "text": text.text, "tokens": tokens, "vector": vector });
    let pair = |(a, b, cosine): (usize, usize, f64)| json!({ "texts": [a, b], "cosine": cosine });
    json!({
        "checkpoint": asked.loaded.path(),
        "layout": asked.layout_text(),
        "precision": asked.precision().to_string(),
        "protocol": "mean of the last hidden states over the tokens of a text, marks included, padding not",
        "texts": texts.iter().zip(tokens).zip(vectors).map(one).collect::<Vec<_>>(),
        "cosines": cosines(vectors).into_iter().map(pair).collect::<Vec<_>>(),
    })
}
