//! `henge checkpoint`: look at checkpoints, check, compare, cut anew, and bring them in and out.

use crate::failure::{Failure, print, print_json};
use henge_checkpoint::{
    Checkpoint, CheckpointError, Cut, Export, Summary, TensorDiff, diff, export, export_megatron, import, list, newest,
    open_source, reshape, verify,
};
use henge_spec::DType;
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the checkpoints of a run's folder, or the tensors of one checkpoint
    Ls {
        /// Run folder, folder of checkpoints, or checkpoint
        path: PathBuf,
        /// List the tensors too
        #[arg(long)]
        tensors: bool,
    },
    /// Read every byte of a checkpoint against its checksums
    Verify {
        /// Checkpoint, or a run's folder for its newest
        path: PathBuf,
    },
    /// Compare two models tensor by tensor
    Diff {
        /// Checkpoint, run folder, Hugging Face folder, GGUF file or Megatron checkpoint
        left: PathBuf,
        /// The other
        right: PathBuf,
        /// Show the tensors that are the same too
        #[arg(long)]
        all: bool,
    },
    /// Write a checkpoint again, cut for other ranks
    Reshape {
        /// Checkpoint, or a run's folder for its newest
        path: PathBuf,
        /// Folder to write
        out: PathBuf,
        #[command(flatten)]
        cut: CutArgs,
    },
    /// Make a checkpoint of weights from elsewhere
    Import {
        /// Hugging Face folder, GGUF file or Megatron checkpoint
        from: PathBuf,
        /// Folder to write
        out: PathBuf,
        #[command(flatten)]
        cut: CutArgs,
    },
    /// Write the weights as a Hugging Face folder or a Megatron checkpoint
    Export {
        /// Checkpoint, or a run's folder for its newest
        path: PathBuf,
        /// Folder to write
        out: PathBuf,
        /// `megatron` is its distributed form (torch_dist)
        #[arg(long, value_enum, default_value_t = Format::HuggingFace)]
        format: Format,
        /// Element type: f32, f16 or bf16
        #[arg(long, default_value = "f32")]
        dtype: DType,
        /// Largest file of weights in megabytes
        #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
        max_file_mb: u64,
        /// Tokenizer file or folder to copy, in place of the run's own
        #[arg(long)]
        tokenizer: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    HuggingFace,
    Megatron,
}

#[derive(clap::Args)]
struct CutArgs {
    /// Number of files of nearly equal size
    #[arg(long, default_value_t = 1, conflicts_with_all = ["tensor", "pipeline"])]
    shards: usize,
    /// Cut as this many tensor parallel ranks hold the model
    #[arg(long)]
    tensor: Option<usize>,
    /// Cut as this many pipeline ranks hold the model
    #[arg(long)]
    pipeline: Option<usize>,
}

impl CutArgs {
    fn cut(&self) -> Cut {
        match (self.tensor, self.pipeline) {
            (None, None) => Cut::Shards(self.shards),
            (tensor, pipeline) => Cut::Layout { tensor: tensor.unwrap_or(1), pipeline: pipeline.unwrap_or(1) },
        }
    }
}

/// Runs one of the tools. A damaged checkpoint is an unreadable input: status 2.
pub fn run(args: Args) -> Result<(), Failure> {
    let json = args.json;
    match args.command {
        Command::Ls { path, tensors } => ls(&path, tensors, json),
        Command::Verify { path } => check(&path, json),
        Command::Diff { left, right, all } => compare(&left, &right, all, json),
        Command::Reshape { path, out, cut } => {
            let folder = newest(&path).map_err(failure)?;
            let manifest = reshape(&Checkpoint::open(&folder).map_err(failure)?, cut.cut(), &out).map_err(failure)?;
            say(json, &json!({ "out": out, "shards": manifest.files.len() }), || {
                format!(
                    "wrote {} in {} shards; `henge checkpoint verify` reads it again",
                    out.display(),
                    manifest.files.len()
                )
            })
        }
        Command::Import { from, out, cut } => {
            let source = open_source(&from).map_err(failure)?;
            let manifest = import(source.as_ref(), cut.cut(), &out).map_err(failure)?;
            let tokenizer = match source.tokenizer() {
                Ok(Some(_)) => "its tokenizer lies beside them".to_string(),
                Ok(None) => "no tokenizer is known".to_string(),
                Err(error) => format!("its tokenizer was left out: {error}"),
            };
            let document = json!({ "out": out, "tensors": manifest.tensors.len(), "model": manifest.model, "tokenizer": tokenizer });
            say(json, &document, || {
                format!("wrote {}: {} tensors, no moments; {tokenizer}", out.display(), manifest.tensors.len())
            })
        }
        Command::Export { path, out, format, dtype, max_file_mb, tokenizer } => {
            let options = Export { dtype, shard_bytes: max_file_mb * 1_000_000, tokenizer };
            let source = open_source(&path).map_err(failure)?;
            let write = match format {
                Format::HuggingFace => export,
                Format::Megatron => export_megatron,
            };
            let done = write(source.as_ref(), &options, &out).map_err(failure)?;
            say(json, &json!({ "out": out, "exported": done }), || {
                let tokenizer = if done.tokenizer.is_empty() { "none known, give --tokenizer" } else { "copied" };
                format!("wrote {}: {} tensors, tokenizer {tokenizer}", out.display(), done.tensors)
            })
        }
    }
}

