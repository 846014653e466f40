//! Answers from the scores of tokens.

use crate::fixture::tokenizer;
use henge_eval::downstream::{
    Packer, Prediction, Sliding, SpanQuestion, SpanSearch, Squad, Truncation, Window, WindowScores,
};
use henge_random::fill_normal;
use std::slice::from_ref;

const PASSAGE: &str = "Ann met Bob in Rome , and Bob met Ann";

fn question() -> SpanQuestion {
    SpanQuestion { id: "q".into(), passage: PASSAGE.into(), question: "Who ?".into(), answers: Vec::new() }
}

fn windows(length: usize, step: usize) -> Vec<Window> {
    let tokenizer = tokenizer(["ann", "met", "bob", "in", "rome", ",", "and", "who", "?"]);
    let mut packer = Packer::new(&tokenizer, length, Truncation::LongestFirst).unwrap();
    packer.windows(&[question()], Sliding { step, longest_question: 8 }).unwrap()
}

/// Searches with the logits of all windows, one window's behind the other's.
fn answer(search: SpanSearch, windows: &[Window], start: &[Vec<f32>], end: &[Vec<f32>]) -> Prediction {
    let scores = windows.iter().zip(start.iter().zip(end));
    let scores: Vec<WindowScores<'_>> =
        scores.map(|(window, (start, end))| WindowScores { window, start, end }).collect();
    search.answer(&question(), &scores)
}

/// `[s]` zeros with the given values.
fn logits(size: usize, values: &[(usize, f32)]) -> Vec<f32> {
    let mut logits = vec![0.0; size];
    values.iter().for_each(|&(at, value)| logits[at] = value);
    logits
}

#[test]
fn the_best_span_is_found_and_never_in_the_question_or_backwards() {
    let windows = windows(16, 1);
    assert_eq!((windows.len(), windows[0].first, windows[0].places.len()), (1, 4, 10));
    // The highest start is in the question, the highest end before the best start.
    let start = logits(15, &[(0, 1.5), (1, 9.0), (7, 4.0), (8, 3.0)]);
    let end = logits(15, &[(0, 1.0), (4, 9.0), (8, 5.0), (9, 1.0)]);
    let found = answer(SpanSearch { best: 3, longest_answer: 30 }, &windows, from_ref(&start), from_ref(&end));
    let texts: Vec<(&str, f64)> = found.candidates.iter().map(|c| (c.text.as_str(), c.score)).collect();
    // Tokens 4 and 7 are "Ann" and "in"; a start without score with the end at "Ann" scores 9 as well.
    assert_eq!(texts, [("Ann", 9.0), ("in Rome", 9.0), ("Rome", 8.0)]);
    assert_eq!((found.null_score, found.null_difference()), (2.5, -6.5));
    assert_eq!((found.answer_or_none(-6.5), found.answer_or_none(-6.6)), ("Ann", ""));
    let weights = [1.0, 1.0, (-1f64).exp()];
    for (candidate, weight) in found.candidates.iter().zip(weights) {
        assert!((candidate.probability - weight / weights.iter().sum::<f64>()).abs() < 1e-12);
    }
    let short = answer(SpanSearch { best: 3, longest_answer: 1 }, &windows, &[start], &[end]);
    assert_eq!(short.candidates[1].text, "Rome");
}

#[test]
fn a_text_that_stands_twice_is_one_candidate() {
    let windows = windows(16, 1);
    let ones = logits(15, &[(6, 5.0), (11, 4.0)]);
    let found = answer(SpanSearch { best: 2, longest_answer: 1 }, &windows, from_ref(&ones), from_ref(&ones));
    let texts: Vec<(&str, f64)> = found.candidates.iter().map(|c| (c.text.as_str(), c.score)).collect();
    assert_eq!(texts, [("Bob", 10.0), ("Ann", 0.0)], "of equal ones the first in the passage");
}

#[test]
fn an_answer_begins_where_its_context_is_best_and_no_answer_is_the_least_of_all_windows() {
    let windows = windows(10, 3);
    assert_eq!(windows.len(), 3);
    // "in" is the fourth token: one from the end of the first window, the first of the second.
    assert!(windows[0].is_best_context[3] && !windows[1].is_best_context[0]);
    let start = [logits(10, &[(0, 3.0)]), logits(10, &[(0, 1.0), (4, 9.0)]), logits(9, &[(0, 2.0)])];
    let end = [logits(10, &[(0, 3.0)]), logits(10, &[(0, 1.0), (4, 9.0), (6, 1.0)]), logits(9, &[(0, 0.5)])];
    let found = answer(SpanSearch { best: 1, longest_answer: 30 }, &windows, &start, &end);
    assert_eq!((found.answer(), found.candidates[0].score), ("Rome ,", 1.0), "not \"in\", shown better elsewhere");
    assert_eq!(found.null_score, 2.0);
}

/// The definition in the plainest words: all windows, all pairs, all texts.
fn plain_best(windows: &[Window], start: &[Vec<f32>], end: &[Vec<f32>], longest: usize) -> Vec<(String, f64)> {
    let mut all: Vec<(f64, u32, u32)> = Vec::new();
    for (at, window) in windows.iter().enumerate() {
        for first in 0..window.places.len() {
            for last in first..window.places.len() {
                if last - first < longest && window.is_best_context[first] {
                    let score = f64::from(start[at][window.first + first]) + f64::from(end[at][window.first + last]);
                    all.push((score, window.places[first].start, window.places[last].end));
                }
            }
        }
    }
    all.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap());
    let mut best: Vec<(String, f64)> = Vec::new();
    for (score, from, to) in all {
        let text = &PASSAGE[from as usize..to as usize];
        if !best.iter().any(|(known, _)| known == text) {
            best.push((text.to_string(), score));
        }
    }
    best
}

#[test]
fn random_scores_give_what_a_plain_search_gives() {
    for (case, (length, step)) in (0..50u64).flat_map(|case| [(case, (16, 1)), (case, (9, 2)), (case, (7, 1))]) {
        let windows = windows(length, step);
        let random = |part: u64| -> Vec<Vec<f32>> {
            let rows = windows.iter().enumerate().map(|(at, window)| {
                let mut row = vec![0.0; window.sequence.tokens.len()];
                fill_normal(case, part + 100 * at as u64, 1.0, &mut row);
                row
            });
            rows.collect()
        };
        let (start, end) = (random(0), random(50));
        let found = answer(SpanSearch { best: 5, longest_answer: 3 }, &windows, &start, &end);
        let found: Vec<(String, f64)> = found.candidates.into_iter().map(|c| (c.text, c.score)).collect();
        assert_eq!(found, plain_best(&windows, &start, &end, 3)[..5], "case {case} of windows of {length}");
    }
}

#[test]
fn a_prediction_without_answer_is_right_where_there_is_none() {
    let windows = windows(16, 1);
    let none = logits(15, &[(0, 5.0)]);
    let found = answer(SpanSearch::BERT, &windows, from_ref(&none), from_ref(&none));
    let report = Squad::V2.report(&[question()], &[found], 0.0);
    assert_eq!((report.all.exact_match, report.unanswered.map(|part| part.questions)), (100.0, Some(1)));
}
