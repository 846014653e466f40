//! Cutting out of a text what evaluation sets hold.
//!
//! As GPT-3's authors did it (arXiv:2005.14165, appendix C) and the first Megatron paper's scripts do: a run
//! of thirteen words that an evaluation set holds is cut out with 200 characters on each side and on to the
//! next end of a sentence; pieces under 200 characters go, and so does a document cut more than ten times.
//! Words are runs of letters, digits and underscores in lower case. An evaluation text of eight to twelve
//! words counts as one run. What the scripts have and this has not: runs that are frequent in the corpus
//! itself count here, too.

use crate::error::DataError;
use crate::prepare::{Content, Input, InputKind, Position, Reader, each_line};
use crate::tokenizer::CutRule;
use hashbrown::HashSet;
use henge_random::mix;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use xxhash_rust::xxh3::xxh3_64;

/// Characters cut on each side of a match, and those of the shortest piece that stays.
const MARGIN: usize = 200;
/// Cuts beyond which a document goes as a whole.
const MOST_CUTS: usize = 10;
/// Words of the shortest evaluation text that counts as a run of its own.
const SHORTEST_RUN: usize = 8;

/// The runs of words that may not occur.
#[derive(Clone, Debug)]
pub struct Contamination {
    words: usize,
    /// Hashes of runs by their number of words.
    runs: BTreeMap<usize, HashSet<u64>>,
}

/// What is left of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut<'t> {
    /// The whole text where nothing matched; empty when the document is to go.
    pub pieces: Vec<&'t str>,
    pub matches: usize,
}

impl Contamination {
    /// No run yet; runs will have `words` words (customarily 13).
    pub fn new(words: usize) -> Self {
        assert!(words >= SHORTEST_RUN, "runs of {words} words");
        Contamination { words, runs: BTreeMap::new() }
    }

    /// Adds the runs of files: of JSON lines every string, of plain text the whole.
    ///
    /// # Errors
    /// Unreadable files, broken lines; Parquet files.
    pub fn add_files(&mut self, inputs: &[Input]) -> Result<(), DataError> {
        if let Some(parquet) = inputs.iter().find(|input| input.kind == InputKind::Parquet) {
            let fault = "evaluation sets are read as JSON lines or plain text; convert it".into();
            return Err(DataError::UnreadableInput { path: parquet.path.clone(), fault });
        }
        let bytes_read = Arc::new(AtomicU64::new(0));
        let mut reader = Reader { inputs, keys: &[], rule: CutRule::BehindAnything, encoder: None, bytes_read };
        let (mut failed, mut hashes) = (None, Vec::new());
        reader.run(Position::start_of(0), &mut |block| {
            let added = match &block.content {
                Content::Piece { bytes, ends_document, .. } => {
                    self.add_piece(&String::from_utf8_lossy(bytes), *ends_document, &mut hashes);
                    Ok(true)
                }
                _ => each_line(&block, &mut |line, json| {
                    let value: serde_json::Value = serde_json::from_str(json).map_err(|error| {
                        let fault = format!("broken JSON: {error}; correct or remove the line");
                        DataError::BadLine { path: block.path.to_path_buf(), line, fault }
                    })?;
                    self.add_strings(&value);
                    Ok(true)
                }),
            };
            added.unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Adds every string of a JSON value.
    fn add_strings(&mut self, value: &serde_json::Value) {
        match value {
            serde_json::Value::String(text) => self.add_text(text),
            serde_json::Value::Array(values) => values.iter().for_each(|value| self.add_strings(value)),
            serde_json::Value::Object(fields) => fields.values().for_each(|value| self.add_strings(value)),
            _ => {}
        }
    }

    /// Adds the runs of one text.
    pub fn add_text(&mut self, text: &str) {
        self.add_piece(text, true, &mut Vec::new());
    }

    /// Adds the runs of a part of a text; `hashes` holds the words before it that a run may begin with.
    fn add_piece(&mut self, text: &str, ends_text: bool, hashes: &mut Vec<u64>) {
        hashes.extend(words(text).iter().map(|word| word.hash));
        let run = if hashes.len() < self.words { hashes.len() } else { self.words };
        if run == self.words || (ends_text && run >= SHORTEST_RUN) {
            self.runs.entry(run).or_default().extend(hashes.windows(run).map(run_hash));
        }
        let kept = if ends_text { 0 } else { hashes.len().min(self.words - 1) };
        hashes.drain(..hashes.len() - kept);
    }

    /// Distinct runs.
    pub fn len(&self) -> usize {
        self.runs.values().map(HashSet::len).sum()
    }

    /// Whether no run is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts every match out of a text.
    pub fn cut<'t>(&self, text: &'t str) -> Cut<'t> {
        let words = words(text);
        let (mut from, mut matches, mut pieces) = (0, 0, Vec::new());
        while let Some(found) = self.first_match(&words, from) {
            matches += 1;
            if matches > MOST_CUTS {
                return Cut { pieces: Vec::new(), matches };
            }
            pieces.extend(long_enough(&text[from..sentence_before(text, from, found.start)]));
            from = sentence_behind(text, found.end);
        }
        let rest = if matches == 0 { Some(text) } else { long_enough(&text[from..]) };
        pieces.extend(rest);
        Cut { pieces, matches }
    }

    /// The bytes of the first run, the longest of those, whose words all stand behind `from`.
    fn first_match(&self, words: &[Word], from: usize) -> Option<Range<usize>> {
        let first = words.partition_point(|word| word.bytes.start < from);
        let hashes: Vec<u64> = words[first..].iter().map(|word| word.hash).collect();
        let is_run = |at: usize, run: usize, known: &HashSet<u64>| {
            hashes.get(at..at + run).is_some_and(|window| known.contains(&run_hash(window)))
        };
        (0..hashes.len()).find_map(|at| {
            let run = self.runs.iter().rev().find(|&(&run, known)| is_run(at, run, known))?.0;
            Some(words[first + at].bytes.start..words[first + at + run - 1].bytes.end)
        })
    }
}

/// A word of a text.
struct Word {
    hash: u64,
    bytes: Range<usize>,
}

fn words(text: &str) -> Vec<Word> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(start) = text[at..].find(is_part).map(|start| at + start) {
        at = text[start..].find(|c| !is_part(c)).map_or(text.len(), |end| start + end);
        found.push(Word { hash: xxh3_64(text[start..at].to_lowercase().as_bytes()), bytes: start..at });
    }
    found
}