fn failure(error: CheckpointError) -> Failure {
    if error.is_machine() { Failure::run(error) } else { Failure::request(error) }
}

fn say(json: bool, document: &serde_json::Value, text: impl Fn() -> String) -> Result<(), Failure> {
    if json { print_json(document) } else { print(&(text() + "\n")) }
}

fn ls(path: &std::path::Path, tensors: bool, json: bool) -> Result<(), Failure> {
    let found = list(path).map_err(failure)?;
    let one_with_tensors = match &found[..] {
        [Ok(summary)] if tensors => Some(Checkpoint::open(&summary.path).map_err(failure)?),
        _ => None,
    };
    if json {
        let entry = |entry: &Result<Summary, CheckpointError>| match entry {
            Ok(summary) => json!(summary),
            Err(error) => json!({ "error": error.to_string() }),
        };
        let list: Vec<_> = found.iter().map(entry).collect();
        let tensors = one_with_tensors.as_ref().map(|checkpoint| &checkpoint.manifest().tensors);
        return print_json(&json!({ "checkpoints": list, "tensors": tensors }));
    }
    let mut text = format!(
        "{:>10} {:>12} {:>14} {:>8} {:>12} {:>7} {:>6}  folder\n",
        "step", "samples", "tokens", "loss", "parameters", "moments", "shards"
    );
    for entry in &found {
        text += &match entry {
            Ok(s) => format!(
                "{:>10} {:>12} {:>14} {:>8} {:>12} {:>7} {:>6}  {}\n",
                s.step,
                s.samples,
                s.tokens,
                s.loss.map_or_else(|| "-".to_string(), |loss| format!("{loss:.4}")),
                s.parameters,
                if s.moments { "yes" } else { "no" },
                s.shards,
                s.path.display()
            ),
            Err(error) => format!("{error}\n"),
        };
    }
    for tensor in one_with_tensors.iter().flat_map(|checkpoint| &checkpoint.manifest().tensors) {
        let shape = format!("{:?}", tensor.shape);
        let _ = writeln!(text, "{:<13} {:<36} {shape:<16} {} chunks", tensor.kind, tensor.name, tensor.chunks.len());
    }
    print(&text)
}

fn check(path: &std::path::Path, json: bool) -> Result<(), Failure> {
    match verify(&newest(path).map_err(failure)?) {
        Ok(whole) => say(json, &json!({ "whole": true, "read": whole }), || {
            format!("whole: {} tensors in {} files, {} bytes read", whole.tensors, whole.files, whole.bytes)
        }),
        Err(problems) => {
            let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
            if json {
                print_json(&json!({ "whole": false, "problems": words }))?;
            }
            Err(Failure::request(words.join("\n")))
        }
    }
}

fn compare(left: &std::path::Path, right: &std::path::Path, all: bool, json: bool) -> Result<(), Failure> {
    let (left, right) = (open_source(left).map_err(failure)?, open_source(right).map_err(failure)?);
    let found = diff(left.as_ref(), right.as_ref()).map_err(failure)?;
    let same = found.iter().filter(|tensor| tensor.is_same()).count();
    if json {
        return print_json(&json!({ "tensors": found, "same": same, "different": found.len() - same }));
    }
    let mut text = String::new();
    for tensor in found.iter().filter(|tensor| all || !tensor.is_same()) {
        text += &line(tensor);
    }
    let _ = writeln!(text, "{same} of {} tensors are the same to the bit", found.len());
    print(&text)
}

fn line(tensor: &TensorDiff) -> String {
    let name = format!("{} {}", tensor.kind, tensor.name);
    match (&tensor.numbers, &tensor.left, &tensor.right) {
        (Some(n), ..) => format!(
            "{name:<46} norms {:.6e} {:.6e}, difference {:.3e}, largest {:.3e}, {} elements\n",
            n.left_norm, n.right_norm, n.difference_norm, n.largest, n.differing
        ),
        (None, Some(left), Some(right)) => format!("{name:<46} shapes {left:?} and {right:?}\n"),
        (None, Some(_), None) => format!("{name:<46} only in the first\n"),
        (None, ..) => format!("{name:<46} only in the second\n"),
    }
}
