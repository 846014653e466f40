//! Generation: published continuations, cached against uncached, layouts and batches.

mod common;

use common::{best, engine, layout, logits_one_by_one, open, test_data};
use henge_cpu::{Fast, Plain, Rounding};
use henge_eval::{Completion, Draw, EvalError, Finish, Generation, Listener, Sampling, Silent, generate};
use henge_spec::Layout;
use std::path::Path;
use std::sync::{Arc, Mutex};

const FOLDER: &str = "data/tiny-random-gpt2";

fn job(folder: &Path, layout: Layout, prompts: &[Vec<u32>], max_tokens: usize) -> Generation {
    Generation {
        loaded: open(folder),
        tokenizer: None,
        layout,
        prompts: prompts.to_vec(),
        batch: 8,
        sampling: Sampling::Greedy,
        max_tokens,
        end: None,
        stops: Vec::new(),
        listener: Arc::new(Silent),
    }
}

fn run(job: Generation) -> Vec<Vec<u32>> {
    let options = engine(&job.layout);
    let completions = generate(job, options, |_| Fast::new(1, Rounding::Exact)).unwrap();
    completions.into_iter().map(|completion| completion.tokens).collect()
}

fn prompts() -> Vec<Vec<u32>> {
    let of = |index: u32, len: u32| (0..len).map(|i| (i * i * 31 + index * 97 + 5 * i) % 1000).collect();
    vec![of(0, 3), of(1, 40), of(2, 1), of(3, 17), of(4, 8)]
}

