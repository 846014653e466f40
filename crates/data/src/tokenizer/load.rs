//! Finding out what kind of tokenizer a name or file is.

use super::added::AddedTokens;
use super::byte_level::ByteLevel;
use super::sentencepiece::SentencePiece;
use super::{Kind, Tokenizer, wordpiece};
use crate::error::DataError;
use henge_files::{Checksum, FilesError, Operation};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Names under which vocabularies keep the token that ends a document, by custom.
const END_NAMES: [&str; 7] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<|im_end|>", "[SEP]"];

pub(super) fn load(name: &str) -> Result<Tokenizer, DataError> {
    let fault = |fault: String| DataError::Tokenizer { name: name.to_string(), fault };
    match name {
        "gpt2" | "r50k_base" => return gpt2(name).map_err(fault),
        "p50k_base" => return tiktoken(name, tiktoken_rs::p50k_base()).map_err(fault),
        "cl100k_base" => return tiktoken(name, tiktoken_rs::cl100k_base()).map_err(fault),
        "o200k_base" => return tiktoken(name, tiktoken_rs::o200k_base()).map_err(fault),
        _ => {}
    }
    let path = Path::new(name);
    if path.is_dir() {
        return load_folder(name, path).map_err(fault);
    }
    if !path.exists() {
        return Err(fault(
            "there is no such file, folder or vocabulary; give gpt2, p50k_base, cl100k_base, o200k_base, \
             a tokenizer.json, a SentencePiece .model, a vocab.txt of BERT's or a folder that holds one"
                .into(),
        ));
    }
    let loaded = match path.extension().and_then(|ending| ending.to_str()) {
        Some("model") => sentencepiece_file(name, path),
        Some("txt") => wordpiece_file(name, path),
        _ => hugging_face(name, path),
    };
    loaded.map_err(fault)
}

fn load_folder(name: &str, folder: &Path) -> Result<Tokenizer, String> {
    let json = folder.join("tokenizer.json");
    if json.is_file() {
        return hugging_face(name, &json);
    }
    let models = ["tokenizer.model", "spiece.model", "sentencepiece.bpe.model"].map(|file| folder.join(file));
    if let Some(model) = models.iter().find(|model| model.is_file()) {
        return sentencepiece_file(name, model);
    }
    let pieces = folder.join("vocab.txt");
    if pieces.is_file() {
        return wordpiece_file(name, &pieces);
    }
    let vocabulary = only_file(folder, "vocab.json")?;
    let merges = only_file(folder, "merges.txt")?;
    let tokens: HashMap<String, u32> =
        serde_json::from_str(&read(&vocabulary)?).map_err(|e| format!("{}: {e}", vocabulary.display()))?;
    let text = read(&merges)?;
    let pairs: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| !line.starts_with("#version") && !line.trim().is_empty())
        .map(|line| line.split_once(' ').ok_or_else(|| format!("{}: no pair in {line:?}", merges.display())))
        .collect::<Result<_, _>>()?;
    let model = byte_level(&tokens, &pairs)?;
    Ok(finish(name, model.size(), model.fingerprint(), Kind::ByteLevel(Box::new(model))))
}

fn sentencepiece_file(name: &str, path: &Path) -> Result<Tokenizer, String> {
    let model = fs::read(path).map_err(|e| FilesError::new(path, Operation::Read, e).to_string())?;
    sentencepiece(name, &model).map_err(|fault| format!("{}: {fault}", path.display()))
}

fn wordpiece_file(name: &str, path: &Path) -> Result<Tokenizer, String> {
    let json = wordpiece::as_tokenizer_json(&read(path)?);
    json.and_then(|json| parse(name, &json)).map_err(|fault| format!("{}: {fault}", path.display()))
}

/// From the bytes of a SentencePiece model.
pub(super) fn sentencepiece(name: &str, model: &[u8]) -> Result<Tokenizer, String> {
    let mut checksum = Checksum::new();
    checksum.update(model);
    let model = Box::new(SentencePiece::parse(model)?);
    Ok(finish(name, model.size(), checksum.hex(), Kind::SentencePiece(model)))
}

