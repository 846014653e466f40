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

/// The text that the model's author published: 200 greedy tokens from the start token.
#[test]
fn a_trained_llama_tells_the_published_story_at_every_layout() {
    let Some(model) = test_data("data/stories260K") else { return };
    let (place, model) = (Place::new(), model.display().to_string());
    let golden = std::fs::read_to_string(format!("{model}/golden_greedy.json")).expect("the golden file");
    let golden: Value = serde_json::from_str(&golden).expect("JSON");
    let expected = golden["expected_ids"].as_array().expect("a list")[1..].to_vec();
    for layout in ["t=1", "t=2", "t=4", "t=2,p=5"] {
        let arguments = ["--prompt", "<s>", "--max-tokens", "200", "--layout", layout, "--json"];
        let text = place.succeed(&[&["generate", "--model", &model], &arguments[..]].concat());
        let document: Value = serde_json::from_str(&text).expect("one JSON document");
        let found = &document["completions"][0];
        assert_eq!(found["prompt_tokens"], golden["prompt_ids"], "{layout}");
        assert_eq!(found["tokens"].as_array(), Some(&expected), "{layout}");
        assert_eq!(found["text"].as_str().map(str::trim_start), golden["expected_text"].as_str(), "{layout}");
    }
}

/// Where `HENGE_TEST_SMOLLM2` names the GGUF file of SmolLM2-135M-Instruct.
#[test]
fn a_model_from_a_gguf_file_knows_the_capital_of_france() {
    let Some(model) = std::env::var_os("HENGE_TEST_SMOLLM2") else {
        eprintln!("skipped: HENGE_TEST_SMOLLM2 does not name a GGUF file of SmolLM2-135M-Instruct");
        return;
    };
    let model = model.into_string().expect("UTF-8");
    let arguments = ["generate", "--model", &model, "--max-tokens", "8", "--prompt", "The capital of France is"];
    let story = Place::new().succeed(&arguments);
    assert!(story.starts_with("The capital of France is Paris"), "{story}");
}

/// Where `HENGE_TEST_MINILM` names a folder of all-MiniLM-L6-v2; the cosine is the one that
/// sentence-transformers gives.
#[test]
fn a_bare_encoder_gives_the_known_cosine() {
    let Some(model) = std::env::var_os("HENGE_TEST_MINILM") else {
        eprintln!("skipped: HENGE_TEST_MINILM does not name a Hugging Face folder of all-MiniLM-L6-v2");
        return;
    };
    let (place, model) = (Place::new(), model.into_string().expect("UTF-8"));
    place.write("texts.txt", "A man is eating a piece of bread.\n");
    for layout in ["t=1", "t=2,p=2", "d=2"] {
        let arguments = ["--text", "A man is eating food.", "--file", "texts.txt", "--layout", layout, "--json"];
        let text = place.succeed(&[&["embed", "--model", &model], &arguments[..]].concat());
        let document: Value = serde_json::from_str(&text).expect("one JSON document");
        let cosine = number(&document["cosines"][0], "cosine");
        assert!((cosine - 0.7553).abs() < 1e-3, "{cosine} at {layout}");
    }
    let words = place.fail(2, &["embed", "--model", &model]);
    assert!(words.contains("--text"), "{words}");
}