/// The continuations that ship with the model, at every layout it can be cut into.
#[test]
fn published_continuations_are_met_at_every_layout() {
    let Some(folder) = test_data(FOLDER) else { return };
    let text = std::fs::read_to_string(folder.join("golden_greedy.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
    let lists = |key: &str| -> Vec<Vec<u32>> { serde_json::from_value(golden[key].clone()).unwrap() };
    let (prompts, expected) = (lists("prompts"), lists("expected"));
    for (t, p) in [(1, 1), (2, 1), (4, 1), (1, 5), (2, 5)] {
        let found = run(job(&folder, layout(t, p, 1), &prompts, 6));
        for ((prompt, found), expected) in prompts.iter().zip(found).zip(&expected) {
            assert_eq!(&[prompt.clone(), found].concat(), expected, "t={t}, p={p}");
        }
    }
}

#[test]
fn cached_decoding_is_the_whole_prefix_run_again() {
    let Some(folder) = test_data(FOLDER) else { return };
    let prompts = prompts();
    let found = run(job(&folder, layout(1, 1, 1), &prompts, 12));
    let options = engine(&Layout::ONE);
    let plain = generate(job(&folder, Layout::ONE, &prompts, 12), options, |_| Plain::<f32>::new()).unwrap();
    for ((prompt, found), plain) in prompts.iter().zip(&found).zip(&plain) {
        assert_eq!(*found, plain.tokens, "the fast and the plain backend");
        let prefix = |len: usize| [prompt.as_slice(), &found[..len]].concat();
        let prefixes: Vec<_> = (0..found.len()).map(prefix).collect();
        let slow: Vec<u32> = logits_one_by_one(&folder, &prefixes).iter().map(|logits| best(logits)).collect();
        assert_eq!(*found, slow);
    }
}

#[test]
fn draws_are_the_same_for_every_layout_and_batch() {
    let Some(folder) = test_data(FOLDER) else { return };
    let draw = Draw { temperature: 0.9, top_k: Some(200), top_p: Some(0.95), seed: 3 };
    let drawn = |layout: Layout, batch: usize, seed: u64| {
        let sampling = Sampling::Random(Draw { seed, ..draw });
        run(Generation { batch, sampling, ..job(&folder, layout, &prompts(), 20) })
    };
    let first = drawn(layout(1, 1, 1), 1, 3);
    assert_ne!(first, run(job(&folder, layout(1, 1, 1), &prompts(), 20)), "no different from greedy");
    assert_ne!(first, drawn(layout(1, 1, 1), 1, 4), "no different for another seed");
    for (t, p, batch) in [(1, 1, 2), (1, 1, 5), (2, 1, 3), (1, 5, 5), (4, 5, 2)] {
        assert_eq!(drawn(layout(t, p, 1), batch, 3), first, "t={t}, p={p}, batch {batch}");
    }
}

#[test]
fn long_prompts_enter_in_pieces_and_the_models_length_ends_a_text() {
    let Some(folder) = test_data(FOLDER) else { return };
    // The model has 512 positions; a full prompt still has a next token.
    let prompt: Vec<u32> = (0..512).map(|i| (i * 7 + 3) % 1000).collect();
    let prompts = [prompt[..505].to_vec(), prompt];
    let options = engine(&Layout::ONE);
    let found = generate(job(&folder, Layout::ONE, &prompts, 50), options, |_| Fast::new(2, Rounding::Exact)).unwrap();
    let ends: Vec<_> = found.iter().map(|c| (c.tokens.len(), c.finish.clone())).collect();
    assert_eq!(ends, [(8, Finish::ModelLength), (1, Finish::ModelLength)]);
    assert_eq!(found[1].tokens[0], best(&logits_one_by_one(&folder, &prompts[1..])[0]));
}

/// Notes what it is told.
#[derive(Default)]
struct Notes(Mutex<(String, usize)>);

impl Listener for Notes {
    fn grown(&self, _prompt: usize, text: &str) {
        self.0.lock().unwrap().0.push_str(text);
    }
    fn finished(&self, _completion: &Completion) {
        self.0.lock().unwrap().1 += 1;
    }
}

#[test]
fn ends_and_stops_cut_the_text_and_the_listener_hears_it_once() {
    let (Some(folder), Some(tokenizer)) = (test_data(FOLDER), test_data("data/stories260K/tokenizer.json")) else {
        return;
    };
    let tokenizer = Arc::new(open(&folder).tokenizer(tokenizer.to_str()).unwrap());
    let prompt = vec![vec![410, 411, 412]];
    let draw = Sampling::Random(Draw { temperature: 1.0, top_k: Some(40), top_p: None, seed: 11 });
    let base = || Generation {
        tokenizer: Some(Arc::clone(&tokenizer)),
        sampling: draw,
        ..job(&folder, layout(1, 1, 1), &prompt, 30)
    };
    let run = |job: Generation| generate(job, engine(&Layout::ONE), |_| Fast::new(1, Rounding::Exact));
    let whole = run(base()).unwrap();
    let tokens = whole[0].tokens.clone();
    assert!(tokens.iter().all(|&token| token < 512), "the model has ids that the tokenizer lacks: {tokens:?}");
    let ended = run(Generation { end: Some(tokens[4]), ..base() }).unwrap();
    let first = tokens.iter().position(|&token| token == tokens[4]).unwrap();
    assert_eq!((ended[0].tokens.as_slice(), &ended[0].finish), (&tokens[..first], &Finish::EndOfDocument));
    let text = whole[0].text.clone().unwrap();
    let middle = text.char_indices().nth(text.chars().count() / 2).unwrap().0;
    let stop: String = text[middle..].chars().take(3).collect();
    let notes = Arc::new(Notes::default());
    let stopped = run(Generation { stops: vec![stop.clone()], listener: notes.clone(), ..base() }).unwrap();
    let expected = &text[..text.find(&stop).unwrap()];
    assert_eq!((stopped[0].text.as_deref(), &stopped[0].finish), (Some(expected), &Finish::Stop(stop)));
    assert_eq!(*notes.0.lock().unwrap(), (expected.to_string(), 1));
}

#[test]
fn wrong_requests_are_named_before_any_work() {
    let Some(folder) = test_data(FOLDER) else { return };
    let fails = |job: Generation| {
        let options = engine(&job.layout);
        let error = generate(job, options, |_| -> Plain<f32> { panic!("work began") }).unwrap_err();
        assert!(error.is_request(), "{error}");
        error.to_string()
    };
    let one = layout(1, 1, 1);
    let long = fails(job(&folder, one, &[vec![1], vec![1; 513]], 4));
    assert!(long.contains("prompt 2: 513 tokens") && long.contains("512"), "{long}");
    assert!(fails(job(&folder, one, &[vec![]], 4)).contains("no tokens"));
    assert!(fails(job(&folder, one, &[vec![1, 1000]], 4)).contains("1000"));
    assert!(fails(job(&folder, layout(3, 1, 1), &[vec![1]], 4)).contains("t = 3"));
    assert!(fails(job(&folder, layout(1, 2, 1), &[vec![1]], 4)).contains("p = 2"));
    assert!(fails(job(&folder, layout(1, 1, 2), &[vec![1]], 4)).contains("replica"));
    assert!(fails(job(&folder, one, &[vec![1]], 0)).contains("max-tokens"));
    let foreign = open(&folder).tokenizer(Some("gpt2")).err();
    assert!(matches!(foreign, Some(EvalError::ForeignTokenizer { .. })));
    assert!(matches!(open(&folder).tokenizer(None).err(), Some(EvalError::NoTokenizer { .. })));
}