/// The one file of `folder` whose name ends in `ending`.
fn only_file(folder: &Path, ending: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|e| FilesError::new(folder, Operation::List, e).to_string())?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().ends_with(ending)))
        .collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(format!("the folder has neither tokenizer.json nor a file that ends in {ending}")),
        several => Err(format!("the folder has {several} files that end in {ending}; keep one")),
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| FilesError::new(path, Operation::Read, e).to_string())
}

fn gpt2(name: &str) -> Result<Tokenizer, String> {
    let vocabulary = tiktoken_rs::r50k_base().map_err(|e| e.to_string())?;
    let tokens = (0..50_257)
        .map(|id| vocabulary.decode_bytes(&[id]).map(Vec::into_boxed_slice).map_err(|e| e.to_string()))
        .collect::<Result<Vec<_>, _>>()?;
    let model = ByteLevel::from_ranks(tokens)?;
    Ok(finish(name, model.size(), model.fingerprint(), Kind::ByteLevel(Box::new(model))))
}

fn tiktoken<E: std::fmt::Display>(name: &str, loaded: Result<tiktoken_rs::CoreBPE, E>) -> Result<Tokenizer, String> {
    let model = loaded.map_err(|e| e.to_string())?;
    let specials = model.special_tokens();
    let ids = specials.iter().filter_map(|token| model.encode_with_special_tokens(token).last().copied());
    let size = ids.max().map_or(0, |id| id as usize + 1);
    let mut checksum = Checksum::new();
    checksum.update(name.as_bytes());
    Ok(finish(name, size, checksum.hex(), Kind::Tiktoken(Box::new(model))))
}

fn hugging_face(name: &str, path: &Path) -> Result<Tokenizer, String> {
    parse(name, &read(path)?).map_err(|fault| format!("{}: {fault}", path.display()))
}

/// From the text of a `tokenizer.json`.
pub(super) fn parse(name: &str, text: &str) -> Result<Tokenizer, String> {
    // Read first, because the library panics on some text that is no JSON at all.
    let value: Value = serde_json::from_str(text).map_err(|e| format!("not a Hugging Face tokenizer: {e}"))?;
    let mut library: tokenizers::Tokenizer = text.parse().map_err(|e| format!("not a Hugging Face tokenizer: {e}"))?;
    // Published sentence encoders cut and pad every text to a fixed length; here the whole text counts.
    library.with_truncation(None).map_err(|e| e.to_string())?.with_padding(None);
    let library = Box::new(library);
    let ids = library.get_vocab(true).into_values();
    let size = ids.max().map_or(0, |id| id as usize + 1);
    if !is_plain_byte_level(&value) {
        let mut checksum = Checksum::new();
        checksum.update(value.to_string().as_bytes());
        return Ok(finish(name, size, checksum.hex(), Kind::Library(library)));
    }
    let contents = added_contents(&value);
    let model = Box::new(byte_level_of_json(&value, &library)?);
    let fingerprint = model.fingerprint();
    let kind = Kind::ByteLevelWithAdded { model, added: AddedTokens::new(&contents), library };
    Ok(finish(name, size, fingerprint, kind))
}

/// Whether a `tokenizer.json` does what [`ByteLevel`] does, and nothing else, to text without added tokens.
fn is_plain_byte_level(json: &Value) -> bool {
    let pre = &json["pre_tokenizer"];
    let model = &json["model"];
    let absent = |key: &str| matches!(&model[key], Value::Null) || model[key] == "" || model[key] == false;
    json["normalizer"].is_null()
        && pre["type"] == "ByteLevel"
        && pre["add_prefix_space"] == false
        && pre["use_regex"] != false
        && (model["type"] == "BPE" || model["type"].is_null())
        && ["dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"]
            .iter()
            .all(|key| absent(key))
        && json["truncation"].is_null()
        && json["padding"].is_null()
        && has_all_bytes(&model["vocab"])
}

