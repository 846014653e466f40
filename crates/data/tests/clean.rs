//! Cleaning against what was planted: near-duplicates of known Jaccard index, other languages, short
//! documents, contamination; the law of the bands; and the same bytes for any number of threads.

mod common;

use common::{names, never};
use henge_data::clean::{
    CleanOptions, CleanReport, Contamination, DuplicateRule, MinHash, Reason, clean, jaccard, shingles,
};
use henge_data::prepare::{Format, Input};
use henge_data::tokenizer::Tokenizer;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

fn gpt2() -> &'static Tokenizer {
    static GPT2: OnceLock<Tokenizer> = OnceLock::new();
    GPT2.get_or_init(|| Tokenizer::load("gpt2").unwrap())
}

/// The paper's rules.
fn options(inputs: &[&Path], output: &Path) -> CleanOptions {
    CleanOptions {
        inputs: inputs.iter().map(|path| Input::new(path, Format::FromName)).collect(),
        key: "text".into(),
        output: output.to_path_buf(),
        language: Some("eng".into()),
        min_tokens: 128,
        contamination: None,
        duplicates: Some(DuplicateRule::PAPER),
        workers: 2,
    }
}

fn run(options: &CleanOptions) -> CleanReport {
    clean(options, gpt2(), never(), &mut |_| {}).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// English paragraphs of some hundred tokens.
const PARAGRAPHS: [&str; 7] = [
    "The ferry left the harbour an hour late, and by then most of the passengers had stopped pretending to be \
     patient. A tall woman with two suitcases asked the man at the rail whether the boat ever ran on time, and he \
     laughed as though she had told him a joke that he had heard every summer since he was a boy. Behind them the \
     town grew smaller, the church first, then the cranes, and at last only the lighthouse was left above the grey \
     water, turning its lamp although it was not yet dark.",
    "Bread needs very little: flour, water, salt and time. Of these the last is the one that most recipes leave out, \
     because nobody likes to be told that supper will be ready tomorrow. Yet a dough that has rested overnight in a \
     cool kitchen is easier to shape, browns more evenly and keeps for days. Fold it once or twice before you go to \
     bed, cover the bowl with a plate, and in the morning you will find that most of the work has been done without you.",
    "When the council voted to close the library, nobody expected the children to object first. They came on a \
     Tuesday with a petition written in felt pen, and they read it aloud in turns, each taking one line. The mayor \
     listened politely, then seriously, and by the end he had taken off his glasses. It took another three months \
     and a good deal of arithmetic, but the building kept its doors open, and the petition now hangs beside the desk.",
    "Most birds that cross the desert do so at night, when the air is cooler and there is less wind to fight against. \
     They rest through the day in whatever shade a stone can give them, with their beaks open, hardly moving. People \
     who have followed them with radar say that the flocks rise together shortly after sunset, climb for an hour, \
     and then hold their height until dawn, as steadily as if somebody had drawn a line across the sky for them.",
    "My grandmother kept her money in a biscuit tin and her opinions nowhere at all. She told the butcher what she \
     thought of his sausages, the priest what she thought of his sermons, and once, at a wedding, the groom what she \
     thought of his chances. We were proud of her and a little afraid. Only years later did I learn that she had \
     paid for half the village to go to school, quietly, out of that same tin, and had never mentioned it to anyone.",
    "An engine that has stood still for ten winters will not start because you wish it to. Take the plugs out, pour \
     a spoonful of oil into each cylinder and turn the shaft by hand before you think about the battery. Look at \
     every hose. Rubber that seems sound will crack as soon as it is warm, and then you will be standing at the side \
     of a road in the rain, wondering why you were in such a hurry on the one fine Saturday of the whole spring.",
    "Nobody in the orchestra had met the new conductor before the first rehearsal, and for ten minutes nobody was \
     sure that she had arrived. She sat among the second violins with a pencil behind her ear, listening to them \
     tune. Then she walked to the front, thanked the oboe for the note, and asked them to play the opening as softly \
     as they could, softer than was sensible, until the sound of the traffic outside was louder than the strings.",
];

/// Made-up words: two texts of different seeds share next to nothing.
fn made_up(seed: u64, words: u64) -> String {
    let letter = |i: u64| char::from(b'a' + (henge_random::mix(seed, i) % 26) as u8);
    (0..words).map(|word| (0..7).map(|i| letter(8 * word + i)).chain([' ']).collect::<String>()).collect()
}

#[test]
fn each_rule_drops_what_it_is_for_and_the_rest_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let german = "Der Zug nach Hause war wieder nicht rechtzeitig abgefahren, und niemand wusste warum. ".repeat(12);
    let secret = "zebras dance upon the silver moon while seven quiet badgers count their golden coins";
    let held = [PARAGRAPHS[1], PARAGRAPHS[2], &format!("And {secret}."), PARAGRAPHS[3], PARAGRAPHS[4]].join("\n\n");
    let wrong = format!("{} It\u{e2}\u{20ac}\u{2122}s a caf\u{c3}\u{a9}.", PARAGRAPHS[5]);
    let rows = [
        json!({"id": 1, "text": PARAGRAPHS[0], "score": 1.50}),
        json!({"id": 2, "text": german}),
        json!({"id": 3, "text": &PARAGRAPHS[6][..200]}),
        json!({"id": 4, "text": wrong}),
        json!({"id": 5, "text": held}),
        json!({"id": 6, "text": PARAGRAPHS[0].replace("tall", "young")}),
        json!({"id": 7, "text": PARAGRAPHS[6]}),
    ];
    let input = folder.path().join("in.jsonl");
    fs::write(&input, rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    let output = folder.path().join("out.jsonl");
    let mut options = options(&[&input], &output);
    let mut contamination = Contamination::new(13);
    contamination.add_text(secret);
    options.contamination = Some(contamination);
    options.min_tokens = 64;
    let report = run(&options);

    let written = lines(&output);
    let ids: Vec<u64> = written.iter().map(|row| row["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 4, 5, 5, 7]);
    assert_eq!(written[0], rows[0]);
    assert!(written[1]["text"].as_str().unwrap().ends_with("It's a caf\u{e9}."));
    assert!(written.iter().all(|row| !row["text"].as_str().unwrap().contains("badgers")));
    assert_eq!((report.documents, report.written, report.repaired, report.cut), (7, 5, 1, 1));
    let dropped = |reason| {
        let dropped = &report.dropped[&reason];
        (dropped.documents, dropped.examples[0].document.rsplit(':').next().unwrap().to_string())
    };
    assert_eq!(dropped(Reason::OtherLanguage), (1, "2".into()));
    assert_eq!(report.dropped[&Reason::OtherLanguage].examples[0].why, "deu");
    assert_eq!(dropped(Reason::TooShort), (1, "3".into()));
    assert_eq!(dropped(Reason::NearDuplicate), (1, "6".into()));
    assert!(report.dropped[&Reason::NearDuplicate].examples[0].why.ends_with("in.jsonl:1"));
    let stored = fs::read_to_string(folder.path().join("out.jsonl.report.json")).unwrap();
    assert_eq!(stored, serde_json::to_string_pretty(&report).unwrap());
    assert_eq!(names(folder.path()), ["in.jsonl", "out.jsonl", "out.jsonl.report.json"]);
}

/// `count` sets of 1,000 numbers of which any two neighbours `2i`, `2i + 1` share as many as `index` asks.
fn pairs_of_sets(index: f64, count: u64) -> Vec<(Vec<u64>, Vec<u64>)> {
    let shared = (2000.0 * index / (1.0 + index)).round() as u64;
    let number = |set: u64, i: u64| henge_random::mix(henge_random::mix(7, set), i);
    let set = |pair: u64, side: u64| {
        let own = (shared..1000).map(move |i| number(3 * pair + 1 + side, i));
        let mut all: Vec<u64> = (0..shared).map(|i| number(3 * pair, i)).chain(own).collect();
        all.sort_unstable();
        all
    };
    (0..count).map(|pair| (set(pair, 0), set(pair, 1))).collect()
}

/// Within five standard errors of a binomial share.
fn assert_share(what: &str, hits: usize, n: usize, expected: f64) {
    let error = 5.0 * (expected * (1.0 - expected) / n as f64).sqrt() + 1e-9;
    let share = hits as f64 / n as f64;
    assert!((share - expected).abs() <= error, "{what}: {share} of {n}, expected {expected} +- {error}");
}

/// `1 - (1 - J^r)^b`, and each minimum agrees with probability `J`.
#[test]
fn bands_meet_pairs_by_their_law() {
    for (bands, rows) in [(20, 5), (10, 10)] {
        let hashes = MinHash::new(bands, rows);
        for index in [0.3, 0.5, 0.7, 0.8, 0.9] {
            let (mut met, mut equal, n) = (0, 0, 2000);
            let mut exact = 0.0;
            for (a, b) in pairs_of_sets(index, n as u64) {
                exact = jaccard(&a, &b);
                let (first, second) = (hashes.signature(&a), hashes.signature(&b));
                equal += first.iter().zip(&second).filter(|(x, y)| x == y).count();
                met += usize::from(hashes.bands_of(&a).iter().zip(hashes.bands_of(&b)).any(|(x, y)| *x == y));
            }
            assert!((exact - index).abs() < 2e-3, "{exact}");
            assert_share(&format!("minima at {index}"), equal, n * bands * rows, exact);
            let law = 1.0 - (1.0 - exact.powi(rows as i32)).powi(bands as i32);
            assert!((hashes.detection(exact) - law).abs() < 1e-12);
            assert_share(&format!("{bands} x {rows} bands at {index}"), met, n, law);
        }
    }
    assert!((DuplicateRule::PAPER.jaccard, MinHash::new(20, 5).detection(0.7)) > (0.69, 0.97));
}

proptest! {
    #[test]
    fn jaccard_is_that_of_the_sets(a in "[ab ]{1,40}", b in "[ab ]{1,40}") {
        let set = |text: &str| -> std::collections::BTreeSet<String> {
            let characters: Vec<char> = text.chars().collect();
            if characters.len() < 5 {
                return [text.to_string()].into();
            }
            characters.windows(5).map(|window| window.iter().collect()).collect()
        };
        let (first, second) = (set(&a), set(&b));
        let common = first.intersection(&second).count() as f64;
        let expected = common / first.union(&second).count() as f64;
        prop_assert!((jaccard(&shingles(&a), &shingles(&b)) - expected).abs() < 1e-12);
    }
}

/// Copies with more and more sentences replaced: those of at least the index go, as far as the bands meet
/// them, and none below it does.
#[test]
fn near_duplicates_go_at_the_index_and_not_below() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = Vec::new();
    for original in 0..60u64 {
        let sentences: Vec<String> = (0..40).map(|i| made_up(1000 * original + i, 10)).collect();
        for replaced in [0, 1, 3, 6, 12, 20] {
            let own = |i: usize| made_up(1_000_000 + 1000 * original + i as u64 + 50 * replaced as u64, 10);
            let text = sentences.iter().enumerate().map(|(i, s)| if i < replaced { own(i) } else { s.clone() });
            rows.push(text.collect::<String>());
        }
    }
    let input = folder.path().join("in.jsonl");
    fs::write(&input, rows.iter().map(|text| format!("{}\n", json!({"text": text}))).collect::<String>()).unwrap();
    let output = folder.path().join("out.jsonl");
    let mut options = options(&[&input], &output);
    options.language = None;
    let report = run(&options);
    let kept: Vec<String> = lines(&output).iter().map(|row| row["text"].as_str().unwrap().to_string()).collect();
    let is_kept = |i: usize| kept.contains(&rows[i]);
    let sets: Vec<_> = rows.iter().map(|text| shingles(text)).collect();
    let (mut due, mut gone, mut chance) = (0, 0, 0.0);
    let hashes = MinHash::new(20, 5);
    for i in 0..rows.len() {
        let family = i - i % 6..i;
        // Groups are joined in chains, so what may go is what resembles any of its family, kept or not.
        let nearest = family.map(|other| jaccard(&sets[i], &sets[other])).fold(0.0, f64::max);
        if nearest < 0.7 {
            assert!(is_kept(i), "{i} went at {nearest}");
        } else {
            due += 1;
            gone += usize::from(!is_kept(i));
            chance += hashes.detection(nearest);
        }
    }
    assert!(due > 150, "{due}");
    assert!(gone as f64 >= chance - 10.0, "{gone} of {due} went, {chance} expected");
    assert_eq!(report.dropped[&Reason::NearDuplicate].documents as usize, rows.len() - kept.len());
}

fn unpacked(path: &Path) -> Vec<u8> {
    let (mut bytes, packed) = (Vec::new(), fs::read(path).unwrap());
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).map(|_| ()).unwrap(),
        Some("zst") => bytes = zstd::decode_all(&packed[..]).unwrap(),
        _ => bytes = packed,
    }
    bytes
}

