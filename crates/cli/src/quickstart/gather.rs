//! The text that a quickstart learns from.

use super::named;
use crate::failure::Failure;
use henge_files::write_atomic;
use henge_random::{Permutation, key};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Longest document; longer files are cut at ends of lines, so that no table fills the corpus.
const DOCUMENT: usize = 8 << 10;
/// Fewest documents to learn and to validate on.
const FEWEST: usize = 20;
/// The same files are taken on every run.
const SEED: u64 = 1;

/// Documents of at most `limit` bytes together, drawn from all over the inputs; without
/// inputs, from the Rust source in cargo's registry.
pub fn documents(inputs: &[PathBuf], limit: usize) -> Result<Vec<String>, Failure> {
    let (folders, wanted) = match inputs {
        [] => (vec![registry()?], Some("rs")),
        inputs => (inputs.to_vec(), None),
    };
    let mut paths = Vec::new();
    for folder in &folders {
        let found = std::fs::metadata(folder).map_err(|error| {
            Failure::request(format!("--input {}: {error}; give files or folders of text", folder.display()))
        })?;
        if found.is_dir() { walk(folder, wanted, &mut paths)? } else { paths.push(folder.clone()) }
    }
    let documents = draw(&paths, limit)?;
    if documents.len() < FEWEST {
        let names = folders.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Failure::request(format!(
            "{names}: {} documents of text are too few to learn from; give more by --input",
            documents.len()
        )));
    }
    Ok(documents)
}

/// Where cargo keeps the source of the crates that it has downloaded.
fn registry() -> Result<PathBuf, Failure> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let folder = home.map(|home| home.join("registry").join("src")).filter(|folder| folder.is_dir());
    folder.ok_or_else(|| {
        Failure::request(
            "cargo's registry folder (registry/src below $CARGO_HOME or ~/.cargo) is not on this machine; \
             give text to learn from: henge quickstart --input FOLDER",
        )
    })
}

/// Files below a folder, in the order of their paths; links are not followed.
fn walk(folder: &Path, wanted: Option<&str>, paths: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| named(folder, error))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(|error| named(folder, error))?;
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().map_err(|error| named(folder, error))?);
        if kind.is_dir() {
            walk(&path, wanted, paths)?;
        } else if kind.is_file() && wanted.is_none_or(|ending| path.extension().is_some_and(|own| own == ending)) {
            paths.push(path);
        }
    }
    Ok(())
}

/// Files in a shuffled order, the first piece of each, then the second of each, until the
/// limit; what is no UTF-8 is left out.
fn draw(paths: &[PathBuf], limit: usize) -> Result<Vec<String>, Failure> {
    let order = Permutation::new(key(SEED, "quickstart files"), paths.len() as u64);
    let (mut files, mut firsts) = (Vec::new(), 0);
    for i in 0..order.len() {
        let path = &paths[order.apply(i) as usize];
        let bytes = std::fs::read(path).map_err(|error| named(path, error))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let pieces = cut(&text);
        firsts += pieces.first().map_or(0, String::len);
        files.push(pieces);
        if firsts >= limit {
            break;
        }
    }
    Ok(take(&files, limit))
}

/// Pieces of files in turn, `limit` bytes at most.
fn take(files: &[Vec<String>], limit: usize) -> Vec<String> {
    let rounds = files.iter().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..rounds).flat_map(|round| files.iter().filter_map(move |pieces| pieces.get(round)));
    let mut taken = 0;
    let fits = |piece: &&String| {
        taken += piece.len();
        taken <= limit
    };
    in_turn.take_while(fits).cloned().collect()
}

/// Pieces of whole lines of about [`DOCUMENT`] bytes.
fn cut(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for line in text.split_inclusive('\n') {
        match pieces.last_mut() {
            Some(last) if last.len() + line.len() <= DOCUMENT => last.push_str(line),
            _ => pieces.push(line.to_string()),
        }
    }
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

/// Writes documents as JSON lines and returns the bytes of their text.
pub fn write(path: &Path, documents: &[String]) -> Result<usize, Failure> {
    write_atomic(path, |file| {
        documents.iter().try_for_each(|text| {
            serde_json::to_writer(&mut *file, &serde_json::json!({ "text": text }))?;
            file.write_all(b"\n")
        })
    })
    .map_err(Failure::run)?;
    Ok(documents.iter().map(String::len).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_at_ends_of_lines_and_nothing_is_lost() {
        let text = "a line of text\n".repeat(5000);
        let pieces = cut(&text);
        assert_eq!(pieces.concat(), text);
        assert_eq!(pieces.len(), 10);
        assert!(pieces.iter().all(|piece| piece.len() <= DOCUMENT && piece.ends_with('\n')));
    }

    #[test]
    fn files_are_drawn_from_all_over_up_to_the_limit_and_no_text_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..100 {
            std::fs::write(folder.path().join(format!("{number:03}.txt")), format!("{number:03} {}", "x".repeat(96)))
                .unwrap();
        }
        std::fs::write(folder.path().join("image.png"), [0xff, 0xfe, 0x00]).unwrap();
        let inputs = [folder.path().to_path_buf()];
        let all = documents(&inputs, 1 << 20).unwrap();
        assert_eq!(all.len(), 100);
        let half = documents(&inputs, 5000).unwrap();
        assert_eq!(half, all[..50]);
        assert!(half.iter().any(|text| text.as_str() > "090") && half.iter().any(|text| text.as_str() < "010"));
    }

    #[test]
    fn a_long_file_does_not_keep_the_others_out() {
        let files = [vec!["aa".to_string(), "bb".into(), "cc".into()], vec!["dd".to_string()]];
        assert_eq!(take(&files, 100), ["aa", "dd", "bb", "cc"]);
        assert_eq!(take(&files, 5), ["aa", "dd"]);
    }

    #[test]
    fn too_little_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("one.txt"), "one").unwrap();
        assert!(documents(&[folder.path().to_path_buf()], 1 << 20).is_err());
        assert!(documents(&[folder.path().join("absent")], 1 << 20).is_err());
    }
}
