//! Verifying, merging, splitting and importing corpora.

mod common;

use common::{names, test_data};
use henge_data::indexed::{IndexedWriter, TokenType};
use henge_data::order::Split;
use henge_data::raw::{RawWidth, import_raw};
use henge_data::{Corpus, CorpusCard, TokenizerCard, rearrange, verify::verify};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const REAL: [&str; 5] = [
    "openwebtext-gpt2/meg-gpt2-openwebtext_text_document",
    "agnews-prompt-gpt2/ag_news_prompt_inputs_document",
    "bert-sentences/my-bert_text_sentence",
    "bert-tiny/my-bert_text_sentence",
    "bert-tiny/test_samples_mmap_text_sentence",
];

#[test]
fn real_corpora_pass_and_split_parts_merge_to_the_whole() {
    let Some(data) = test_data() else { return };
    for name in REAL {
        let source = data.join("megatron-bin-idx").join(name);
        let corpus = Corpus::open(&source).unwrap();
        let verified = verify(&corpus, None).unwrap();
        assert_eq!(verified.largest_id, corpus.largest_id().unwrap());
        assert!(verify(&corpus, Some(verified.largest_id)).is_err());
        let folder = tempfile::tempdir().unwrap();
        let parts = ["a", "b", "c"].map(|part| folder.path().join(part));
        let split = Split::new([2.0, 1.0, 1.0]).unwrap();
        let ranges = rearrange::split(&corpus, &split, parts.each_ref().map(|p| p.as_path())).unwrap();
        let written = parts.iter().zip(&ranges).filter(|(_, range)| !range.is_empty());
        let corpora: Vec<Arc<Corpus>> = written.map(|(part, _)| Corpus::open(part).unwrap()).collect();
        let whole = folder.path().join("whole");
        rearrange::merge(&corpora, &whole).unwrap();
        for ending in ["bin", "idx"] {
            let original = fs::read(source.with_extension(ending)).unwrap();
            assert!(original == fs::read(whole.with_extension(ending)).unwrap(), "{name}.{ending}");
        }
    }
}

fn corpus(prefix: &Path, token_type: TokenType, documents: &[&[u32]], tokenizer: &str) -> Arc<Corpus> {
    let mut writer = IndexedWriter::create(prefix, token_type).unwrap();
    for ids in documents {
        writer.push(ids).unwrap();
        writer.end_sequence().unwrap();
        writer.end_document().unwrap();
    }
    let state = writer.finish().unwrap();
    let card = CorpusCard {
        tokens: state.tokens,
        sequences: state.sequences,
        documents: state.documents,
        dtype: token_type.name().into(),
        largest_id: state.largest_id,
        end_of_document: None,
        tokenizer: TokenizerCard { name: tokenizer.into(), fingerprint: tokenizer.into(), vocabulary_size: 100 },
    };
    card.write(prefix).unwrap();
    Corpus::open(prefix).unwrap()
}

#[test]
fn merging_widens_types_and_refuses_other_tokenizers() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let narrow = corpus(&at("a"), TokenType::U16, &[&[1, 2], &[3]], "one");
    let wide = corpus(&at("b"), TokenType::I32, &[&[70_000]], "one");
    let other = corpus(&at("c"), TokenType::I32, &[&[4]], "two");
    rearrange::merge(&[narrow.clone(), wide], &at("ab")).unwrap();
    let merged = Corpus::open(&at("ab")).unwrap();
    assert_eq!(merged.indexed().token_type(), TokenType::I32);
    assert_eq!(merged.card().unwrap().largest_id, 70_000);
    assert_eq!(verify(&merged, None).unwrap().documents, 3);
    let message = rearrange::merge(&[narrow.clone(), other], &at("ac")).unwrap_err().to_string();
    assert!(message.contains("was made with tokenizer one"), "{message}");
    assert!(
        rearrange::merge(std::slice::from_ref(&narrow), &at("a")).unwrap_err().to_string().contains("input and output")
    );
}

