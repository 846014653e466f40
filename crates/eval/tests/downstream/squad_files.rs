//! SQuAD's files.

use crate::fixture::{file, message, test_data};
use henge_eval::downstream::{Answer, Malformed, Squad};

#[test]
fn the_published_layouts_are_read() {
    let Some(data) = test_data() else { return };
    let folder = data.join("squad-sample");
    let one = Squad::V1.read(&folder.join("allennlp_squad.json"), Malformed::Refuse).unwrap().examples;
    assert_eq!(one.iter().map(|question| question.answers.len()).collect::<Vec<_>>(), [1, 3, 1, 1, 1]);
    assert_eq!(one[0].answers, [Answer { text: "Saint Bernadette Soubirous".into(), start: 515 }]);
    let two = Squad::V2.read(&folder.join("allennlp_squad2.json"), Malformed::Refuse).unwrap().examples;
    assert_eq!(two.iter().map(|question| question.answers.len()).collect::<Vec<_>>(), [0, 1, 3, 1, 1, 1]);
    let refused = message(Squad::V1.read(&folder.join("allennlp_squad2.json"), Malformed::Refuse), &folder);
    let expected = "question 5733be284776f41900661182: no answer; add one, or read the file as SQuAD 2.0";
    assert!(refused.starts_with("allennlp_squad2.json:") && refused.ends_with(expected), "{refused}");
}

/// Two questions on one passage; characters before the answers have two and four bytes.
fn squad(first: &str, second: &str) -> String {
    format!(
        "{{\"version\": \"v2.0\", \"data\": [{{\"title\": \"x\", \"paragraphs\": [{{\n\
         \"context\": \"Caf\u{e9} \u{1f980} opened in 1882. It closed in 1990.\",\n\"qas\": [\n\
         {{\"id\": \"q1\", \"question\": \"When?\", {first}}},\n\
         {{\"id\": \"q2\", \"question\": \"Who?\", {second}}}\n]}}]}}]}}"
    )
}

const ANSWERED: &str = "\"answers\": [{\"text\": \"1882\", \"answer_start\": 17}]";
const IMPOSSIBLE: &str = "\"answers\": [], \"is_impossible\": true";

#[test]
fn places_in_characters_become_bytes() {
    let (_folder, path) = file("dev.json", &squad(ANSWERED, IMPOSSIBLE));
    let read = Squad::V2.read(&path, Malformed::Refuse).unwrap().examples;
    assert_eq!(read[0].answers, [Answer { text: "1882".into(), start: 21 }]);
    assert_eq!(&read[0].passage[21..25], "1882");
    assert!(read[1].answers.is_empty());
}

#[test]
fn what_is_malformed_is_refused_with_its_line_and_a_way_out() {
    let elsewhere = "\"answers\": [{\"text\": \"1990\", \"answer_start\": 17}]";
    let nowhere = "\"answers\": [{\"text\": \"1991\", \"answer_start\": 99}]";
    let both = "\"answers\": [{\"text\": \"1882\", \"answer_start\": 17}], \"is_impossible\": true";
    let cases = [
        (
            Squad::V1,
            elsewhere,
            "answer \"1990\" does not stand at character 17 of its passage; \
             it first stands at character 36; repair `answer_start`",
        ),
        (
            Squad::V2,
            nowhere,
            "answer \"1991\" does not stand at character 99 of its passage; \
             it stands nowhere in the passage; remove or repair it",
        ),
        (Squad::V2, "\"answers\": []", "no answer and not marked impossible; add answers or `is_impossible`"),
        (Squad::V1, "\"answers\": []", "no answer; add one, or read the file as SQuAD 2.0"),
        (Squad::V2, both, "marked impossible, but it has answers; remove one of the two"),
        (Squad::V1, "\"answers\": [{\"text\": \" \", \"answer_start\": 4}]", "an answer is empty; remove it"),
    ];
    for (version, second, expected) in cases {
        let (folder, path) = file("dev.json", &squad(ANSWERED, second));
        let refused = message(version.read(&path, Malformed::Refuse), folder.path());
        assert_eq!(refused, format!("dev.json:5: question q2: {expected}"));
        let read = version.read(&path, Malformed::Skip).unwrap();
        assert_eq!((read.examples.len(), read.skipped[0].line), (1, 5));
    }
    let (folder, path) = file("dev.json", &squad(ANSWERED, "\"answer\": []"));
    let refused = message(Squad::V1.read(&path, Malformed::Skip), folder.path());
    assert!(refused.starts_with("dev.json:5: missing field `answers` at line 5"), "{refused}");
    let (folder, path) = file("dev.json", "{\"data\": []}");
    assert!(message(Squad::V1.read(&path, Malformed::Refuse), folder.path()).contains("there is no example in it"));
}
