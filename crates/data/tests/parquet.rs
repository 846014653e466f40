//! Parquet inputs give what the same texts give as JSON lines, over any row groups, pages and packings,
//! and what is no column of strings is refused by name.

mod common;

use common::{names, never, options};
use henge_data::DataError;
use henge_data::prepare::prepare;
use henge_data::tokenizer::Tokenizer;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SCHEMA: &str = "message rows { REQUIRED INT32 n; OPTIONAL BYTE_ARRAY text (UTF8); \
    REQUIRED BYTE_ARRAY title (STRING); OPTIONAL group tags (LIST) { REPEATED group list { \
    OPTIONAL BYTE_ARRAY element (UTF8); } } OPTIONAL BYTE_ARRAY price (DECIMAL(9,2)); }";

/// One row group a slice; `None` is null. Titles are `title N`, tags and prices all null.
fn write(path: &Path, groups: &[&[Option<&str>]], properties: WriterProperties) {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::new(properties)).unwrap();
    let mut row = 0;
    for texts in groups {
        let rows: Vec<i32> = (row..row + texts.len() as i32).collect();
        row += texts.len() as i32;
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&rows, None, None).unwrap();
        column.close().unwrap();
        let values: Vec<ByteArray> = texts.iter().flatten().map(|&text| ByteArray::from(text)).collect();
        let levels: Vec<i16> = texts.iter().map(|text| i16::from(text.is_some())).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
        let titles: Vec<ByteArray> = rows.iter().map(|n| ByteArray::from(format!("title {n}").as_str())).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&titles, None, None).unwrap();
        column.close().unwrap();
        let nulls = vec![0; texts.len()];
        for repetition in [Some(&nulls[..]), None] {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&[], Some(&nulls), repetition).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    file.close().unwrap();
}

fn texts(count: usize) -> Vec<String> {
    let text = |i: usize| format!("document {i} \u{e9}\n\"{}\"", "of words and more words ".repeat(i * 7919 % 97));
    (0..count).map(|i| if i % 50 == 7 { String::new() } else { text(i) }).collect()
}

/// The pair that a preparation gives.
fn pair(input: &Path, keys: &[&str], ending: &str) -> [Vec<u8>; 2] {
    let mut options = options(&[input], &input.with_extension("out"));
    options.keys = keys.iter().map(|key| key.to_string()).collect();
    prepare(&options, &Tokenizer::load("gpt2").unwrap(), never(), &mut |_| {}).unwrap();
    ["bin", "idx"].map(|kind| {
        let name = format!("{}{ending}.{kind}", options.output.file_name().unwrap().to_str().unwrap());
        fs::read(input.with_file_name(name)).unwrap()
    })
}

#[test]
fn rows_are_the_documents_of_the_same_json_lines() {
    let folder = tempfile::tempdir().unwrap();
    let texts = texts(3000);
    let some: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    let lines = |key: fn(usize, &str) -> serde_json::Value| -> String {
        texts.iter().enumerate().map(|(i, text)| key(i, text).to_string() + "\n").collect()
    };
    let json = folder.path().join("a.jsonl");
    fs::write(&json, lines(|i, text| serde_json::json!({"text": text, "title": format!("title {i}")}))).unwrap();
    let expected = [pair(&json, &["text"], ""), pair(&json, &["title", "text"], "_title")];
    let level = Default::default();
    let packings = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::ZSTD(level),
        Compression::LZ4_RAW,
        Compression::BROTLI(Default::default()),
    ];
    for (i, packing) in packings.into_iter().enumerate() {
        let path = folder.path().join(format!("{i}.parquet"));
        let properties = WriterProperties::builder()
            .set_compression(packing)
            .set_data_page_row_count_limit(if i % 2 == 0 { 100 } else { 20_000 })
            .set_dictionary_enabled(i % 3 != 0)
            .build();
        write(&path, &[&some[..1], &some[1..2000], &[], &some[2000..]], properties);
        assert!(expected[0] == pair(&path, &["text"], ""), "{packing:?}");
        assert!(expected[1] == pair(&path, &["title", "text"], "_title"), "{packing:?}");
    }
}

