//! From what a person names to the list of files to read.

use crate::error::DataError;
use henge_files::{Operation, WithPath};
use std::fs;
use std::path::{Path, PathBuf};

/// How an input is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// What an input holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// One document.
    Text,
    /// One document a line, in a field of a JSON object.
    JsonLines,
    /// One document a row.
    Parquet,
}

/// What the caller says about the kind of the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// By the file's name.
    FromName,
    /// The same for all.
    Given(InputKind),
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The file; `-` is standard input.
    pub path: PathBuf,
    pub kind: InputKind,
    pub(crate) packing: Packing,
}

impl Input {
    /// One file, or standard input for `-`; the packing goes by the name.
    pub fn new(path: &Path, format: Format) -> Self {
        let name = path.to_string_lossy().to_lowercase();
        let (stem, packing) = match name.rsplit_once('.') {
            Some((stem, "gz" | "gzip")) => (stem, Packing::Gzip),
            Some((stem, "zst" | "zstd")) => (stem, Packing::Zstd),
            _ => (name.as_str(), Packing::Plain),
        };
        let kind = match format {
            Format::Given(kind) => kind,
            Format::FromName => kind_of(stem).unwrap_or(InputKind::Text),
        };
        Input { path: path.to_path_buf(), kind, packing }
    }

    /// Whether this is standard input.
    pub fn is_standard_input(&self) -> bool {
        self.path == Path::new("-")
    }
}

/// The kind that a name without packing suffix shows.
fn kind_of(name: &str) -> Option<InputKind> {
    match name.rsplit_once('.')?.1 {
        "txt" | "text" | "raw" | "tokens" | "md" => Some(InputKind::Text),
        "jsonl" | "json" | "ndjson" => Some(InputKind::JsonLines),
        "parquet" => Some(InputKind::Parquet),
        _ => None,
    }
}

/// Files, folders (all files below with a known name ending, sorted by path), globs, and `-`.
///
/// # Errors
/// A name that no file matches.
pub fn find_inputs(names: &[String], format: Format) -> Result<Vec<Input>, DataError> {
    let mut inputs = Vec::new();
    for name in names {
        let before = inputs.len();
        let path = Path::new(name);
        if name == "-" || path.is_file() {
            inputs.push(Input::new(path, format));
        } else if path.is_dir() {
            add_folder(path, format, &mut inputs)?;
        } else {
            add_glob(name, format, &mut inputs)?;
        }
        if inputs.len() == before {
            return Err(DataError::NoInput { pattern: name.clone() });
        }
    }
    Ok(inputs)
}

fn add_folder(folder: &Path, format: Format, inputs: &mut Vec<Input>) -> Result<(), DataError> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_path(folder, Operation::List)? {
        paths.push(entry.with_path(folder, Operation::List)?.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            add_folder(&path, format, inputs)?;
        } else if is_known(&path) {
            inputs.push(Input::new(&path, format));
        }
    }
    Ok(())
}

/// Whether a file in a folder is taken: others (licences, checksums) are likely to be no text to train on.
fn is_known(path: &Path) -> bool {
    let name = path.to_string_lossy().to_lowercase();
    let stem = [".gz", ".gzip", ".zst", ".zstd"].iter().find_map(|suffix| name.strip_suffix(suffix));
    kind_of(stem.unwrap_or(&name)).is_some()
}

fn add_glob(pattern: &str, format: Format, inputs: &mut Vec<Input>) -> Result<(), DataError> {
    let none = |_| DataError::NoInput { pattern: pattern.to_string() };
    for path in glob::glob(pattern).map_err(none)? {
        let path = path.map_err(|error| DataError::UnreadableInput {
            path: error.path().to_path_buf(),
            fault: error.error().to_string(),
        })?;
        if path.is_file() {
            inputs.push(Input::new(&path, format));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_kind_and_packing() {
        let kind = |name: &str| {
            let input = Input::new(Path::new(name), Format::FromName);
            (input.kind, input.packing)
        };
        assert_eq!(kind("a.jsonl.zst"), (InputKind::JsonLines, Packing::Zstd));
        assert_eq!(kind("b.JSON.gz"), (InputKind::JsonLines, Packing::Gzip));
        assert_eq!(kind("c.parquet"), (InputKind::Parquet, Packing::Plain));
        assert_eq!(kind("notes"), (InputKind::Text, Packing::Plain));
        assert_eq!(Input::new(Path::new("-"), Format::Given(InputKind::JsonLines)).kind, InputKind::JsonLines);
    }

    #[test]
    fn folders_and_globs_come_sorted_and_nothing_found_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.txt", "a.jsonl.gz", "LICENSE"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        fs::create_dir(folder.path().join("c")).unwrap();
        fs::write(folder.path().join("c/d.txt"), "x").unwrap();
        let name = folder.path().to_str().unwrap().to_string();
        let found = find_inputs(std::slice::from_ref(&name), Format::FromName).unwrap();
        let names: Vec<_> = found.iter().map(|i| i.path.strip_prefix(folder.path()).unwrap()).collect();
        assert_eq!(names, [Path::new("a.jsonl.gz"), Path::new("b.txt"), Path::new("c/d.txt")]);
        assert_eq!(find_inputs(&[format!("{name}/*.txt")], Format::FromName).unwrap().len(), 1);
        assert!(find_inputs(&[format!("{name}/*.nothing")], Format::FromName).is_err());
        assert!(find_inputs(&[format!("{name}/gone.txt")], Format::FromName).is_err());
    }
}