fn has_all_bytes(vocabulary: &Value) -> bool {
    (0..=255u8).all(|byte| vocabulary.get(byte_to_char(byte).to_string()).is_some())
}

fn added_contents(json: &Value) -> Vec<String> {
    let tokens = json["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    tokens.iter().filter_map(|t| t["content"].as_str()).map(String::from).collect()
}

fn byte_level_of_json(json: &Value, library: &tokenizers::Tokenizer) -> Result<ByteLevel, String> {
    let merges = json["model"]["merges"].as_array().ok_or("the model has no merges")?;
    let pairs: Vec<(&str, &str)> = merges
        .iter()
        .map(|merge| match merge {
            Value::String(pair) => pair.split_once(' '),
            Value::Array(pair) => Some((pair.first()?.as_str()?, pair.get(1)?.as_str()?)),
            _ => None,
        })
        .map(|pair| pair.ok_or("a merge is no pair"))
        .collect::<Result<_, _>>()?;
    byte_level(&library.get_vocab(true), &pairs)
}

/// A byte-level model from tokens and merges in GPT-2's printable spelling of bytes.
fn byte_level(tokens: &(impl Vocabulary + ?Sized), merges: &[(&str, &str)]) -> Result<ByteLevel, String> {
    let mut bytes: Vec<Box<[u8]>> = Vec::new();
    let spelling = char_to_byte();
    for (token, id) in tokens.entries() {
        let id = id as usize;
        if id > 1 << 24 {
            return Err(format!("id {id} of {token:?} is beyond any vocabulary"));
        }
        if bytes.len() <= id {
            bytes.resize(id + 1, Box::from([]));
        }
        let spelt: Option<Vec<u8>> = token.chars().map(|c| spelling.get(&c).copied()).collect();
        bytes[id] = spelt.unwrap_or_else(|| token.as_bytes().to_vec()).into_boxed_slice();
    }
    let id = |token: &str| tokens.id(token).ok_or_else(|| format!("merge part {token:?} is not in the vocabulary"));
    let triples = merges
        .iter()
        .map(|(left, right)| Ok((id(left)?, id(right)?, id(&format!("{left}{right}"))?)))
        .collect::<Result<Vec<_>, String>>()?;
    ByteLevel::new(bytes, &triples)
}

/// A map from token to id, whichever hasher it has.
trait Vocabulary {
    fn id(&self, token: &str) -> Option<u32>;
    fn entries(&self) -> impl Iterator<Item = (&str, u32)>;
}

impl<S: std::hash::BuildHasher> Vocabulary for HashMap<String, u32, S> {
    fn id(&self, token: &str) -> Option<u32> {
        self.get(token).copied()
    }

    fn entries(&self) -> impl Iterator<Item = (&str, u32)> {
        self.iter().map(|(token, &id)| (token.as_str(), id))
    }
}

/// GPT-2's printable character for a byte: itself where that is printable Latin-1, else from U+0100 on.
pub(super) fn byte_to_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + rank).expect("0x100 to 0x143 are characters")
}

fn char_to_byte() -> HashMap<char, u8> {
    (0..=255).map(|byte| (byte_to_char(byte), byte)).collect()
}

fn finish(name: &str, vocabulary_size: usize, fingerprint: String, kind: Kind) -> Tokenizer {
    let mut tokenizer = Tokenizer { name: name.to_string(), kind, vocabulary_size, end_of_document: None, fingerprint };
    tokenizer.end_of_document = END_NAMES.iter().find_map(|token| tokenizer.token_id(token));
    tokenizer
}

