//! A recorded run of PyTorch's, and a run of ours held to it.

use super::{Case, Place, number, relative, test_data};
use serde_json::Value;
use std::path::Path;

fn run_file(folder: &Path, case: &Case, expected: &Value) -> String {
    let (t, p, d, v, schedule, micro_batch) = case;
    let hyper = |key: &str| number(&expected["hyper"], key);
    format!(
        r#"
[run]
dir = "run"
[layout]
tensor = {t}
pipeline = {p}
data = {d}
chunks = {v}
schedule = "{schedule}"
[train]
steps = 12
micro_batch = {micro_batch}
precision = "f32"
[train.optimizer]
lr = {}
decay = "constant"
beta1 = {}
beta2 = {}
eps = {:e}
weight_decay = {}
clip = {:?}
[data]
batches = "{folder}/expected.json"
[init]
from = "{folder}"
"#,
        hyper("lr"),
        hyper("beta1"),
        hyper("beta2"),
        hyper("eps"),
        hyper("weight_decay"),
        hyper("clip"),
        folder = folder.display(),
    )
}

fn check_trace(steps: &[Value], expected: &Value, case: &Case) {
    let trace = expected["trace"].as_array().expect("a trace");
    assert_eq!(steps.len(), trace.len(), "{case:?}");
    for (step, want) in steps.iter().zip(trace) {
        let loss = relative(number(step, "loss"), number(want, "loss"));
        let norm = relative(number(step, "grad_norm"), number(want, "grad_norm"));
        assert!(loss < 1e-5 && norm < 1e-4, "{case:?}, step {}: loss off by {loss:e}, norm by {norm:e}", step["step"]);
    }
}

fn check_logits(place: &Place, expected: &Value, case: &Case) {
    let text = std::fs::read_to_string(place.path("logits.json")).expect("logits.json");
    let logits: Value = serde_json::from_str(&text).expect("JSON");
    for key in ["logits_first_position", "logits_last_position"] {
        let list = |value: &Value| -> Vec<f64> {
            value[key].as_array().expect("a list").iter().map(|logit| logit.as_f64().expect("a number")).collect()
        };
        let (got, want) = (list(&logits), list(&expected["first"]));
        assert_eq!(got.len(), want.len());
        let largest = want.iter().fold(0.0f64, |most, logit| most.max(logit.abs()));
        let worst = got.iter().zip(&want).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(worst < 1e-5 * largest, "{case:?}: {key} off by {worst:e} of {largest}");
    }
}

fn check_gradients(first: &Value, expected: &Value, case: &Case) {
    let want = expected["first"]["grad_norms"].as_object().expect("norms by name");
    for (name, want) in want {
        let want = want.as_f64().expect("a number");
        let got = number(&first["gradients"], name);
        let off = relative(got, want);
        // A bias of keys has no gradient in exact arithmetic: both sides hold rounding alone.
        let noise = 1e-7 * number(first, "grad_norm");
        assert!(
            want.max(got) <= noise || off < 1e-4,
            "{case:?}: gradient norm of {name} is {got}, not {want} (off by {off:e})"
        );
    }
}

/// Trains each layout by `train`, which runs the binary with the arguments it is given, and holds
/// what came out to what PyTorch recorded.
pub fn check(model: &str, layouts: &[Case], train: impl Fn(&Place, &Case, &[&str])) {
    let Some(folder) = test_data(&format!("oracle/{model}")) else { return };
    let text = std::fs::read_to_string(folder.join("expected.json")).expect("expected.json");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    for case in layouts {
        let place = Place::new();
        place.write("run.toml", run_file(&folder, case, &expected));
        train(&place, case, &["train", "run.toml", "--dump-gradients", "--dump-logits", "logits.json"]);
        let steps = place.steps("run");
        check_trace(&steps, &expected, case);
        check_logits(&place, &expected, case);
        check_gradients(&steps[0], &expected, case);
    }
}
