//! The judge, and lines between threads; whole jobs are `tests/failures.rs`'s.

use super::judge::{Evidence, Seen};
use super::*;

fn seen(operation: &str, wait: Option<&str>) -> Seen {
    let standing = Standing { position: 7, operation: operation.to_owned(), wait: wait.map(str::to_owned) };
    Seen { standing, ..Seen::new("north".to_owned()) }
}

fn failed(words: &str, follows: bool) -> Failed {
    Failed { status: 1, words: words.to_owned(), follows }
}

/// The verdict once everything has come.
fn settled(evidence: &Evidence, all: &[Option<&Seen>]) -> Verdict {
    let begun = Instant::now();
    loop {
        match evidence.verdict(all) {
            Some(verdict) => return verdict,
            None => assert!(begun.elapsed() < Duration::from_secs(20), "no verdict"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nothing_is_no_failure() {
    assert_eq!(Evidence::default().verdict(&[]), None);
}

#[test]
fn a_death_is_named_with_where_it_was_though_others_fail_of_it_first() {
    let (one, two) = (seen("B2", None), seen("F1", Some("gradients of rank 1")));
    let mut evidence = Evidence::default();
    evidence.failed(2, failed("connection reset", true), &two);
    evidence.died(1, &one);
    let verdict = settled(&evidence, &[Some(&one), Some(&one), Some(&two)]);
    assert_eq!((verdict.culprits, verdict.status), (vec![1], 1));
    ["rank 1", "north", "operation 7 (B2)", "died"].iter().for_each(|word| assert!(verdict.words.contains(word)));
}

#[test]
fn who_has_said_why_and_left_did_not_die() {
    let one = seen("save of step 4", None);
    let mut evidence = Evidence::default();
    evidence.failed(1, failed("the disk is full", false), &one);
    evidence.died(1, &one);
    evidence.died(2, &one);
    let verdict = settled(&evidence, &[Some(&one), Some(&one), Some(&one)]);
    assert_eq!(verdict.culprits, [1]);
    assert_eq!(verdict.words, "rank 1 (host north) failed at operation 7 (save of step 4): the disk is full");
}

#[test]
fn what_all_say_alike_is_nobodys() {
    let one = seen("step", None);
    let mut evidence = Evidence::default();
    (0..3).for_each(|rank| evidence.failed(rank, failed("the loss is not finite on rank 2", false), &one));
    let verdict = settled(&evidence, &[Some(&one); 3]);
    assert_eq!((verdict.words.as_str(), verdict.culprits), ("the loss is not finite on rank 2", vec![0, 1, 2]));
}

#[test]
fn of_waits_without_a_death_the_one_that_waits_for_nobody_is_named() {
    let (waiting, hanging) = (seen("B1", Some("gradients of stage 1")), seen("F2", None));
    let mut evidence = Evidence::default();
    evidence.failed(0, failed("rank 0 waited 3 s", true), &waiting);
    let verdict = settled(&evidence, &[Some(&waiting), Some(&hanging)]);
    assert_eq!(verdict.culprits, [1]);
    assert!(verdict.words.contains("rank 1 (host north) at operation 7 (F2) waits for nobody"), "{}", verdict.words);
    assert!(verdict.words.contains("rank 0 (host north) at operation 7 (B1) waits for gradients of stage 1"));
}

#[test]
fn who_does_not_know_the_key_is_not_let_in() {
    let (meeting, invitation) = Meeting::open("north").unwrap();
    let mut other = serde_json::to_value(&invitation).unwrap();
    other["key"] = "another job's".into();
    other["addresses"] = serde_json::json!(["127.0.0.1"]);
    let other: Invitation = serde_json::from_value(other).unwrap();
    drop(meeting.start(2, "north".to_owned(), Box::new(|_| {})).unwrap());
    let refused = join(&other, 1, "south".to_owned(), None).map(drop).unwrap_err();
    ["south", "rank 0 on north", "127.0.0.1"].iter().for_each(|word| assert!(refused.contains(word), "{refused}"));
}