/// Files that pyarrow 26.0.1 wrote (large strings, dictionaries, both page versions, delta encodings)
/// beside other columns, and the same rows as JSON lines.
#[test]
fn files_of_another_writer_give_their_rows() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parquet");
    let folder = tempfile::tempdir().unwrap();
    let copied = |name: &str| {
        let path = folder.path().join(name);
        fs::copy(fixtures.join(name), &path).unwrap();
        path
    };
    let rows = copied("rows.jsonl");
    let expected = [pair(&rows, &["text"], ""), pair(&rows, &["kind", "text"], "_kind")];
    for name in ["v1_snappy.parquet", "v2_zstd.parquet", "v1_gzip.parquet"] {
        let path = copied(name);
        assert!(expected[0] == pair(&path, &["text"], ""), "{name}");
        assert!(expected[1] == pair(&path, &["kind", "text"], "_kind"), "{name}");
    }
}

#[test]
fn a_stopped_preparation_goes_on_at_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let texts = texts(40_000);
    let some: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    let path = folder.path().join("a.parquet");
    write(&path, &[&some[..15_000], &some[15_000..]], WriterProperties::builder().build());
    let golden = pair(&path, &["text"], "");
    for name in ["a.out.bin", "a.out.idx", "a.out.json"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    let mut options = options(&[&path], &path.with_extension("out"));
    options.record_every = Duration::from_millis(1);
    let tokenizer = Tokenizer::load("gpt2").unwrap();
    let file_bytes = fs::metadata(&path).unwrap().len();
    let (mut runs, mut reached) = (0, 0);
    loop {
        let stop = AtomicBool::new(false);
        let before = reached;
        let result = prepare(&options, &tokenizer, &stop, &mut |progress| {
            assert!(progress.documents >= before && progress.bytes <= file_bytes, "{progress:?} after {before}");
            if progress.documents > reached + 5000 {
                reached = progress.documents;
                stop.store(true, Ordering::Relaxed);
            }
        });
        runs += 1;
        match result {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, DataError::Cancelled), "{error}"),
        }
    }
    assert!(runs > 3, "{runs}");
    assert!(golden == ["a.out.bin", "a.out.idx"].map(|name| fs::read(folder.path().join(name)).unwrap()));
}

#[test]
fn what_holds_no_text_is_refused_by_name_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let mut rows = vec![Some("fine"); 100];
    rows[70] = None;
    write(&path, &[&rows[..40], &rows[40..]], WriterProperties::builder().build());
    let refused = |path: &Path, key: &str| {
        let mut options = options(&[path], &folder.path().join("out"));
        options.keys = vec![key.into()];
        let error = prepare(&options, &Tokenizer::load("gpt2").unwrap(), never(), &mut |_| {}).unwrap_err();
        assert!(!error.is_machine_failure());
        error.to_string()
    };
    for (key, expected) in [
        ("text", "a.parquet:71: column \"text\" is null in this row"),
        ("txt", "has no column \"txt\"; name the one that holds the text of n, text, title, tags, price"),
        ("n", "column \"n\" holds no strings (INT32)"),
        ("price", "column \"price\" holds no strings (BYTE_ARRAY, Decimal"),
        ("tags", "column \"tags\" is nested"),
    ] {
        let message = refused(&path, key);
        assert!(message.contains(expected), "{message}");
    }
    let whole = fs::read(&path).unwrap();
    for (name, bytes) in [("cut.parquet", &whole[..whole.len() / 2]), ("empty.parquet", &[][..])] {
        fs::write(folder.path().join(name), bytes).unwrap();
        let message = refused(&folder.path().join(name), "title");
        assert!(message.contains(name) && message.contains("cannot be read as Parquet"), "{message}");
    }
    fs::write(folder.path().join("b.parquet.gz"), &whole).unwrap();
    assert!(refused(&folder.path().join("b.parquet.gz"), "title").contains("give an unpacked file"));
    assert_eq!(names(folder.path()), ["a.parquet", "b.parquet.gz", "cut.parquet", "empty.parquet"]);
}

/// Damage anywhere is an error or other text, never a panic.
#[test]
fn damaged_files_end_in_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let texts = texts(60);
    let some: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    write(&path, &[&some[..20], &some[20..]], WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let whole = fs::read(&path).unwrap();
    let input = [henge_data::prepare::Input::new(&path, henge_data::prepare::Format::FromName)];
    let read = || henge_data::prepare::each_text(&input, &["text".into()], &mut |_| true);
    assert_eq!(read().unwrap(), 60);
    let mut refused = 0;
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).unwrap();
        refused += usize::from(read().is_err());
    }
    assert!(refused > whole.len() / 10, "{refused} of {}", whole.len());
}
