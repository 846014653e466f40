//! SQuAD's scores against the official definitions.
//!
//! Expected numbers were computed once by a Python program that states the definitions of the two published
//! evaluation scripts (`normalize_answer`, `compute_exact`, `compute_f1`, `metric_max_over_ground_truths`,
//! `find_best_thresh`) for these cases, which are our own.

use henge_eval::downstream::{
    Answer, Candidate, Prediction, SpanMeans, SpanQuestion, SpanScore, Squad, best_thresholds, normalise_answer,
};

fn answers(texts: &[&str]) -> Vec<Answer> {
    texts.iter().map(|text| Answer { text: text.to_string(), start: 0 }).collect()
}

#[test]
fn texts_are_normalised_as_the_scripts_do() {
    let cases = [
        ("The  quick, brown-fox (an animal) a.k.a. \"the\" fox!", "quick brownfox animal aka fox"),
        ("the_a an-the", "thea anthe"),
        ("A\tthe\nB", "b"),
        ("\u{ab}the\u{bb} end", "\u{ab} \u{bb} end"),
        ("I'm an the a B", "im b"),
        ("theatre the2 2the the", "theatre the2 2the"),
        ("", ""),
    ];
    for (text, expected) in cases {
        assert_eq!(normalise_answer(text), expected, "{text:?}");
    }
}

#[test]
fn exact_match_and_f1_are_the_scripts() {
    // Prediction, accepted answers, exact match and F1 of 1.1, of 2.0.
    type Case<'a> = (&'a str, &'a [&'a str], (f64, f64), (f64, f64));
    let cases: [Case<'_>; 15] = [
        ("The Eiffel Tower", &["the Eiffel tower."], (1.0, 1.0), (1.0, 1.0)),
        ("a cat and a dog", &["cat, dog", "the dog"], (0.0, 0.8), (0.0, 0.8)),
        ("in 1882", &["1882", "the year 1882"], (0.0, 0.6666666666666666), (0.0, 0.6666666666666666)),
        (
            "an apple a day keeps",
            &["Apple-a-day keeps the doctor away"],
            (0.0, 0.28571428571428575),
            (0.0, 0.28571428571428575),
        ),
        ("the", &["the"], (1.0, 0.0), (1.0, 1.0)),
        ("the", &["!", "the end"], (1.0, 0.0), (0.0, 0.0)),
        ("", &["Paris"], (0.0, 0.0), (0.0, 0.0)),
        ("St. John's  College", &["St John\u{2019}s College", "st johns college"], (1.0, 1.0), (1.0, 1.0)),
        ("theatre an A-team", &["the theatre: an ateam"], (1.0, 1.0), (1.0, 1.0)),
        ("to be or not to be", &["be to not be", "to to to be"], (0.0, 0.8), (0.0, 0.8)),
        ("the\u{2013}end of a line", &["\u{2013}end of line"], (1.0, 1.0), (1.0, 1.0)),
        ("Stra\u{df}e \u{c9}cole", &["stra\u{df}e \u{e9}cole"], (1.0, 1.0), (1.0, 1.0)),
        ("$5.00 million", &["5 million", "500 million"], (1.0, 1.0), (1.0, 1.0)),
        ("x\u{a0}y\u{2003}the z", &["x y z"], (1.0, 1.0), (1.0, 1.0)),
        ("a", &["an"], (1.0, 0.0), (1.0, 1.0)),
    ];
    for (prediction, truths, one, two) in cases {
        for (version, (exact_match, f1)) in [(Squad::V1, one), (Squad::V2, two)] {
            let found = version.score(prediction, &answers(truths));
            assert_eq!(found, SpanScore { exact_match, f1 }, "{prediction:?} {truths:?} {version:?}");
        }
    }
    let right = SpanScore { exact_match: 1.0, f1: 1.0 };
    assert_eq!(Squad::V2.score("", &[]), right, "no answer, and none was given");
    assert_eq!(Squad::V2.score("Paris", &[]), SpanScore::default());
}

/// Accepted answers, the best answer and the null difference of ten questions.
const TEN: [(&[&str], &str, f64); 10] = [
    (&["Paris"], "Paris", -5.0),
    (&["the river Seine"], "Seine", -3.5),
    (&[], "a bridge", -2.0),
    (&["1889"], "in 1889", -1.0),
    (&[], "Gustave", 0.5),
    (&["iron"], "wood", 1.0),
    (&["three levels"], "three levels", 2.0),
    (&[], "Rome", 4.0),
    (&["Lyon"], "the Lyon", 3.0),
    (&[], "x", -0.25),
];

fn ten() -> (Vec<SpanQuestion>, Vec<Prediction>) {
    let question = |(truths, ..): &(&[&str], _, _)| SpanQuestion {
        id: String::new(),
        passage: "".into(),
        question: String::new(),
        answers: answers(truths),
    };
    let prediction = |&(_, text, null_score): &(_, &str, f64)| Prediction {
        candidates: vec![Candidate { text: text.to_string(), score: 0.0, probability: 1.0 }],
        null_score,
    };
    (TEN.iter().map(question).collect(), TEN.iter().map(prediction).collect())
}

fn assert_close(found: Option<SpanMeans>, questions: usize, exact_match: f64, f1: f64) {
    let found = found.expect("there are such questions");
    assert_eq!(found.questions, questions);
    assert!((found.exact_match - exact_match).abs() < 1e-9 && (found.f1 - f1).abs() < 1e-9, "{found:?}");
}

#[test]
fn a_files_scores_and_best_thresholds_are_the_scripts() {
    let (questions, predictions) = ten();
    let report = Squad::V2.report(&questions, &predictions, 0.0);
    assert_close(Some(report.all), 10, 30.0, 43.33333333333333);
    assert_close(report.answered, 6, 16.666666666666668, 38.888888888888886);
    assert_close(report.unanswered, 4, 50.0, 50.0);
    let best = report.best.unwrap();
    assert!((best.exact_match - 50.0).abs() < 1e-9 && (best.f1 - 56.66666666666667).abs() < 1e-9, "{best:?}");
    assert_eq!((best.exact_match_threshold, best.f1_threshold), (-5.0, -3.5));
    // What is promised is what is then reached.
    let reached = Squad::V2.report(&questions, &predictions, best.f1_threshold).all;
    assert!((reached.f1 - best.f1).abs() < 1e-9);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        (&json["version"], &json["questions"], &json["answered"]["questions"]),
        (&"2.0".into(), &10.into(), &6.into())
    );
}

#[test]
fn a_threshold_below_all_stands_for_giving_no_answer() {
    let (mut questions, predictions) = ten();
    questions.iter_mut().for_each(|question| question.answers.clear());
    let best = best_thresholds(&questions, &predictions);
    assert_eq!((best.exact_match, best.f1), (100.0, 100.0));
    let reached = Squad::V2.report(&questions, &predictions, best.f1_threshold);
    assert_eq!((reached.all.f1, reached.answered), (100.0, None));
}

#[test]
fn one_point_one_always_gives_the_best_answer() {
    let (mut questions, mut predictions) = ten();
    questions.truncate(2);
    predictions.truncate(2);
    predictions[0].null_score = 100.0;
    let report = Squad::V1.report(&questions, &predictions, 0.0);
    // "Seine" of "river Seine": precision 1, recall 1/2.
    assert_close(Some(report.all), 2, 50.0, 100.0 * (1.0 + 2.0 / 3.0) / 2.0);
    assert_eq!((report.best, report.threshold, report.unanswered), (None, None, None));
}
