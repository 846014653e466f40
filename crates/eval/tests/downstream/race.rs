//! RACE's folders.

use crate::fixture::message;
use henge_eval::downstream::{ClassScores, Level, Malformed, MultipleChoice, RaceScores, read_race};
use std::path::Path;

fn paper(id: &str, answers: &[&str]) -> serde_json::Value {
    let questions: Vec<String> = (0..answers.len()).map(|number| format!("Question \"{number}\" is _ .")).collect();
    let options: Vec<[&str; 4]> = answers.iter().map(|_| ["one", "two\n lines", "three", "four"]).collect();
    serde_json::json!({"answers": answers, "options": options, "questions": questions,
                       "article": "A  text .\n\nIts end.", "id": id})
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// RACE's layout: a split with its two halves, a file a passage.
fn split(folder: &Path) {
    write(folder, "high/2.txt", &paper("high2.txt", &["A", "D"]).to_string());
    write(folder, "high/10.txt", &paper("high10.txt", &["C"]).to_string());
    write(folder, "middle/5.txt", &paper("middle5.txt", &["B"]).to_string());
    write(folder, "middle/notes.md", "not a paper");
}

#[test]
fn a_split_is_read_with_its_levels() {
    let folder = tempfile::tempdir().unwrap();
    split(folder.path());
    let read = read_race(folder.path(), Malformed::Refuse).unwrap();
    let facts = |q: &MultipleChoice| (q.id.clone(), q.label, q.level);
    let high = Some(Level::High);
    let expected = [
        ("high10.txt:0", 2, high),
        ("high2.txt:0", 0, high),
        ("high2.txt:1", 3, high),
        ("middle5.txt:0", 1, Some(Level::Middle)),
    ];
    assert_eq!(read.examples.iter().map(facts).collect::<Vec<_>>(), expected.map(|(id, l, v)| (id.to_string(), l, v)));
    let first = &read.examples[0];
    assert_eq!((&*first.passage, first.question.as_str()), ("A text. Its end.", "Question \"0\" is _ ."));
    assert_eq!(first.options, ["one", "two lines", "three", "four"]);
    let one = read_race(&folder.path().join("middle/5.txt"), Malformed::Refuse).unwrap();
    assert_eq!(one.examples, read.examples[3..]);
    // Right, right, wrong, wrong: high schools two of three, middle schools none of one.
    let scores = RaceScores::new(&[2, 0, 0, 0], &read.examples);
    let part = |examples, accuracy| ClassScores { examples, accuracy, f1: None };
    assert_eq!(scores, RaceScores { all: part(4, 0.5), middle: Some(part(1, 0.0)), high: Some(part(3, 2.0 / 3.0)) });
}

#[test]
fn malformed_papers_are_refused_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut no_answer = paper("a", &["A", "E"]);
    write(folder.path(), "a.txt", &serde_json::to_string_pretty(&no_answer).unwrap());
    let lines = std::fs::read_to_string(folder.path().join("a.txt")).unwrap();
    let line = 1 + lines.lines().position(|line| line.contains("Question \\\"1\\\"")).unwrap();
    let refused = message(read_race(folder.path(), Malformed::Refuse), folder.path());
    let expected = "question 2: its answer is \"E\"; expected A, B, C or D; repair it or remove the question";
    assert_eq!(refused, format!("a.txt:{line}: {expected}"));

    no_answer["options"][1] = serde_json::json!(["one", "two"]);
    write(folder.path(), "a.txt", &no_answer.to_string());
    let read = read_race(folder.path(), Malformed::Skip).unwrap();
    assert_eq!((read.examples.len(), read.skipped.len()), (1, 1));
    assert!(read.skipped[0].problem.starts_with("question 2: 2 options; expected 4"));

    let cases = [
        ("{\n\"article\": \"a\",\n\"questions\": 3}", "a.txt:3: invalid type: integer `3`"),
        ("{}", "a.txt:1: missing field `article`"),
        (
            &paper("a", &["A"]).to_string().replace("[\"A\"]", "[]"),
            "a.txt:1: 1 questions, 1 lists of options and 0 answers",
        ),
        (
            &paper("a", &["A"]).to_string().replace("three", " "),
            "a.txt:1: question 1: the question or an option is empty",
        ),
    ];
    for (text, expected) in cases {
        write(folder.path(), "a.txt", text);
        let refused = message(read_race(folder.path(), Malformed::Refuse), folder.path());
        assert!(refused.starts_with(expected), "{refused}");
    }
    let none = tempfile::tempdir().unwrap();
    assert!(message(read_race(none.path(), Malformed::Refuse), folder.path()).contains("there is no example in it"));
}
