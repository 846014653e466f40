//! `henge data merge`, `split` and `import`: corpora from corpora and from the files of others.

use crate::failure::{Failure, print, print_json};
use henge_data::Corpus;
use henge_data::order::Split;
use henge_data::raw::{RawWidth, import_raw};
use henge_data::rearrange;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct MergeArgs {
    /// Names of the corpora, without ending, in the order of their documents
    #[arg(required = true)]
    prefixes: Vec<PathBuf>,
    /// Name of the corpus to write, without ending
    #[arg(long)]
    output: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct SplitArgs {
    /// Name of the corpus, without ending
    prefix: PathBuf,
    /// Shares of training, validation and test documents
    #[arg(long, value_name = "TRAIN,VALID,TEST", default_value = "969,30,1", value_parser = ratio)]
    ratio: Split,
    /// Name of what is written, without ending: NAME_train, NAME_valid and NAME_test
    #[arg(long, value_name = "NAME")]
    output: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct ImportArgs {
    /// A raw token file, as datatrove writes and nanotron reads it; FILE.index tells where documents end
    file: PathBuf,
    /// Bytes of an id in it: 2 or 4 (vocabularies beyond 65,536)
    #[arg(long, default_value = "2", value_parser = width)]
    token_bytes: RawWidth,
    /// The token that ends a document, where there is no FILE.index
    #[arg(long, value_name = "ID")]
    end_of_document: Option<u32>,
    /// Name of the corpus to write, without ending
    #[arg(long)]
    output: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn width(text: &str) -> Result<RawWidth, String> {
    match text {
        "2" => Ok(RawWidth::U16),
        "4" => Ok(RawWidth::U32),
        _ => Err("ids of 2 or 4 bytes are read".to_string()),
    }
}

fn ratio(text: &str) -> Result<Split, String> {
    let numbers: Option<Vec<f64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
    let shares = numbers.and_then(|numbers| <[f64; 3]>::try_from(numbers).ok());
    let shares = shares.ok_or("write three numbers, as in 969,30,1")?;
    Split::new(shares).map_err(|error| error.to_string())
}

pub fn merge(args: MergeArgs) -> Result<(), Failure> {
    let corpora = args.prefixes.iter().map(|prefix| Corpus::open(prefix)).collect::<Result<Vec<_>, _>>()?;
    make_folder(&args.output)?;
    rearrange::merge(&corpora, &args.output)?;
    report(&[args.output], args.json)
}

pub fn split(args: SplitArgs) -> Result<(), Failure> {
    let corpus = Corpus::open(&args.prefix)?;
    make_folder(&args.output)?;
    let outputs = ["_train", "_valid", "_test"].map(|part| {
        let mut name = args.output.clone().into_os_string();
        name.push(part);
        PathBuf::from(name)
    });
    let documents = rearrange::split(&corpus, &args.ratio, outputs.each_ref().map(PathBuf::as_path))?;
    let written = outputs.into_iter().zip(&documents).filter(|(_, documents)| !documents.is_empty());
    let written: Vec<PathBuf> = written.map(|(output, _)| output).collect();
    report(&written, args.json)
}

pub fn import(args: ImportArgs) -> Result<(), Failure> {
    make_folder(&args.output)?;
    import_raw(&args.file, args.token_bytes, args.end_of_document, &args.output)?;
    report(&[args.output], args.json)
}

pub fn make_folder(output: &Path) -> Result<(), Failure> {
    let Some(folder) = output.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder).map_err(|error| Failure::run(format!("{}: {error}", folder.display())))
}

/// Says what the written corpora hold.
fn report(prefixes: &[PathBuf], json: bool) -> Result<(), Failure> {
    let mut written = Vec::new();
    let mut text = String::new();
    for prefix in prefixes {
        let corpus = Corpus::open(prefix)?;
        let (indexed, name) = (corpus.indexed(), prefix.display().to_string());
        let (tokens, documents, dtype) = (indexed.tokens(), indexed.documents(), indexed.token_type().name());
        text += &format!("{name}: {tokens} tokens in {documents} documents, {dtype}\n");
        written.push(serde_json::json!({
            "prefix": name, "tokens": tokens, "sequences": indexed.sequences(), "documents": documents, "dtype": dtype,
        }));
    }
    if json { print_json(&serde_json::json!({ "corpora": written })) } else { print(&text) }
}
