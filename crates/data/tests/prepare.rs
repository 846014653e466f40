//! Preparing corpora: real files against known counts and Megatron's own bytes, and what goes wrong.

mod common;

use common::{names, never, options, test_data};
use henge_data::prepare::prepare;
use henge_data::tokenizer::Tokenizer;
use henge_data::{Corpus, DataError};
use std::fs;
use std::path::Path;

#[test]
fn tinyshakespeare_has_338025_tokens() {
    let Some(data) = test_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("shakespeare");
    let input = data.join("tinyshakespeare/input.txt");
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    let summary = prepare(&options(&[&input], &output), &tokenizer, never(), &mut |_| {}).unwrap();
    assert_eq!(summary.corpora[0].1.tokens, 338_025);
    assert_eq!(names(folder.path()), ["shakespeare.bin", "shakespeare.idx", "shakespeare.json"]);
    let corpus = Corpus::open(&output).unwrap();
    let mut ids = Vec::new();
    corpus.indexed().read_sequence(0, &mut ids).unwrap();
    assert_eq!(ids.iter().max(), Some(&corpus.largest_id().unwrap()));
    assert_eq!(tokenizer.decode(&ids).unwrap(), fs::read_to_string(input).unwrap());
}

#[test]
fn openwebtext_is_megatrons_byte_for_byte() {
    let Some(data) = test_data() else { return };
    let source = data.join("megatron-bin-idx/openwebtext-gpt2");
    let tokenizer = Tokenizer::load(source.to_str().unwrap()).unwrap();
    assert_eq!((tokenizer.vocabulary_size(), tokenizer.end_of_document()), (5000, Some(4999)));
    for workers in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("owt");
        let mut options = options(&[&source.join("openwebtext-1000.decoded.jsonl")], &output);
        options.end_of_document = tokenizer.end_of_document();
        options.workers = workers;
        prepare(&options, &tokenizer, never(), &mut |_| {}).unwrap();
        for ending in ["bin", "idx"] {
            let golden = source.join(format!("meg-gpt2-openwebtext_text_document.{ending}"));
            let same = fs::read(golden).unwrap() == fs::read(output.with_extension(ending)).unwrap();
            assert!(same, "{ending} differs with {workers} workers");
        }
    }
}

fn fails(content: &[u8], name: &str) -> (DataError, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join(name);
    fs::write(&input, content).unwrap();
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    let options = options(&[&input], &folder.path().join("out"));
    let error = prepare(&options, &tokenizer, never(), &mut |_| {}).unwrap_err();
    (error, names(folder.path()))
}

#[test]
fn bad_input_is_named_by_line_and_leaves_nothing() {
    let mut far = b"{\"text\": \"a line\"}\n".repeat(100_000);
    far.extend_from_slice(b"{\"text\": \"broken\n");
    let utf8 = [&b"{\"text\": \"ok\"}\n\n{\"text\": \"\xff\"}\n"[..], &b"{}\n".repeat(9)].concat();
    let cases: [(&[u8], &str, &str); 6] = [
        (&far, "a.jsonl", "a.jsonl:100001: broken JSON"),
        (&utf8, "b.jsonl", "b.jsonl: invalid UTF-8 on line 3"),
        (b"{\"txt\": \"a\"}", "c.jsonl", "c.jsonl:1: the object has no key \"text\""),
        (b"fine\nfine\n\xc3\x28", "d.txt", "d.txt: invalid UTF-8 on line 3 (byte 10"),
        (b"", "e.txt", "the input holds no text"),
        (b"\n\n", "f.jsonl", "the input holds no text"),
    ];
    for (content, name, expected) in cases {
        let (error, left) = fails(content, name);
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(left, [name], "{error}");
        assert!(!error.is_machine_failure());
    }
}

/// The kernel's own full disk: the token file is `/dev/full`.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("a.txt");
    fs::write(&input, "some text ".repeat(1000)).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("out.bin.tmp")).unwrap();
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    let options = options(&[&input], &folder.path().join("out"));
    let error = prepare(&options, &tokenizer, never(), &mut |_| {}).unwrap_err();
    assert!(error.is_machine_failure(), "{error}");
    assert_eq!(names(folder.path()), ["a.txt"]);
}

#[test]
fn pieces_of_a_long_text_give_the_ids_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("long.txt");
    let line = "It's  12,345 o'clock \u{4e2d}\u{6587}\u{3002}\n\n\t and we'll see!  ";
    let text: String = (0..60_000).map(|i| format!("{line}{i}\n")).collect();
    fs::write(&input, &text).unwrap();
    let mut whole = Vec::new();
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    tokenizer.encoder().encode(&text, &mut whole).unwrap();
    let output = folder.path().join("out");
    prepare(&options(&[&input], &output), &tokenizer, never(), &mut |_| {}).unwrap();
    let corpus = Corpus::open(Path::new(&output)).unwrap();
    let mut ids = Vec::new();
    corpus.indexed().read_sequence(0, &mut ids).unwrap();
    assert_eq!((corpus.indexed().sequences(), corpus.indexed().documents()), (1, 1));
    assert!(ids == whole, "{} ids against {}", ids.len(), whole.len());
}