/// A link or another spelling of the path is still the corpus itself, and a split that names it last
/// must not have begun by then.
#[test]
fn an_output_that_is_the_input_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let whole = corpus(&at("a"), TokenType::U16, &[&[1, 2], &[3], &[4], &[5]], "one");
    fs::create_dir(at("sub")).unwrap();
    let again = at("sub/../a");
    let thirds = Split::new([1.0, 1.0, 1.0]).unwrap();
    let mut spellings = vec![again.clone()];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path(), at("sub/link")).unwrap();
        spellings.push(at("sub/link/a"));
        std::os::unix::fs::symlink(at("a.bin"), at("b.bin")).unwrap();
        spellings.push(at("b"));
    }
    let before = names(folder.path());
    for output in &spellings {
        let merged = rearrange::merge(std::slice::from_ref(&whole), output).unwrap_err().to_string();
        assert!(merged.contains("input and output"), "{merged}");
        let split = rearrange::split(&whole, &thirds, [&at("x"), &at("y"), output]).unwrap_err().to_string();
        assert!(split.contains("input and output"), "{split}");
        assert_eq!(names(folder.path()), before);
    }
    let twins = rearrange::split(&whole, &thirds, [&at("x"), &at("sub/../x"), &at("y")]).unwrap_err();
    assert!(twins.to_string().contains("are one corpus"), "{twins}");
    assert_eq!(names(folder.path()), before);
}

#[test]
fn faults_inside_are_found_by_offset() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("a");
    corpus(&prefix, TokenType::U16, &[&[1, 2], &[3], &[4]], "one");
    let good = fs::read(prefix.with_extension("idx")).unwrap();
    // Header 34, lengths 3 * 4, pointers 3 * 8, documents 4 * 8.
    for (at, value, expected) in [
        (54, 2, "sequence 1 is said to begin at byte 2, but the one before ends at 4 at byte 54"),
        (41, 0x80, "the length of sequence 1 is negative"),
        (78, 3, "document 1 spans sequences 3 to 2 at byte 78"),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        fs::write(prefix.with_extension("idx"), bytes).unwrap();
        let message = verify(&Corpus::open(&prefix).unwrap(), None).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    fs::write(prefix.with_extension("idx"), &good).unwrap();
    fs::write(prefix.with_extension("bin"), [1, 0, 2, 0, 3, 0, 9, 0]).unwrap();
    let message = verify(&Corpus::open(&prefix).unwrap(), None).unwrap_err().to_string();
    assert!(message.contains("do not belong together"), "{message}");
}

#[test]
fn raw_files_with_and_without_index_give_the_same_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("tokens.ds");
    let documents: Vec<Vec<u32>> = (0..5000u32).map(|d| (0..d % 97).map(|i| i + 1).chain([0]).collect()).collect();
    let bytes: Vec<u8> = documents.iter().flatten().flat_map(|&id| (id as u16).to_le_bytes()).collect();
    fs::write(&raw, bytes).unwrap();
    let by_token = folder.path().join("by_token");
    import_raw(&raw, RawWidth::U16, Some(0), &by_token).unwrap();
    let none = import_raw(&raw, RawWidth::U16, None, &by_token).unwrap_err();
    assert!(none.to_string().contains("name the token that ends a document"));
    let mut end = 0u64;
    let ends: Vec<u8> = documents
        .iter()
        .flat_map(|d| {
            end += d.len() as u64;
            end.to_le_bytes()
        })
        .collect();
    fs::write(folder.path().join("tokens.ds.index"), &ends).unwrap();
    let by_index = folder.path().join("by_index");
    let state = import_raw(&raw, RawWidth::U16, None, &by_index).unwrap();
    assert_eq!((state.documents, state.tokens), (5000, end));
    for ending in ["bin", "idx"] {
        assert!(
            fs::read(by_token.with_extension(ending)).unwrap() == fs::read(by_index.with_extension(ending)).unwrap()
        );
    }
    verify(&Corpus::open(&by_index).unwrap(), None).unwrap();
    fs::write(folder.path().join("tokens.ds.index"), &ends[..ends.len() - 8]).unwrap();
    let short = import_raw(&raw, RawWidth::U16, None, &folder.path().join("short")).unwrap_err();
    assert!(short.to_string().contains("the tokens at"), "{short}");
    assert_eq!(names(folder.path()).iter().filter(|n| n.starts_with("short")).count(), 0);
}
