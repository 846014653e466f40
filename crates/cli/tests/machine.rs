//! The commands that need nothing but a machine: quickstart, doctor and bench.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn henge(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_henge")).args(arguments).output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The one document on standard output.
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", words(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Text that is there wherever this test is: the project's own source.
fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

#[test]
fn quickstart_learns_and_says_how_to_repeat_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("first").display().to_string();
    let (input, steps) = (source().display().to_string(), "20");
    let output =
        henge(&["quickstart", "--input", &input, "--dir", &dir, "--steps", steps, "--mebibytes", "1", "--json"]);
    let summary = json(&output);
    let (loss, entropy) = (number(&summary["validation_loss"]), number(&summary["unigram_entropy"]));
    // 20 steps are too few to beat the frequencies; they must beat knowing nothing, ln(2048) = 7.62.
    assert!((1.0..7.5).contains(&loss), "{loss}");
    assert!((4.0..7.62).contains(&entropy), "{entropy}");
    assert!(summary["sample"].as_str().unwrap().starts_with("fn new("), "{summary}");
    let events = std::fs::read_dir(Path::new(&dir).join("run/tensorboard")).unwrap().count();
    assert_eq!(events, 1);

    // The commands by hand, in another folder, give the same loss to the last digit.
    let again = folder.path().join("again").display().to_string();
    std::fs::create_dir(&again).unwrap();
    let moved = |text: &str| text.replace(&dir, &again);
    for file in ["documents.jsonl", "run.toml"] {
        let text = std::fs::read_to_string(Path::new(&dir).join(file)).unwrap();
        std::fs::write(Path::new(&again).join(file), moved(&text)).unwrap();
    }
    let binary = format!("{} ", env!("CARGO_BIN_EXE_henge"));
    for command in summary["commands"].as_array().unwrap() {
        let command = moved(command.as_str().unwrap()).replacen("henge ", &binary, 1);
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        assert!(output.status.success(), "{command}: {}", words(&output));
    }
    let metrics = std::fs::read_to_string(Path::new(&again).join("run/metrics.jsonl")).unwrap();
    let last: Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    assert_eq!(number(&last["eval_loss"]), loss);
}

#[test]
fn quickstart_refuses_what_it_cannot_learn_from() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("new").display().to_string();
    let mut bare = Command::new(env!("CARGO_BIN_EXE_henge"));
    let output = bare.args(["quickstart", "--dir", &dir]).env("CARGO_HOME", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output).contains("--input"), "{}", words(&output));
    assert!(!Path::new(&dir).exists(), "something was written");

    let taken = folder.path().display().to_string();
    let output = henge(&["quickstart", "--dir", &taken]);
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output).contains(&taken), "{}", words(&output));
}

#[test]
fn doctor_tells_of_this_machine() {
    let report = json(&henge(&["doctor", "--json"]));
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(report["processor"]["cores"], cores);
    assert!(number(&report["memory"]["total_bytes"]) >= number(&report["memory"]["available_bytes"]));
    assert!(number(&report["peak_gflops_per_second"]) > 0.1);
    assert!(number(&report["copy_bytes_per_second"]) > 1e8);
}

#[test]
fn bench_step_holds_its_contract_in_every_kind_of_layout() {
    let shape = "--layers 2 --hidden 64 --heads 4 --seq 32 --vocab 256 --batch 4 --micro-batch 1 --steps 3 --warmup 1";
    for layout in ["t=1,p=1,d=1", "t=2,p=1,d=1", "t=1,p=2,d=2", "t=1,p=2,d=1,v=1"] {
        let rest = ["--precision", "f32", "--layout", layout, "--json"];
        let arguments: Vec<&str> = ["bench", "step"].into_iter().chain(shape.split(' ')).chain(rest).collect();
        let report = json(&henge(&arguments));
        let (seconds, tokens) = (number(&report["step_seconds"]), number(&report["tokens_per_second"]));
        assert!((tokens * seconds / (4.0 * 32.0) - 1.0).abs() < 1e-9, "{report}");
        let (rate, peak) = (number(&report["model_gflops_per_second"]), number(&report["peak_gflops_per_second"]));
        assert!((number(&report["share_of_peak"]) * peak / rate - 1.0).abs() < 1e-9, "{report}");
        assert_eq!(report["step_seconds_all"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn bench_refuses_what_cannot_be() {
    for arguments in [
        &["bench", "step", "--layout", "t=3"][..],
        &["bench", "step", "--layout", "x=1"],
        &["bench", "step", "--layout", "b=1"],
        &["bench", "step", "--steps", "0"],
        &["bench", "step", "--batch", "7"],
        &["bench", "gemm", "--rounds", "0"],
        &["bench", "comm", "--ranks", "0"],
        &["bench", "comm", "--mebibytes", "18446744073709551615"],
    ] {
        let output = henge(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", words(&output));
        assert!(words(&output).starts_with("error: "), "{arguments:?}: {}", words(&output));
    }
}

#[test]
fn bench_comm_and_gemm_give_rates_and_shares() {
    let report = json(&henge(&["bench", "comm", "--mebibytes", "1", "--rounds", "3", "--json"]));
    let share = number(&report["bytes_per_second"]) / number(&report["copy_bytes_per_second"]);
    assert!((number(&report["share_of_copy"]) / share - 1.0).abs() < 1e-9);
    let shape =
        "--layers 1 --hidden 64 --heads 4 --seq 32 --vocab 256 --micro-batch 1 --precision f32 --rounds 2 --json";
    let report = json(&henge(&["bench", "gemm"].into_iter().chain(shape.split(' ')).collect::<Vec<_>>()));
    let products = report["products"].as_array().unwrap();
    assert_eq!(products.len(), 15);
    for product in products {
        let flop = 2.0 * number(&product["tokens"]) * number(&product["input"]) * number(&product["output"]);
        let rate = number(&product["gflops_per_second"]) * 1e9;
        assert!((rate * number(&product["seconds"]) / flop - 1.0).abs() < 1e-9, "{product}");
    }
}
