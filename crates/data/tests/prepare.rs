//! Preparing corpora: real files against known counts and Megatron's own bytes, and what goes wrong.

mod common;

use common::{names, never, options, test_data};
use henge_data::prepare::{DOCUMENT_BUFFER, PrepareOptions, prepare, prepare_sentences};
use henge_data::tokenizer::Tokenizer;
use henge_data::{Corpus, DataError};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

/// The ids of the only sequence of a corpus.
fn only_sequence(prefix: &Path) -> Vec<u32> {
    let corpus = Corpus::open(prefix).unwrap();
    assert_eq!((corpus.indexed().sequences(), corpus.indexed().documents()), (1, 1));
    let mut ids = Vec::new();
    corpus.indexed().read_sequence(0, &mut ids).unwrap();
    ids
}

#[test]
fn a_json_line_beyond_the_buffer_is_streamed() {
    let folder = tempfile::tempdir().unwrap();
    let text = "It's a \"long\" line\n of text\u{e9} ".repeat(DOCUMENT_BUFFER / 24);
    let (json, plain) = (folder.path().join("a.jsonl"), folder.path().join("a.txt"));
    fs::write(&json, serde_json::json!({"id": [1, "text"], "text": text}).to_string()).unwrap();
    fs::write(&plain, &text).unwrap();
    assert!(fs::metadata(&json).unwrap().len() > DOCUMENT_BUFFER as u64);
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    let outputs = [&json, &plain].map(|input| {
        let output = input.with_extension("out");
        prepare(&options(&[input], &output), &tokenizer, never(), &mut |_| {}).unwrap();
        only_sequence(&output)
    });
    assert!(outputs[0] == outputs[1]);
}

/// The inputs of the tests that stop and kill: lines, a long text and packed lines.
fn resume_options(folder: &Path) -> PrepareOptions {
    let inputs = ["a.jsonl", "b.txt", "c.jsonl.gz"].map(|name| folder.join(name));
    let mut options = options(&inputs.each_ref().map(PathBuf::as_path), &folder.join("out"));
    options.end_of_document = Some(50_256);
    options.record_every = Duration::from_millis(1);
    options
}

fn write_resume_inputs(folder: &Path) {
    let lines: String =
        (0..150_000).map(|i| format!("{{\"text\": \"document {i} of {} many\"}}\n", i * 7919 % 104_729)).collect();
    fs::write(folder.join("a.jsonl"), &lines).unwrap();
    fs::write(folder.join("b.txt"), lines.replace('"', " ")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(lines.as_bytes()).unwrap();
    fs::write(folder.join("c.jsonl.gz"), packed.finish().unwrap()).unwrap();
}

/// The pair that an uninterrupted run gives.
fn run_through(folder: &Path, tokenizer: &Tokenizer) -> [Vec<u8>; 2] {
    prepare(&resume_options(folder), tokenizer, never(), &mut |_| {}).unwrap();
    let pair = ["out.bin", "out.idx"].map(|name| fs::read(folder.join(name)).unwrap());
    for name in ["out.bin", "out.idx", "out.json"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    pair
}

#[test]
fn a_stopped_preparation_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    write_resume_inputs(folder.path());
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    let golden = run_through(folder.path(), &tokenizer);
    let options = resume_options(folder.path());
    let (mut runs, mut reached) = (0, 0);
    loop {
        let stop = AtomicBool::new(false);
        let before = reached;
        let result = prepare(&options, &tokenizer, &stop, &mut |progress| {
            assert!(progress.documents >= before, "work is done twice: {progress:?} after {before}");
            if progress.documents > reached + 20_000 || progress.bytes > 1 << 40 {
                reached = progress.documents;
                stop.store(true, Ordering::Relaxed);
            }
        });
        runs += 1;
        match result {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, DataError::Cancelled), "{error}"),
        }
        assert!(!folder.path().join("out.bin").exists());
    }
    assert!(runs > 5, "{runs}");
    assert!(golden == ["out.bin", "out.idx"].map(|name| fs::read(folder.path().join(name)).unwrap()));
    let left = ["a.jsonl", "b.txt", "c.jsonl.gz", "out.bin", "out.idx", "out.json"];
    assert_eq!(names(folder.path()), left);
}

