//! The transformers library loads what Henge exports, and computes the same logits with it.
//!
//! Runs where `HENGE_TEST_PYTHON` (or `python3`) has torch and transformers, else says that it
//! is skipped.

mod common;

use common::*;
use henge_checkpoint::{Cut, Export, export, import, open_source};
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
