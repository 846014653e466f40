//! The transformers library loads what Henge exports, and computes the same logits with it.
//!
//! Runs where `HENGE_TEST_PYTHON` (or `python3`) has torch and transformers, else says that it
//! is skipped.

mod common;

use common::*;
use henge_checkpoint::{Cut, Export, export, import, open_source};
use reference::Reference;
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = "
import sys, torch, transformers
tokens = torch.arange(1, 33).reshape(1, 32)
def logits(folder):
    encoder = transformers.AutoConfig.from_pretrained(folder).model_type == 'bert'
    family = transformers.BertForPreTraining if encoder else transformers.AutoModelForCausalLM
    model, report = family.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not report['missing_keys'] and not report['unexpected_keys'], report
    with torch.no_grad():
        found = model.eval()(tokens)
    if encoder:
        return torch.cat([found.prediction_logits.flatten(), found.seq_relationship_logits.flatten()])
    return found.logits
a, b = logits(sys.argv[1]), logits(sys.argv[2])
assert a.shape == b.shape and a.abs().max() > 0.01
print(float((a - b).abs().max()))
";

fn python() -> Option<String> {
    let python = std::env::var("HENGE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let there = Command::new(&python).args(["-c", "import torch, transformers"]).output();
    if there.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: {python} has no torch and transformers; name one that has in HENGE_TEST_PYTHON");
    None
}

fn difference(python: &str, a: &Path, b: &Path) -> f64 {
    let output = Command::new(python).args(["-c", SCRIPT]).args([a, b]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text.trim().parse().unwrap()
}

#[test]
fn exported_folders_load_and_give_the_same_logits() {
    let (Some(data), Some(python)) = (test_data(), python()) else { return };
    for name in HF_FOLDERS.into_iter().chain(["oracle/bert"]) {
        let (source, folder) = (data.join(name), tempfile::tempdir().unwrap());
        let at = |part: &str| folder.path().join(part);
        let cut = Cut::Layout { tensor: 2, pipeline: 1 };
        import(open_source(&source).unwrap().as_ref(), cut, &at("henge")).unwrap();
        let options = Export { shard_bytes: 300_000, ..Export::float32() };
        export(open_source(&at("henge")).unwrap().as_ref(), &options, &at("out")).unwrap();
        assert_eq!(difference(&python, &source, &at("out")), 0.0, "{name}");
    }
}

const LOGITS: &str = "
import sys, json, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float64).eval()
assert model.model.rotary_emb.rope_type == sys.argv[2], model.model.rotary_emb.rope_type
tokens = torch.arange(1, 33).reshape(1, 32)
with torch.no_grad(): print(json.dumps(model(tokens).logits[0].tolist()))
";

/// Each scaling of rotary positions that is read, against the library's own forward pass of the same
/// weights, at a length where its ramp is at work.
#[test]
fn every_scaling_of_rotary_positions_gives_the_librarys_logits() {
    let (Some(data), Some(python)) = (test_data(), python()) else { return };
    let ramp = r#""factor": 4.0, "original_max_position_embeddings": 16"#;
    let tables = [
        r#"{"rope_type": "default"}"#.to_string(),
        r#"{"rope_type": "linear", "factor": 4.0}"#.to_string(),
        r#"{"rope_type": "dynamic", "factor": 4.0}"#.to_string(),
        format!(r#"{{"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, {ramp}}}"#),
        format!(r#"{{"rope_type": "yarn", "beta_fast": 4.0, "beta_slow": 1.0, {ramp}}}"#),
    ];
    let mut seen: Vec<Vec<Vec<f64>>> = Vec::new();
    for table in tables {
        let folder = tempfile::tempdir().unwrap();
        let from = data.join("oracle/llama");
        let mut config: serde_json::Value =
            serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
        config["rope_parameters"] = serde_json::from_str(&table).unwrap();
        config["rope_parameters"]["rope_theta"] = 10000.0.into();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        std::fs::copy(from.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
        let kind = config["rope_parameters"]["rope_type"].as_str().unwrap();
        let output = Command::new(&python).args(["-c", LOGITS]).arg(folder.path()).arg(kind).output().unwrap();
        assert!(output.status.success(), "{table}: {}", String::from_utf8_lossy(&output.stderr));
        let expected: Vec<Vec<f64>> = serde_json::from_slice(&output.stdout).unwrap();
        let tokens: Vec<usize> = (1..33).collect();
        let found = Reference::of(open_source(folder.path()).unwrap().as_ref()).logits(&tokens);
        let pairs = found.iter().flatten().zip(expected.iter().flatten());
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-5, "{table}: {worst}");
        seen.push(expected);
    }
    // A growing base has not begun to grow; all others differ from each other.
    assert_eq!(seen[0], seen[2]);
    assert!([1, 3, 4].iter().all(|&place| seen[place] != seen[0]));
}