fn run_hash(words: &[u64]) -> u64 {
    words.iter().fold(words.len() as u64, |hash, &word| mix(hash, word))
}

/// Behind the sentence that ends at least [`MARGIN`] characters before `at`; `from` where there is none.
fn sentence_before(text: &str, from: usize, at: usize) -> usize {
    let before = &text[from..at];
    let margin = before.char_indices().rev().nth(MARGIN - 1).map_or(0, |(place, _)| place);
    before[..margin].rfind(['.', '!', '?']).map_or(from, |end| from + end + 1)
}

/// Behind the sentence that ends at least [`MARGIN`] characters after `at`.
fn sentence_behind(text: &str, at: usize) -> usize {
    let margin = text[at..].char_indices().nth(MARGIN).map_or(text.len(), |(place, _)| at + place);
    text[margin..].find(['.', '!', '?']).map_or(text.len(), |end| margin + end + 1)
}

fn long_enough(piece: &str) -> Option<&str> {
    let piece = piece.trim();
    piece.chars().nth(MARGIN - 1).map(|_| piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "It was a bright cold day in April and the clocks were striking thirteen";

    fn contamination() -> Contamination {
        let mut contamination = Contamination::new(13);
        contamination.add_text(SECRET);
        contamination
    }

    /// Sentences of known numbers of characters.
    fn filler(sentences: usize) -> String {
        (0..sentences).map(|i| format!("Sentence number {i:03} says nothing of note. ")).collect()
    }

    #[test]
    fn a_match_goes_with_its_surroundings_up_to_the_ends_of_sentences() {
        let (before, after) = (filler(20), filler(20));
        let text =
            format!("{before}He wrote: it WAS a bright, cold day in April; and the clocks were striking... {after}");
        let contamination = contamination();
        let cut = contamination.cut(&text);
        assert_eq!(cut.matches, 1);
        // 41 characters a sentence: 200 and the words before them reach into the fifth and sixth from the match.
        assert_eq!(cut.pieces.len(), 2);
        assert!(before.starts_with(cut.pieces[0]) && cut.pieces[0].ends_with("of note."), "{cut:?}");
        assert!((180..=260).contains(&(before.len() - cut.pieces[0].len())), "{}", cut.pieces[0].len());
        assert!(after.trim_end().ends_with(cut.pieces[1]) && cut.pieces[1].starts_with("Sentence number"));
        assert!(!cut.pieces.concat().to_lowercase().contains("april"));
    }

    #[test]
    fn twelve_words_of_thirteen_are_no_match_and_short_pieces_go() {
        let contamination = contamination();
        let near = format!("{} It was a bright cold day in April and the clocks were stopping.", filler(5));
        assert_eq!(contamination.cut(&near), Cut { pieces: vec![&near], matches: 0 });
        let short = format!("{} {SECRET}. {}", filler(3), filler(3));
        assert_eq!(contamination.cut(&short), Cut { pieces: vec![], matches: 1 });
        let often = format!("{SECRET}. {}", filler(20)).repeat(11);
        assert_eq!(contamination.cut(&often), Cut { pieces: vec![], matches: 11 });
        let less = format!("{SECRET}. {}", filler(20)).repeat(10);
        assert_eq!(contamination.cut(&less).pieces.len(), 10);
    }

    #[test]
    fn short_evaluation_texts_count_whole_from_eight_words_on() {
        let mut contamination = Contamination::new(13);
        contamination.add_text("one two three four five six seven");
        assert!(contamination.is_empty());
        contamination.add_text("One two three four five six seven eight?");
        assert_eq!(contamination.len(), 1);
        assert_eq!(contamination.cut("so one, two, three, four, five, six, seven, eight").matches, 1);
        assert_eq!(contamination.cut("so one, two, three, four, five, six, seven, nine").matches, 0);
    }

    #[test]
    fn every_string_of_a_json_line_and_all_of_a_text_counts() {
        let folder = tempfile::tempdir().unwrap();
        let words = |first: usize, n: usize| (first..first + n).map(|i| format!("w{i} ")).collect::<String>();
        let json = serde_json::json!({"id": 7, "qas": [{"question": words(0, 13)}], "article": words(100, 14)});
        std::fs::write(folder.path().join("set.jsonl"), format!("{json}\n")).unwrap();
        // Longer than a block, so that runs lie across two pieces of it.
        std::fs::write(folder.path().join("set.txt"), words(1_000_000, 200_000)).unwrap();
        let inputs = ["set.jsonl", "set.txt"]
            .map(|name| Input::new(&folder.path().join(name), crate::prepare::Format::FromName));
        let mut contamination = Contamination::new(13);
        contamination.add_files(&inputs).unwrap();
        assert_eq!(contamination.len(), 1 + 2 + 200_000 - 12);
    }
}
