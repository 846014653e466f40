//! Cuts the task of consecutive sentences from WikiText: `consecutive_pairs WIKI.tokens FOLDER` writes `train.tsv`
//! with 2,000 pairs and `dev.tsv` with 500 of other articles.

use henge_eval::EvalError;
use henge_eval::downstream::{PairCut, PairTask, consecutive_pairs};
use henge_files::{Operation, WithPath};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const CUT: PairCut = PairCut { training: 2000, held_out: 500, seed: 1234 };

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [text, folder] = &arguments[..] else {
        eprintln!("usage: consecutive_pairs WIKI.tokens FOLDER");
        return ExitCode::from(2);
    };
    match cut(text, folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(if error.is_request() { 2 } else { 1 })
        }
    }
}

fn cut(text: &Path, folder: &Path) -> Result<(), EvalError> {
    let text = std::fs::read_to_string(text).with_path(text, Operation::Read)?;
    let task = PairTask::consecutive();
    for (pairs, name) in consecutive_pairs(&text, CUT)?.iter().zip(["train.tsv", "dev.tsv"]) {
        let path = folder.join(name);
        task.write(&path, pairs)?;
        println!("{}: {} pairs", path.display(), pairs.len());
    }
    Ok(())
}
