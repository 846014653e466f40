//! The protocols: published counts, and scores against the definition, target by target.

mod common;

use common::{best, engine, layout, logits_one_by_one, loss, open, test_data};
use henge_cpu::{Fast, Rounding};
use henge_data::tokenizer::Tokenizer;
use henge_eval::{Choices, Lambada, PlainText, Scoring, Tokens, Unseen, WikiText, score};
use henge_model::Score;
use henge_spec::Layout;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A GPT with learnt positions, and a Llama with rotary ones, grouped heads and no biases.
const FOLDERS: [&str; 2] = ["data/tiny-random-gpt2", "data/stories260K"];

/// 245,566 words, 270,329 tokens, 270,328 targets in 8,417 windows (1909.08053, section 5.3).
#[test]
fn wikitext103_has_the_published_counts() {
    let Some(file) = test_data("data/wikitext103/wiki.test.tokens") else { return };
    let raw = std::fs::read_to_string(file).unwrap();
    let gpt2 = Tokenizer::load("gpt2").unwrap();
    let (test, tokens) = WikiText::prepare(&raw, &gpt2, 1024, 32, None).unwrap();
    assert_eq!((test.words, test.tokens), (245_566, 270_329));
    assert_eq!(tokens.passages.len(), 8_417);
    assert_eq!(tokens.passages.iter().map(|window| window.scored).sum::<usize>(), 270_328);
    // A uniform guess over the vocabulary: exp(log V * targets / (words - 1)).
    let guess = Score { loss: 50_257f64.ln(), is_best: false };
    let scores: Vec<_> = tokens.passages.iter().map(|window| vec![guess; window.scored]).collect();
    let expected = (50_257f64.ln() * 270_328.0 / 245_565.0).exp();
    assert!((test.report(&scores).perplexity / expected - 1.0).abs() < 1e-9);
}

#[test]
fn lambada_has_5153_examples() {
    let Some(file) = test_data("data/lambada/lambada_test.jsonl") else { return };
    let gpt2 = Tokenizer::load("gpt2").unwrap();
    let (test, tokens) = Lambada::prepare(&file, &gpt2, 1024, None).unwrap();
    let right = |scored| vec![Score { loss: 0.0, is_best: true }; scored];
    let scores: Vec<_> = tokens.passages.iter().map(|passage| right(passage.scored)).collect();
    let report = test.report(&scores);
    assert_eq!((report.examples, report.strict_correct, report.last_token_correct), (5_153, 5_153, 5_153));
}

fn scores(folder: &Path, tokens: &Tokens, layout: Layout, batch: usize) -> Vec<Vec<Score>> {
    let job = Scoring {
        loaded: open(folder),
        layout,
        tokens: tokens.ids.clone(),
        passages: tokens.passages.clone(),
        batch,
        progress: Arc::new(Unseen),
    };
    score(job, engine(&layout), |_| Fast::new(1, Rounding::Exact)).unwrap()
}

/// Every target given exactly what stands before it in its passage, each run alone.
fn slow_scores(folder: &Path, tokens: &Tokens) -> Vec<Vec<Score>> {
    let of_passage = |passage: &henge_eval::Passage| {
        let ids = &tokens.ids[passage.tokens.clone()];
        let targets: Vec<usize> = (ids.len() - passage.scored..ids.len()).collect();
        let prefixes: Vec<_> = targets.iter().map(|&target| ids[..target].to_vec()).collect();
        let logits = logits_one_by_one(folder, &prefixes);
        let score = |(logits, &target): (&Vec<f32>, &usize)| Score {
            loss: loss(logits, ids[target]),
            is_best: best(logits) == ids[target],
        };
        logits.iter().zip(&targets).map(score).collect()
    };
    tokens.passages.iter().map(of_passage).collect()
}

/// At several layouts and batches, within what float32 leaves of the double precision.
fn assert_by_definition(folder: &Path, tokens: &Tokens) {
    let expected = slow_scores(folder, tokens);
    for (t, p, d, batch) in [(1, 1, 1, 1), (1, 1, 1, 4), (2, 5, 1, 2), (2, 1, 2, 3), (1, 5, 2, 1)] {
        let found = scores(folder, tokens, layout(t, p, d), batch);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            let near = (found.loss - expected.loss).abs() < 2e-5 * (1.0 + expected.loss);
            assert!(near && found.is_best == expected.is_best, "t={t} p={p} d={d}: {found:?}, {expected:?}");
        }
    }
}

fn small() -> Option<[(PathBuf, Tokenizer); 2]> {
    let tokenizer = test_data("data/stories260K/tokenizer.json")?;
    let both = FOLDERS.map(|folder| {
        let folder = test_data(folder).expect("beside the tokenizer");
        let tokenizer = open(&folder).tokenizer(tokenizer.to_str()).unwrap();
        (folder, tokenizer)
    });
    Some(both)
}

