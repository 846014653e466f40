//! An encoder on a corpus of sentences: the same losses whatever the layout, both placements
//! of the norm, evaluation, and resuming.

mod common;

use common::{Place, number, relative, test_data};
use serde_json::Value;

fn run_file(norm: &str) -> Option<String> {
    let folder = test_data("data/megatron-bin-idx/bert-sentences")?;
    let folder = folder.display();
    Some(format!(
        r#"
model = {{ arch = "bert", layers = 4, hidden = 64, heads = 4, seq_len = 64, vocab_size = 28996, norm = "{norm}" }}
data = {{ train = ["{folder}/my-bert_text_sentence"], split = [8, 2, 0], tokenizer = "{folder}/bert-large-cased-vocab.txt" }}
[train]
steps = 12
global_batch = 8
micro_batch = 2
eval_every = 12
eval_steps = 2
optimizer = {{ lr = 2e-3, warmup_steps = 2 }}
"#
    ))
}

fn losses(place: &Place, dir: &str, layout: &[&str]) -> Vec<Value> {
    let dir_key = format!("run.dir={dir}");
    let keys: Vec<&str> = layout.iter().copied().chain([dir_key.as_str()]).collect();
    let arguments = ["train", "run.toml"].into_iter().chain(keys.iter().flat_map(|key| ["--set", key]));
    place.succeed(&arguments.collect::<Vec<_>>());
    place.metrics(dir)
}

#[test]
fn an_encoder_trains_to_the_same_losses_over_any_layout() {
    for norm in ["pre", "post"] {
        let Some(text) = run_file(norm) else { return };
        let place = Place::new();
        place.write("run.toml", text);
        let whole = losses(&place, "one", &[]);
        let (first, last) = (&whole[0], &whole[whole.len() - 2]);
        // ln(28996) + ln(2) at the start; both parts are there and add up.
        assert!((number(first, "loss") - 10.97).abs() < 0.3, "{norm}: {first}");
        assert!(number(last, "loss") < number(first, "loss") - 0.3, "{norm}: {first} to {last}");
        let sum = number(first, "masked_loss") + number(first, "order_loss");
        assert!(relative(number(first, "loss"), sum) < 1e-12, "{norm}: {first}");
        let evaluation = whole.last().expect("an evaluation");
        assert!(number(evaluation, "order_loss") > 0.0 && number(evaluation, "targets") > 0.0, "{evaluation}");
        let layouts: [(&str, &[&str]); 3] = [
            ("t2", &["layout.tensor=2"]),
            ("p2d2", &["layout.pipeline=2", "layout.data=2"]),
            ("p2v2", &["layout.pipeline=2", "layout.chunks=2", "layout.schedule=interleaved", "layout.recompute=full"]),
        ];
        for (dir, layout) in layouts {
            for (split, want) in losses(&place, dir, layout).iter().zip(&whole) {
                for key in ["loss", "eval_loss", "masked_loss", "order_loss"] {
                    let Some(want) = want.get(key).and_then(Value::as_f64) else { continue };
                    let off = relative(number(split, key), want);
                    assert!(off < 1e-5, "{norm} over {layout:?}: {key} off by {off:e}: {split}");
                }
            }
        }
    }
}

#[test]
fn an_encoder_without_its_vocabulary_is_refused() {
    let Some(text) = run_file("pre") else { return };
    let place = Place::new();
    place.write("run.toml", text.replace(", tokenizer", " } # "));
    let words = place.fail(2, &["train", "run.toml"]);
    assert!(words.contains("data.tokenizer") && words.contains("name the tokenizer of the corpus"), "{words}");
}

/// A folder of the bare `BertModel`: what it lacks is drawn from the seed, and said; what it has
/// is read whatever the seed.
#[test]
fn a_bare_encoder_begins_a_run_with_heads_that_are_drawn() {
    let Some(folder) = test_data("oracle/bert") else { return };
    let place = Place::new();
    let text = std::fs::read(folder.join("model.safetensors")).expect("the weights");
    let (length, rest) = text.split_at(8);
    let header = u64::from_le_bytes(length.try_into().expect("8 bytes")) as usize;
    // Names of the heads become names that nobody asks for; the places of the numbers stay.
    let names = String::from_utf8(rest[..header].to_vec()).expect("UTF-8").replace("\"cls.", "\"old.");
    place.write("bare/model.safetensors", [length, names.as_bytes(), &rest[header..]].concat());
    place.write("bare/config.json", std::fs::read(folder.join("config.json")).expect("config.json"));
    let run = |from: &str, seed: u64| -> (f64, String) {
        let dir = format!("{}-{seed}", from.replace('/', "_"));
        let lines = format!(
            "run = {{ dir = \"{dir}\", seed = {seed} }}\ninit = {{ from = \"{from}\" }}\n\
             data = {{ batches = \"{}/expected.json\" }}\ntrain = {{ steps = 1, micro_batch = 8 }}\n",
            folder.display()
        );
        place.write("run.toml", lines);
        let output = place.henge(&["train", "run.toml", "--set", "model.dropout=0"]);
        assert!(output.status.success(), "{}", common::words(&output));
        (number(&place.steps(&dir)[0], "loss"), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let (loss, said) = run("bare", 1);
    let drawn = ["head.dense.weight", "head.bias", "order.weight"];
    assert!(drawn.iter().all(|name| said.contains(name)) && said.contains("drawn from run.seed"), "{said}");
    assert!(!said.contains("pooler.weight"), "{said}");
    assert_ne!(loss, run("bare", 2).0);
    let whole = folder.display().to_string();
    let (a, b) = (run(&whole, 1), run(&whole, 2));
    assert_eq!(a.0, b.0);
    assert!(!a.1.contains("drawn"), "{}", a.1);
}
