//! Corpora of more than 2^32 tokens and 2^31 documents, as sparse files: only what is looked at is there.

use henge_data::Corpus;
use henge_data::indexed::{IndexLayout, IndexedCorpus, IndexedWriter, TokenType, WriterState};
use henge_data::order::{Part, Piece, SampleOrder, Split};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// Lengths of the last sequences; all others are empty.
const LENGTHS: [u32; 5] = [i32::MAX as u32, i32::MAX as u32, i32::MAX as u32, 100, 50];
const TOKENS: u64 = 3 * (i32::MAX as u64) + 150;
/// Sequences, and as many documents.
const SEQUENCES: u64 = (1 << 31) + 8;

fn sparse(path: &Path, length: u64) -> File {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len(length).unwrap();
    file
}

fn put(file: &mut File, at: u64, bytes: &[u8]) {
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

/// The last 150 tokens are 1 to 150, all others 0. Documents up to number 2^31 are empty but the last of
/// them, which holds all sequences but the last four.
fn huge(prefix: &Path) {
    let layout =
        IndexLayout { token_type: TokenType::U16, sequences: SEQUENCES, documents: SEQUENCES, has_modes: false };
    let mut bin = sparse(&prefix.with_extension("bin"), TOKENS * 2);
    let ids: Vec<u8> = (1..=150u16).flat_map(u16::to_le_bytes).collect();
    put(&mut bin, (TOKENS - 150) * 2, &ids);
    let mut idx = sparse(&prefix.with_extension("idx"), layout.document_at(SEQUENCES + 1));
    put(&mut idx, 0, &layout.header());
    let (first, mut pointer) = (SEQUENCES - LENGTHS.len() as u64, 0u64);
    for (sequence, length) in (first..).zip(LENGTHS) {
        put(&mut idx, layout.length_at(sequence), &length.to_le_bytes());
        put(&mut idx, layout.pointer_at(sequence), &pointer.to_le_bytes());
        pointer += u64::from(length) * 2;
    }
    for document in SEQUENCES - 4..=SEQUENCES {
        put(&mut idx, layout.document_at(document), &document.to_le_bytes());
    }
}

#[test]
fn a_corpus_past_2_31_documents_and_2_32_tokens_is_read_and_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("huge");
    huge(&prefix);
    let corpus = Corpus::open(&prefix).unwrap();
    let indexed = corpus.indexed();
    assert_eq!((indexed.tokens(), indexed.documents()), (TOKENS, SEQUENCES));
    let mut ids = Vec::new();
    indexed.read_sequence(SEQUENCES - 1, &mut ids).unwrap();
    assert_eq!(ids, (101..=150).collect::<Vec<u32>>());
    assert_eq!(indexed.sequence_of(TOKENS - 51), SEQUENCES - 2);
    assert_eq!(indexed.document(indexed.document_of(SEQUENCES - 2)).unwrap(), SEQUENCES - 2..SEQUENCES - 1);

    let s = 1013; // the last sample ends inside the last document
    let order = SampleOrder::sequential(vec![corpus.whole(Part::Train)], s).unwrap();
    let last = order.distinct_samples() - 1;
    assert_eq!(last, (TOKENS - 1) / s - 1);
    let ends = order.sample(last).unwrap();
    let behind = TOKENS - ((last + 1) * s + 1);
    assert_eq!(u64::from(*ends.last().unwrap()), 150 - behind);
    let pieces = order.pieces(&order.locate(last).unwrap()).unwrap();
    assert_eq!(pieces.last(), Some(&Piece { document: SEQUENCES - 1, offset: 0, tokens: 50 - behind }));

    let split = Split::new([0.0, 0.0, 1.0]).unwrap();
    assert_eq!(corpus.part(&split, Part::Test).unwrap().tokens, 0..TOKENS);
    let shuffled = SampleOrder::shuffled(vec![(corpus.whole(Part::Train), 1.0)], s, 7).unwrap();
    let readers = shuffled.samples_of_document(0, SEQUENCES - 1, 3 * (last + 1)).unwrap();
    assert_eq!(readers.len(), 3, "once an epoch");
    assert!(readers.iter().all(|&i| shuffled.locate(i).unwrap().number == last), "{readers:?}");
}

/// The pointers of an index are the running sum of the lengths, past 2^32 tokens as before.
#[test]
fn writing_goes_on_past_2_32_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("written");
    let state = WriterState { tokens: TOKENS - 150, sequences: 3, documents: 3, largest_id: 0, open_tokens: 0 };
    let beside = |ending: &str| folder.path().join(format!("written{ending}"));
    sparse(&beside(".bin.tmp"), state.tokens * 2);
    let lengths: Vec<u8> = LENGTHS[..3].iter().flat_map(|length| length.to_le_bytes()).collect();
    put(&mut sparse(&beside(".lengths.tmp"), 12), 0, &lengths);
    let documents: Vec<u8> = (1..=3u64).flat_map(u64::to_le_bytes).collect();
    put(&mut sparse(&beside(".documents.tmp"), 24), 0, &documents);
    let mut writer = IndexedWriter::resume(&prefix, TokenType::U16, state).unwrap();
    for ids in [(1..=100).collect::<Vec<u32>>(), (101..=150).collect()] {
        writer.push(&ids).unwrap();
        writer.end_sequence().unwrap();
        writer.end_document().unwrap();
    }
    assert_eq!(writer.finish().unwrap().tokens, TOKENS);
    let corpus = IndexedCorpus::open(&prefix).unwrap();
    assert_eq!((corpus.sequences(), corpus.documents(), corpus.tokens()), (5, 5, TOKENS));
    assert_eq!(corpus.pointer(4), (TOKENS - 50) * 2);
    let mut ids = Vec::new();
    corpus.read_sequence(3, &mut ids).unwrap();
    assert_eq!(ids, (1..=100).collect::<Vec<u32>>());
}