#[test]
fn an_encoder_is_not_asked_what_follows_nor_a_decoder_for_vectors() {
    let (Some(encoder), Some(decoder)) = (test_data("oracle/bert"), test_data(MODEL)) else { return };
    let (place, encoder, decoder) = (Place::new(), encoder.display().to_string(), decoder.display().to_string());
    let text = place.write("text.txt", "words\n").display().to_string();
    let asked: [&[&str]; 4] = [
        &["generate", "--prompt-ids", "1"],
        &["eval", "lm", "--text", &text],
        &["eval", "wikitext", "--data", &text],
        &["eval", "lambada", "--data", &text],
    ];
    for arguments in asked {
        let words = place.fail(2, &[arguments, &["--model", &encoder]].concat());
        assert!(words.contains("an encoder") && words.contains("give a gpt or a llama"), "{words}");
    }
    let words = place.fail(2, &["embed", "--model", &decoder, "--text", "words"]);
    assert!(words.contains("a decoder") && words.contains("give a bert"), "{words}");
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
    place.write("prompts.jsonl", format!("{{\"tokens\": [1]}}\n\n{{\"tokens\": [{long}]}}\n"));
    let words = place.fail(2, &["generate", "--checkpoint", &model, "--prompts", "prompts.jsonl"]);
    assert!(words.contains("prompts.jsonl:3: 513 tokens"), "{words}");
    let words = place.fail(2, &["generate", "--checkpoint", "nowhere", "--prompt", "x"]);
    assert!(words.contains("nowhere"), "{words}");
}

/// The ids of another vocabulary mean other texts, however many there are.
#[test]
fn a_tokenizer_that_is_not_the_models_own_is_refused() {
    let Some(model) = test_data("data/stories260K") else { return };
    let (place, model) = (Place::new(), model.display().to_string());
    place.write("text.txt", "one day a girl went out to see the big red ball\n".repeat(20));
    let train = ["data", "train-tokenizer", "--kind", "byte-level-bpe", "--vocab-size", "300"];
    place.succeed(&[&train[..], &["--input", "text.txt", "--output", "other.json"]].concat());
    let asked: [&[&str]; 3] = [
        &["generate", "--prompt", "one day"],
        &["eval", "lm", "--text", "text.txt"],
        &["eval", "wikitext", "--data", "text.txt"],
    ];
    for arguments in asked {
        let words = place.fail(2, &[arguments, &["--model", &model, "--tokenizer", "other.json"]].concat());
        assert!(words.contains("other.json gives other ids") && words.contains("leave --tokenizer out"), "{words}");
    }
    let own = format!("{model}/tokenizer.json");
    place.succeed(&["generate", "--model", &model, "--tokenizer", &own, "--prompt", "one day", "--max-tokens", "1"]);
}

#[test]
fn what_is_longer_than_the_model_is_refused_with_its_line() {
    let (Some(encoder), Some(decoder)) = (test_data("oracle/bert"), test_data("data/stories260K")) else { return };
    let (place, encoder, decoder) = (Place::new(), encoder.display().to_string(), decoder.display().to_string());
    let long = "one day a girl went out to see the big red ball ".repeat(60);
    place.write("long.txt", format!("one day\n\n{long}\n"));
    place.write("long.jsonl", format!("{{\"text\": \"one day\"}}\n{{\"text\": \"{long} day\"}}\n"));
    let choices = |context: &str| format!("{{\"ctx\": \"{context}\", \"endings\": [\"out\", \"in\"], \"label\": 1}}\n");
    place.write("choices.jsonl", choices("one") + &choices(&long));
    let train = ["data", "train-tokenizer", "--kind", "wordpiece-uncased", "--vocab-size", "300"];
    place.succeed(&[&train[..], &["--input", "long.txt", "--output", "words.json"]].concat());
    let asked: [(&[&str], &str, &str); 4] = [
        (&["embed", "--file", "long.txt", "--tokenizer", "words.json"], &encoder, "long.txt:3"),
        (&["generate", "--prompts", "long.txt"], &decoder, "long.txt:3"),
        (&["eval", "lambada", "--data", "long.jsonl"], &decoder, "long.jsonl:2"),
        (&["eval", "lm", "--choices", "choices.jsonl"], &decoder, "choices.jsonl:2"),
    ];
    for (arguments, model, at) in asked {
        let words = place.fail(2, &[arguments, &["--model", model]].concat());
        assert!(words.contains(at) && words.contains("at most") && words.contains("shorten"), "{words}");
    }
}