const CHILD_FOLDER: &str = "HENGE_TEST_PREPARE_CHILD";

/// Not a test of its own: the process that `killed_ten_times_gives_the_same_bytes` kills.
#[test]
fn child_process() {
    if let Some(folder) = std::env::var_os(CHILD_FOLDER) {
        let tokenizer = Tokenizer::load("gpt2").unwrap();
        prepare(&resume_options(Path::new(&folder)), &tokenizer, never(), &mut |_| {}).unwrap();
    }
}

#[test]
fn killed_ten_times_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    write_resume_inputs(folder.path());
    let golden = run_through(folder.path(), &Tokenizer::load("gpt2").unwrap());
    let child = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process"])
            .env(CHILD_FOLDER, folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut killed_at_work = 0;
    for attempt in 0..10u64 {
        let mut process = child();
        // Loading takes a while; the work itself some hundred milliseconds.
        let bin = folder.path().join("out.bin.tmp");
        let size = || fs::metadata(&bin).map_or(0, |m| m.len());
        let (before, deadline) = (size(), Instant::now() + Duration::from_secs(20));
        while size() <= before + attempt * 9000 && process.try_wait().unwrap().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        killed_at_work += u32::from(process.try_wait().unwrap().is_none());
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert!(killed_at_work >= 3, "{killed_at_work}");
    assert!(child().wait().unwrap().success());
    assert!(golden == ["out.bin", "out.idx"].map(|name| fs::read(folder.path().join(name)).unwrap()));
}

#[test]
fn two_runs_of_one_output_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("a.txt");
    fs::write(&input, "some text").unwrap();
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    let options = options(&[&input], &folder.path().join("out"));
    let mut inner = None;
    prepare(&options, &tokenizer, never(), &mut |_| {
        inner = Some(prepare(&options, &tokenizer, never(), &mut |_| {}).unwrap_err());
    })
    .unwrap();
    let message = inner.unwrap().to_string();
    assert!(message.contains("is being written by another run (process"), "{message}");
}

#[test]
fn several_keys_make_several_corpora() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("a.jsonl");
    fs::write(&input, "{\"q\": \"one two\", \"a\": \"three\"}\n{\"a\": \"\", \"q\": \"x\"}\n").unwrap();
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    let mut options = options(&[&input], &folder.path().join("out"));
    options.keys = vec!["q".into(), "a".into()];
    options.end_of_document = Some(50_256);
    let summary = prepare(&options, &tokenizer, never(), &mut |_| {}).unwrap();
    assert_eq!(summary.empty_documents, 1);
    let (q, a) = (&summary.corpora[0], &summary.corpora[1]);
    assert_eq!((q.0.file_name().unwrap(), q.1.tokens, q.1.documents), ("out_q".as_ref(), 5, 2));
    assert_eq!((a.0.file_name().unwrap(), a.1.tokens, a.1.documents, a.1.sequences), ("out_a".as_ref(), 2, 2, 1));
}

#[test]
fn sentences_become_sequences_of_their_document() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("a.jsonl");
    fs::write(&input, "{\"text\": \"One two. Three!  Four?\"}\n{\"text\": \"\"}\n{\"text\": \"Five.\"}\n").unwrap();
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    let mut options = options(&[&input], &folder.path().join("out"));
    options.end_of_document = Some(50_256);
    let summary = prepare_sentences(&options, &tokenizer, never(), &mut |_| {}).unwrap();
    assert_eq!((summary.corpora[0].1.sequences, summary.corpora[0].1.documents), (4, 3));
    let corpus = Corpus::open(&options.output).unwrap();
    let text = |i: u64| {
        let mut ids = Vec::new();
        corpus.indexed().read_sequence(i, &mut ids).unwrap();
        tokenizer.decode(&ids).unwrap()
    };
    let texts: Vec<String> = (0..4).map(text).collect();
    assert_eq!(texts, ["One two.", "Three!", "Four?<|endoftext|>", "Five.<|endoftext|>"]);
    assert_eq!((corpus.indexed().document(0).unwrap(), corpus.indexed().document(1).unwrap()), (0..3, 3..3));
}