#[test]
fn any_number_of_threads_and_any_packing_gives_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // Several blocks, with duplicates across them.
    let text = |i: u64| made_up(i % 900, 80 + i % 900 % 500);
    let row = |i: u64| format!("{}\n", json!({"n": i, "text": text(i)}));
    let (first, second): (String, String) = ((0..1500).map(row).collect(), (1500..2500).map(row).collect());
    let inputs = ["a.jsonl", "b.jsonl.zst"].map(|name| folder.path().join(name));
    fs::write(&inputs[0], first).unwrap();
    fs::write(&inputs[1], zstd::encode_all(second.as_bytes(), 1).unwrap()).unwrap();
    let mut outcomes = Vec::new();
    for (workers, name) in [(1, "one.jsonl"), (2, "two.jsonl.gz"), (5, "five.jsonl.zst")] {
        let output = folder.path().join(name);
        let mut options = options(&[&inputs[0], &inputs[1]], &output);
        options.workers = workers;
        options.language = None;
        let report = run(&options);
        assert!(report.dropped[&Reason::NearDuplicate].documents > 1000, "{report}");
        outcomes.push((report, unpacked(&output)));
    }
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]));
    assert_eq!(outcomes[0].0.written, outcomes[0].1.iter().filter(|&&b| b == b'\n').count() as u64);
}

