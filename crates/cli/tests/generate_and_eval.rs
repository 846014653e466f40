//! `henge generate` and `henge eval` through the binary.

mod common;

use common::{Place, number, test_data};
use serde_json::Value;

const MODEL: &str = "data/tiny-random-gpt2";

#[test]
fn prompts_of_a_file_are_continued_the_same_at_every_layout() {
    let Some(model) = test_data(MODEL) else { return };
    let (place, model) = (Place::new(), model.display().to_string());
    let golden = std::fs::read_to_string(format!("{model}/golden_greedy.json")).expect("the golden file");
    let golden: Value = serde_json::from_str(&golden).expect("JSON");
    let line = |prompt: &Value| format!("{{\"tokens\": {prompt}}}\n");
    let lines: String = golden["prompts"].as_array().expect("a list").iter().map(line).collect();
    place.write("prompts.jsonl", lines);
    for layout in ["t=1", "t=2,p=5"] {
        let arguments = ["--prompts", "prompts.jsonl", "--max-tokens", "6", "--layout", layout, "--json"];
        let text = place.succeed(&[&["generate", "--checkpoint", &model], &arguments[..]].concat());
        let document: Value = serde_json::from_str(&text).expect("one JSON document");
        for (index, expected) in golden["expected"].as_array().expect("a list").iter().enumerate() {
            let found = &document["completions"][index];
            let list = |key: &str| found[key].as_array().expect("a list").clone();
            assert_eq!(&Value::Array([list("prompt_tokens"), list("tokens")].concat()), expected, "{layout}");
            assert_eq!(found["finish"], "max_tokens");
        }
    }
}

#[test]
fn evaluations_state_their_protocol_and_do_not_depend_on_the_layout() {
    let (Some(model), Some(data)) = (test_data(MODEL), test_data("data")) else { return };
    let (place, model) = (Place::new(), model.display().to_string());
    let file = |name: &str| data.join(name).display().to_string();
    let (tokenizer, wiki) = (file("stories260K/tokenizer.json"), file("wikitext103/wiki.test.tokens"));
    let lambada = file("lambada/lambada_test.jsonl");
    let tasks: [&[&str]; 3] = [
        &["wikitext", "--data", &wiki, "--limit-tokens", "700", "--stride", "64"],
        &["lambada", "--data", &lambada, "--limit", "5"],
        &["lm", "--text", &tokenizer],
    ];
    for (task, key) in tasks.into_iter().zip(["perplexity", "word_perplexity", "perplexity"]) {
        let at = |layout: &str| {
            let rest = ["--checkpoint", &model, "--tokenizer", &tokenizer, "--layout", layout, "--json"];
            let text = place.succeed(&[&["eval"], task, &rest[..]].concat());
            serde_json::from_str::<Value>(&text).expect("one JSON document")
        };
        let (one, many) = (at("t=1"), at("t=2,d=2"));
        assert!(one["protocol"].as_str().is_some_and(|words| !words.is_empty()), "{one}");
        assert!(common::relative(number(&one, key), number(&many, key)) < 1e-4, "{one}\n{many}");
    }
}

#[test]
fn wrong_requests_are_status_2_with_a_way_out() {
    let Some(model) = test_data(MODEL) else { return };
    let (place, model) = (Place::new(), model.display().to_string());
    let long = vec!["1"; 513].join(",");
    let cases: [(&[&str], &str); 5] = [
        (&["--prompt-ids", &long], "sees at most 512"),
        (&["--prompt", "words"], "--tokenizer"),
        (&["--prompt", "words", "--tokenizer", "gpt2"], "do not belong together"),
        (&["--prompt-ids", "1", "--layout", "t=3"], "t = 3"),
        (&["--max-tokens", "4"], "--prompt"),
    ];
    for (arguments, expected) in cases {
        let words = place.fail(2, &[&["generate", "--checkpoint", &model], arguments].concat());
        assert!(words.contains(expected), "{words}");
    }
    let words = place.fail(2, &["generate", "--checkpoint", "nowhere", "--prompt", "x"]);
    assert!(words.contains("nowhere"), "{words}");
}
