//! The file pair: real ones read and written again byte for byte, damaged ones refused by offset.

mod common;

use common::test_data;
use henge_data::DataError;
use henge_data::indexed::{IndexedCorpus, IndexedWriter, TokenType};
use std::fs;
use std::path::{Path, PathBuf};

fn rewrite(corpus: &IndexedCorpus, prefix: &Path) {
    let mut writer = match corpus.layout().has_modes {
        true => IndexedWriter::create_with_modes(prefix, corpus.token_type()).unwrap(),
        false => IndexedWriter::create(prefix, corpus.token_type()).unwrap(),
    };
    let mut ids = Vec::new();
    for document in 0..corpus.documents() {
        for sequence in corpus.document(document).unwrap() {
            ids.clear();
            corpus.read_sequence(sequence, &mut ids).unwrap();
            writer.push(&ids).unwrap();
            writer.end_sequence_with_mode(corpus.mode(sequence).unwrap_or(0)).unwrap();
        }
        writer.end_document().unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn real_pairs_are_written_again_byte_for_byte() {
    let Some(data) = test_data() else { return };
    // Sequences, documents and tokens as the data's own notes give them.
    let pairs = [
        ("openwebtext-gpt2/meg-gpt2-openwebtext_text_document", Some((1000, 1000, 1_361_845))),
        ("agnews-prompt-gpt2/ag_news_prompt_inputs_document", Some((100, 100, 5_945))),
        ("agnews-prompt-gpt2/ag_news_prompt_targets_document", Some((100, 100, 244))),
        ("bert-sentences/my-bert_text_sentence", Some((7_860, 35, 234_432))),
        ("bert-tiny/my-bert_text_sentence", None),
        ("bert-tiny/test_samples_mmap_text_sentence", None),
    ];
    for (name, counts) in pairs {
        let source = data.join("megatron-bin-idx").join(name);
        let corpus = IndexedCorpus::open(&source).unwrap();
        if let Some(counts) = counts {
            assert_eq!((corpus.sequences(), corpus.documents(), corpus.tokens()), counts, "{name}");
        }
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        rewrite(&corpus, &copy);
        for ending in ["bin", "idx"] {
            let original = fs::read(source.with_extension(ending)).unwrap();
            assert!(original == fs::read(copy.with_extension(ending)).unwrap(), "{name}.{ending}");
        }
    }
}

/// Three sequences (2, 0 and 3 tokens) in two documents.
fn small(folder: &Path, token_type: TokenType) -> PathBuf {
    let prefix = folder.join("small");
    let mut writer = IndexedWriter::create_with_modes(&prefix, token_type).unwrap();
    for (ids, mode, ends) in [(&[5, 6][..], 0, false), (&[], 1, true), (&[7, 8, 9], 2, true)] {
        writer.push(ids).unwrap();
        writer.end_sequence_with_mode(mode).unwrap();
        if ends {
            writer.end_document().unwrap();
        }
    }
    writer.finish().unwrap();
    prefix
}

#[test]
fn all_types_and_modes_come_back() {
    for token_type in TokenType::ALL {
        let folder = tempfile::tempdir().unwrap();
        let corpus = IndexedCorpus::open(&small(folder.path(), token_type)).unwrap();
        assert_eq!((corpus.sequences(), corpus.documents(), corpus.tokens()), (3, 2, 5));
        let mut ids = Vec::new();
        corpus.read_sequence(2, &mut ids).unwrap();
        corpus.read_part(0, 1, 1, &mut ids).unwrap();
        assert_eq!(ids, [7, 8, 9, 6]);
        assert_eq!((0..3).map(|i| corpus.mode(i).unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((corpus.document(0).unwrap(), corpus.document(1).unwrap()), (0..2, 2..3));
        assert_eq!((corpus.sequence_of(1), corpus.sequence_of(2), corpus.document_of(2)), (0, 2, 1));
    }
}

#[test]
fn damage_is_named_by_file_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = small(folder.path(), TokenType::U16);
    let idx = fs::read(prefix.with_extension("idx")).unwrap();
    let damaged = |at: usize, byte: u8| {
        let mut bytes = idx.clone();
        bytes[at] = byte;
        bytes
    };
    let cases = [
        (damaged(0, b'X'), "no Megatron index (wrong magic) at byte 0"),
        (damaged(9, 2), "index version 2 is unknown, 1 is read at byte 9"),
        (damaged(17, 9), "type code 9 is unknown, 1 to 8 are read at byte 17"),
        (damaged(18, 4), "4 sequences and 2 documents need 106 bytes but the file ends at byte 97"),
        (damaged(26, 0), "the document table has no entry"),
        (idx[..20].to_vec(), "the file ends inside its header of 34 bytes at byte 20"),
        (idx[..90].to_vec(), "but the file ends at byte 90"),
        (damaged(46, 1), "the first pointer is not 0 at byte 46"),
        (damaged(70, 1), "the documents do not span 0 to 3 at byte 70"),
        (damaged(45, 0x80), "the length of sequence 2 is negative"),
    ];
    for (bytes, expected) in cases {
        fs::write(prefix.with_extension("idx"), bytes).unwrap();
        let error = IndexedCorpus::open(&prefix).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    fs::write(prefix.with_extension("idx"), &idx).unwrap();
    fs::write(prefix.with_extension("bin"), [0; 9]).unwrap();
    let error = IndexedCorpus::open(&prefix).unwrap_err();
    assert!(matches!(error, DataError::BinLength { actual: 9, expected: 10, .. }), "{error}");
    fs::remove_file(prefix.with_extension("bin")).unwrap();
    assert!(IndexedCorpus::open(&prefix).unwrap_err().to_string().contains("cannot open"));
}

#[test]
fn ids_too_wide_for_the_type_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = IndexedWriter::create(&folder.path().join("x"), TokenType::U16).unwrap();
    let error = writer.push(&[1, 65_536]).unwrap_err();
    assert!(error.to_string().contains("65536 does not fit the uint16 ids"), "{error}");
    drop(writer);
    assert_eq!(common::names(folder.path()).len(), 0);
}