#[test]
fn wrong_requests_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (text, broken) = (folder.path().join("a.txt"), folder.path().join("b.jsonl"));
    fs::write(&text, "some text").unwrap();
    fs::write(&broken, format!("{}\n{{\"text\": 3}}\n", json!({"text": PARAGRAPHS[0]}))).unwrap();
    let output = folder.path().join("out.jsonl");
    let mut foreign = options(&[&broken], &output);
    foreign.language = Some("klingon".into());
    for (options, expected) in [
        (options(&[&text], &output), "a.txt is plain text"),
        (options(&[&broken], &output), "b.jsonl:2: broken JSON"),
        (foreign, "no language \"klingon\" is told apart; give one of"),
    ] {
        let error = clean(&options, gpt2(), never(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(names(folder.path()), ["a.txt", "b.jsonl"]);
    }
}

/// The language filter on real English: what it loses of a thousand pages, most of which are English.
#[test]
fn real_english_is_told_as_english() {
    let Some(data) = common::test_data() else { return };
    let input = data.join("megatron-bin-idx/openwebtext-gpt2/openwebtext-1000.decoded.jsonl");
    let folder = tempfile::tempdir().unwrap();
    let report = run(&options(&[&input], &folder.path().join("out.jsonl")));
    println!("{report}");
    assert_eq!(report.documents, 1000);
    let lost = report.dropped.get(&Reason::OtherLanguage).map_or(0, |dropped| dropped.documents);
    assert!(lost < 20, "{report}");
    assert!(report.written > 900, "{report}");
}
