//! All tasks in one form: a model that knows the truth scores full marks, one that knows nothing does not.

use crate::fixture::{file, spelling_tokenizer};
use henge_eval::downstream::{
    Encoded, Head, Malformed, Packer, Sliding, Squad, Target, Task, TaskData, TaskForm, TaskReport, Truncation,
};
use std::path::Path;

/// The logits of a model that is sure of the truth.
fn oracle(head: Head, encoded: &Encoded) -> Vec<f32> {
    let one_hot = |width: usize, at: usize| (0..width).map(|column| f32::from(u8::from(column == at))).collect();
    match (head, encoded.target) {
        (Head::Classes(classes), Target::Class(class)) => one_hot(classes, class),
        (Head::Choice, Target::Class(option)) => one_hot(encoded.sequences.len(), option),
        (Head::Span, Target::Span { start, end }) => {
            let tokens = encoded.sequences[0].tokens.len();
            let (start, end): (Vec<f32>, Vec<f32>) = (one_hot(tokens, start), one_hot(tokens, end));
            // Four rows of padding behind the window.
            start.into_iter().zip(end).flat_map(|(start, end)| [5.0 * start, 5.0 * end]).chain([9.0; 8]).collect()
        }
        (head, target) => panic!("a {target:?} under a {head:?}"),
    }
}

fn scores(form: &TaskForm, path: &Path, length: usize) -> (TaskData, TaskReport, TaskReport) {
    let tokenizer = spelling_tokenizer();
    let mut packer = Packer::new(&tokenizer, length, Truncation::LongestFirst).unwrap();
    let data = form.read(path, &mut packer, Malformed::Refuse).unwrap();
    let encoded: Vec<Encoded> = (0..data.len()).map(|item| data.encode(item, &mut packer).unwrap()).collect();
    let known: Vec<Vec<f32>> = encoded.iter().map(|encoded| oracle(form.head(), encoded)).collect();
    let unknown: Vec<Vec<f32>> = known.iter().map(|logits| vec![0.0; logits.len()]).collect();
    let reports = (data.report(&known), data.report(&unknown));
    (data, reports.0, reports.1)
}

#[test]
fn the_papers_tasks_have_their_heads() {
    let heads = Task::ALL.map(|task| task.form().head());
    assert_eq!(heads, [Head::Classes(3), Head::Classes(2), Head::Span, Head::Span, Head::Choice]);
}

#[test]
fn pairs_are_scored_by_class() {
    let table = "id\tquestion1\tquestion2\tis_duplicate\n0\ta\tb\t1\n1\tc\td\t0\n2\te\tf\t1\n";
    let (_folder, path) = file("dev.tsv", table);
    let form = Task::Qqp.form();
    let (data, known, unknown) = scores(&form, &path, 16);
    assert_eq!((data.len(), known.score()), (3, 1.0));
    // Always class 0: one right of three, no duplicate found.
    let TaskReport::Classes(unknown) = unknown else { panic!("{unknown:?}") };
    assert_eq!((unknown.accuracy, unknown.f1), (1.0 / 3.0, Some(0.0)));
    assert_eq!(serde_json::to_value(known).unwrap(), serde_json::json!({"examples": 3, "accuracy": 1.0, "f1": 1.0}));
}

#[test]
fn choices_are_scored_by_option() {
    let paper = r#"{"article": "x y", "questions": ["q _", "r"], "answers": ["D", "A"], "id": "1",
                    "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]]}"#;
    let (folder, _) = file("high/1.txt", paper);
    let (data, known, unknown) = scores(&Task::Race.form(), folder.path(), 16);
    assert_eq!((data.len(), known.score(), unknown.score()), (2, 1.0, 0.5));
}

#[test]
fn spans_are_scored_by_their_text_over_windows() {
    let passage = "The tower was opened in 1889 and it was painted again in the year 1968 by a painter.";
    let answer = |text: &str| serde_json::json!([{"text": text, "answer_start": passage.find(text).unwrap()}]);
    let qas = serde_json::json!([
        {"id": "a", "question": "Opened?", "answers": answer("1889")},
        {"id": "b", "question": "Painted?", "answers": answer("the year 1968")},
        {"id": "c", "question": "Sold?", "answers": [], "is_impossible": true}
    ]);
    let squad = serde_json::json!({"data": [{"paragraphs": [{"context": passage, "qas": qas}]}]});
    let (_folder, path) = file("dev.json", &squad.to_string());
    let form = TaskForm::Spans(Squad::V2, Sliding { step: 10, longest_question: 6 });
    let (data, known, unknown) = scores(&form, &path, 40);
    assert!(data.len() > 6, "{} windows of three questions", data.len());
    let TaskReport::Squad(report) = &known else { panic!("{known:?}") };
    assert_eq!((report.all.exact_match, report.all.f1, report.all.questions), (100.0, 100.0, 3), "{report:?}");
    assert!(unknown.score() < 0.5, "{unknown:?}");
}