impl Tokenizer {
    /// The id of the end-of-document token called `token`, or of the customary one for `None`.
    pub fn require_end_of_document(&self, token: Option<&str>) -> Result<u32, DataError> {
        let found = match token {
            Some(token) => self.token_id(token),
            None => self.end_of_document,
        };
        found.ok_or_else(|| DataError::NoEndOfDocument {
            name: self.name.clone(),
            tried: token.map_or_else(|| END_NAMES.join(" "), String::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        tokenizer.encoder().encode(text, &mut ids).unwrap();
        ids
    }

    const TEXTS: &str = "[ '\n\ta-zA-Z\u{e9}\u{df}\u{4e2d}0-9\u{bd}!.\u{301}\u{1f600}-]{0,60}";

    #[test]
    fn gpt2_equals_tiktoken() {
        let (ours, theirs) = (Tokenizer::load("gpt2").unwrap(), tiktoken_rs::r50k_base().unwrap());
        assert_eq!((ours.vocabulary_size(), ours.end_of_document()), (50_257, Some(50_256)));
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
        runner
            .run(&TEXTS.prop_union_any(), |text| {
                prop_assert_eq!(ids(&ours, &text), theirs.encode_ordinary(&text));
                Ok(())
            })
            .unwrap();
        for long in ["-".repeat(5000), "ab".repeat(3000), " ".repeat(999)] {
            assert_eq!(ids(&ours, &long), theirs.encode_ordinary(&long));
        }
        assert_eq!(ids(&ours, "<|endoftext|>").len(), 7);
    }

    /// The pattern above or any text.
    trait OrAny {
        fn prop_union_any(&self) -> BoxedStrategy<String>;
    }

    impl OrAny for &'static str {
        fn prop_union_any(&self) -> BoxedStrategy<String> {
            prop_oneof![*self, any::<String>()].boxed()
        }
    }

    fn test_data() -> Option<PathBuf> {
        let folder = std::env::var_os("HENGE_TEST_DATA").map(|folder| PathBuf::from(folder).join("data"));
        if folder.is_none() {
            eprintln!("skipped: HENGE_TEST_DATA names no folder of test data");
        }
        folder
    }

    #[test]
    fn the_two_forms_of_gpt2_are_one_tokenizer() {
        let Some(data) = test_data() else { return };
        let built_in = Tokenizer::load("gpt2").unwrap();
        let json = Tokenizer::load(data.join("gpt2-bpe/tokenizer.json").to_str().unwrap()).unwrap();
        assert!(matches!(json.kind, Kind::ByteLevelWithAdded { .. }));
        assert_eq!(built_in.fingerprint(), json.fingerprint());
        assert_eq!(json.end_of_document(), Some(50_256));
        // The library's form finds the mark in plain text, as its users expect.
        assert_eq!(ids(&json, "a<|endoftext|>b"), [64, 50_256, 65]);
    }

    #[test]
    fn json_ids_are_the_librarys() {
        let Some(data) = test_data() else { return };
        for name in ["gpt2-bpe/tokenizer.json", "stories260K/tokenizer.json"] {
            let path = data.join(name);
            let ours = Tokenizer::load(path.to_str().unwrap()).unwrap();
            let theirs = tokenizers::Tokenizer::from_file(&path).unwrap();
            let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(500));
            runner
                .run(&TEXTS.prop_union_any(), |text| {
                    let encoding = theirs.encode(text.as_str(), false).unwrap();
                    prop_assert_eq!(ids(&ours, &text), encoding.get_ids());
                    Ok(())
                })
                .unwrap();
        }
    }

    #[test]
    fn what_cannot_be_loaded_is_named() {
        let fault = |name: &str| Tokenizer::load(name).err().unwrap().to_string();
        assert!(fault("gpt9").contains("gpt9: there is no such file"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        fs::write(&path, "{\"model\": 3}").unwrap();
        assert!(fault(path.to_str().unwrap()).contains("not a Hugging Face tokenizer"));
        fs::remove_file(&path).unwrap();
        assert!(fault(folder.path().to_str().unwrap()).contains("neither tokenizer.json nor a file"));
    }
}
