//! The event file read back by other means: a decoder of bits written here, and TensorBoard.

use super::*;
use std::collections::BTreeMap;
use std::process::Command;

/// CRC-32C bit by bit: polynomial 0x1edc6f41, reflected.
fn slow_crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}

fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Payloads of a file, every checksum held against the slow one.
fn payloads(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let payload = &bytes[12..12 + length];
        assert_eq!(unmask(u32_at(bytes, 8)), slow_crc(&bytes[..8]));
        assert_eq!(unmask(u32_at(bytes, 12 + length)), slow_crc(payload));
        found.push(payload.to_vec());
        bytes = &bytes[16 + length..];
    }
    found
}

/// A field of a message as the wire has it.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    Varint(u64),
    Eight([u8; 8]),
    Four([u8; 4]),
    Bytes(Vec<u8>),
}

impl Field {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Fields of a protobuf message by number, in order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let mut take = |n: usize| {
            let (head, tail) = bytes.split_at(n);
            bytes = tail;
            head.to_vec()
        };
        let field = match key & 7 {
            1 => Field::Eight(take(8).try_into().unwrap()),
            5 => Field::Four(take(4).try_into().unwrap()),
            0 => Field::Varint(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (head, tail) = bytes.split_at(length);
                bytes = tail;
                Field::Bytes(head.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, field));
    }
    found
}

fn all(message: &[(u64, Field)], number: u64) -> Vec<&Field> {
    message.iter().filter(|(n, _)| *n == number).map(|(_, field)| field).collect()
}

#[test]
fn a_checksum_is_that_of_the_standard() {
    // RFC 3720, B.4: 32 zero bytes, and 32 bytes of ones.
    assert_eq!((crc32c::crc32c(&[0; 32]), slow_crc(&[0; 32])), (0x8a91_36aa, 0x8a91_36aa));
    assert_eq!((crc32c::crc32c(&[0xff; 32]), slow_crc(&[0xff; 32])), (0x62a8_ab43, 0x62a8_ab43));
}

#[test]
fn records_hold_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let before = since_epoch().as_secs_f64();
    let mut events = EventFile::create(folder.path(), 301).unwrap();
    events.scalars(301, &[("train/loss".to_string(), 10.25), ("train/skipped".to_string(), 0.0)]).unwrap();
    events.scalar("valid/books/eval_loss", 302, -1e-3).unwrap();
    let payloads = payloads(&std::fs::read(events.path()).unwrap());
    let messages: Vec<_> = payloads.iter().map(|payload| fields(payload)).collect();

    for message in &messages {
        let [Field::Eight(time)] = all(message, 1)[..] else { panic!("no wall time") };
        assert!((before..before + 60.0).contains(&f64::from_le_bytes(*time)));
    }
    assert_eq!(all(&messages[0], 3), [&Field::Bytes(b"brain.Event:2".to_vec())]);
    assert_eq!(all(&messages[1], 2), [&Field::Varint(301)]);
    assert_eq!(fields(all(&messages[1], 7)[0].bytes()), [(1, Field::Varint(1))]);
    let read = |message: &[(u64, Field)]| -> Vec<(Vec<u8>, Field)> {
        let summary = fields(all(message, 5)[0].bytes());
        let value = |field: &Field| {
            let value = fields(field.bytes());
            (all(&value, 1)[0].bytes().to_vec(), all(&value, 2)[0].clone())
        };
        all(&summary, 1).into_iter().map(value).collect()
    };
    let float = |value: f32| Field::Four(value.to_le_bytes());
    assert_eq!(all(&messages[2], 2), [&Field::Varint(301)]);
    assert_eq!(read(&messages[2]), [(b"train/loss".to_vec(), float(10.25)), (b"train/skipped".to_vec(), float(0.0))]);
    assert_eq!(read(&messages[3]), [(b"valid/books/eval_loss".to_vec(), float(-1e-3))]);
}

#[test]
fn two_files_of_one_moment_have_two_names() {
    let folder = tempfile::tempdir().unwrap();
    let files = [1, 2].map(|step| EventFile::create(folder.path(), step).unwrap());
    assert!(files[0].path() < files[1].path());
    for file in &files {
        assert!(file.path().to_string_lossy().contains("events.out.tfevents."));
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("tensorboard");
    std::fs::write(&blocked, "a file").unwrap();
    let error = EventFile::create(&blocked, 1).err().unwrap().to_string();
    assert!(error.contains(&blocked.display().to_string()), "{error}");
}

/// TensorBoard's own reader, where a Python that has it is named.
#[test]
fn tensorboard_reads_the_scalars() {
    let Some(python) = std::env::var_os("HENGE_TEST_PYTHON") else {
        return eprintln!("skipped: HENGE_TEST_PYTHON names no Python with the package tensorboard");
    };
    let folder = tempfile::tempdir().unwrap();
    // The first run got to step 4; the second went on from the checkpoint of step 2.
    let mut first = EventFile::create(folder.path(), 1).unwrap();
    (1..=4).for_each(|step| first.scalar("train/loss", step, 10.0 - step as f64).unwrap());
    let mut second = EventFile::create(folder.path(), 3).unwrap();
    (3..=5).for_each(|step| second.scalar("train/loss", step, 0.5 * step as f64).unwrap());
    second.scalar("valid/books/eval_loss", 5, 2.5).unwrap();

    let script = "import sys, json\n\
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n\
        events = EventAccumulator(sys.argv[1]); events.Reload()\n\
        print(json.dumps({t: [[e.step, e.value] for e in events.Scalars(t)] for t in events.Tags()['scalars']}))";
    let output = Command::new(python).args(["-c", script]).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: BTreeMap<String, Vec<(u64, f64)>> = serde_json::from_slice(&output.stdout).unwrap();
    let expected = BTreeMap::from([
        ("train/loss".to_string(), vec![(1, 9.0), (2, 8.0), (3, 1.5), (4, 2.0), (5, 2.5)]),
        ("valid/books/eval_loss".to_string(), vec![(5, 2.5)]),
    ]);
    assert_eq!(read, expected);
}