#[test]
fn windowed_perplexity_is_the_definition() {
    let (Some(models), Some(file)) = (small(), test_data("data/wikitext103/wiki.test.tokens")) else {
        return;
    };
    let raw: String = std::fs::read_to_string(file).unwrap().chars().take(6_000).collect();
    for (folder, tokenizer) in models {
        let (test, tokens) = WikiText::prepare(&raw, &tokenizer, 64, 16, Some(150)).unwrap();
        assert_by_definition(&folder, &tokens);
        let expected: f64 = slow_scores(&folder, &tokens).iter().flatten().map(|score| score.loss).sum();
        let report = test.report(&scores(&folder, &tokens, layout(1, 1, 1), 4));
        let words = (test.words - 1) as f64 * 149.0 / (test.tokens - 1) as f64;
        assert!((report.perplexity / (expected / words).exp() - 1.0).abs() < 1e-4, "{report:?}");
        assert!(report.is_part && report.targets == 149);
        let (text, tokens) = PlainText::prepare("text", &raw[..400], &tokenizer, 64, 64).unwrap();
        assert_by_definition(&folder, &tokens);
        let report = text.report(&scores(&folder, &tokens, layout(1, 1, 1), 2));
        let bits = report.loss_per_token * report.targets as f64 / 400.0 / std::f64::consts::LN_2;
        assert!((report.bits_per_byte - bits).abs() < 1e-9);
    }
}

#[test]
fn strict_lambada_is_the_definition() {
    let (Some(models), Some(file)) = (small(), test_data("data/lambada/lambada_test.jsonl")) else {
        return;
    };
    for (folder, tokenizer) in models {
        let (test, tokens) = Lambada::prepare(&file, &tokenizer, 512, Some(4)).unwrap();
        assert_by_definition(&folder, &tokens);
        let report = test.report(&scores(&folder, &tokens, layout(1, 1, 1), 2));
        // Strict: every token of the last word is the first choice.
        let slow = slow_scores(&folder, &tokens);
        let right = slow.iter().filter(|word| word.iter().all(|score| score.is_best)).count();
        assert_eq!((report.examples, report.strict_correct), (4, right));
    }
}

#[test]
fn the_likeliest_ending_wins_by_each_measure() {
    let Some([(folder, tokenizer), _]) = small() else { return };
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("choices.jsonl");
    let lines = [
        r#"{"ctx": "One day a girl", "endings": ["went out", "saw a very big red ball in the park", "sat"], "label": 1}"#,
        r#"{"context": "The dog was", "endings": ["happy", "sad and it ran away"], "label": "0"}"#,
    ];
    std::fs::write(&file, lines.join("\n")).unwrap();
    let (test, tokens) = Choices::prepare(&file, &tokenizer, 512, None).unwrap();
    assert_by_definition(&folder, &tokens);
    // Losses that make ending 1 of the first question right only by the mean, and both
    // measures right on the second.
    let made = |index: usize, scored: usize| {
        let sum = [3.0, 6.0, 2.0, 1.0, 50.0][index];
        vec![Score { loss: sum / scored as f64, is_best: false }; scored]
    };
    let scores: Vec<_> = tokens.passages.iter().enumerate().map(|(i, p)| made(i, p.scored)).collect();
    let report = test.report(&scores);
    assert_eq!((report.accuracy, report.accuracy_per_token, report.accuracy_per_byte), (0.5, 1.0, 1.0));
}

#[test]
fn wrong_lines_are_named() {
    let gpt2 = Tokenizer::load("gpt2").unwrap();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("task.jsonl");
    let good = r#"{"text": "all is well", "ctx": "all", "endings": ["is", "was"], "label": 0}"#;
    let fails = |bad: &str, expected: &str, is_choice: bool| {
        std::fs::write(&file, format!("{good}\n\n{bad}\n")).unwrap();
        let words = if is_choice {
            Choices::prepare(&file, &gpt2, 20, None).err().unwrap().to_string()
        } else {
            Lambada::prepare(&file, &gpt2, 20, None).err().unwrap().to_string()
        };
        assert!(words.contains("task.jsonl:3") && words.contains(expected), "{words}");
    };
    fails("{", "not JSON", false);
    fails(r#"{"words": "x"}"#, "`text`", false);
    fails(r#"{"text": "word"}"#, "last word", false);
    fails(&format!(r#"{{"text": "{}"}}"#, "word ".repeat(30)), "at most 21", false);
    fails(r#"{"ctx": "all", "endings": ["is"], "label": 0}"#, "`endings`", true);
    fails(r#"{"ctx": "all", "endings": ["is", "was"], "label": 2}"#, "`label`", true);
    fails(r#"{"ctx": "all", "endings": ["is", "was"]}"#, "`label`", true);
    std::fs::write(&file, "\n").unwrap();
    assert!(Choices::prepare(&file, &gpt2, 20, None).err().unwrap().to_string().contains("no example"));
}
