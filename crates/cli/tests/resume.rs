//! A run killed at any moment goes on to the same bits; `HENGE_KILLS` sets how many kills of
//! each layout (default 4).

mod common;

use common::resumed::{numbers, tensors};
use common::{Place, henge_command};
use henge_checkpoint::{Checkpoint, RunState, publish, stage};
use std::time::Duration;

const LAYOUTS: [&str; 3] = [
    "layout = {}",
    "layout = { tensor = 2, pipeline = 2, data = 2 }",
    "layout = { pipeline = 2, chunks = 2, schedule = \"interleaved\" }",
];

fn run_file(place: &Place, layout: &str, dir: &str) -> String {
    let text = format!(
        r#"
{layout}
run = {{ dir = "{dir}", seed = 3 }}
model = {{ layers = 4, hidden = 64, heads = 4, seq_len = 48, vocab_size = 509, dropout = 0.1 }}
data = {{ batches = "batches.json" }}
checkpoint = {{ every = 2, keep = 2 }}
[train]
steps = 20
micro_batch = 2
precision = "f32"
optimizer = {{ lr = 3e-3, warmup_steps = 4, weight_decay = 0.1 }}
"#
    );
    let name = format!("{dir}.toml");
    place.write(&name, text);
    name
}

/// Starts the run and kills it after a while; `true` if it ended by itself before.
fn kill_after(place: &Place, file: &str, pause: Duration) -> bool {
    let mut child = henge_command(place, &["train", file]).spawn().expect("the binary starts");
    std::thread::sleep(pause);
    let ended = child.try_wait().expect("a status");
    if let Some(status) = ended {
        assert!(status.success(), "the run failed by itself: {status}");
        return true;
    }
    child.kill().expect("killed");
    child.wait().expect("a status");
    false
}

fn kills() -> u64 {
    std::env::var("HENGE_KILLS").ok().map_or(4, |text| text.parse().expect("HENGE_KILLS is a number"))
}

#[test]
fn killed_runs_end_with_the_same_bits() {
    for layout in LAYOUTS {
        let place = Place::new();
        place.write("batches.json", common::batches(20, 8));
        let whole = run_file(&place, layout, "whole");
        let begin = std::time::Instant::now();
        place.succeed(&["train", &whole]);
        let length = begin.elapsed();
        let (want, want_tensors) = (numbers(&place, "whole"), tensors(&place, "whole", 20));

        let mut state = 88172645463325252u64;
        let mut killed = 0;
        for round in 0.. {
            let dir = format!("killed{round}");
            let file = run_file(&place, layout, &dir);
            loop {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let pause = length.mul_f64((state % 1000) as f64 / 1000.0);
                if killed >= kills() || kill_after(&place, &file, pause) {
                    break;
                }
                killed += 1;
            }
            place.succeed(&["train", &file]);
            assert_eq!(numbers(&place, &dir), want, "{layout}, after {killed} kills");
            assert_eq!(tensors(&place, &dir, 20), want_tensors, "{layout}, after {killed} kills");
            std::fs::remove_dir_all(place.path(&dir)).expect("removed");
            if killed >= kills() {
                break;
            }
        }
    }
}

#[test]
fn each_step_has_one_line_and_old_checkpoints_go() {
    let place = Place::new();
    place.write("batches.json", common::batches(20, 8));
    let file = run_file(&place, LAYOUTS[0], "run");
    place.succeed(&["train", &file, "--set", "train.steps=7", "--set", "train.optimizer.decay_steps=20"]);
    place.succeed(&["train", &file, "--set", "train.optimizer.decay_steps=20"]);
    let steps: Vec<u64> = place.steps("run").iter().map(|line| line["step"].as_u64().expect("a step")).collect();
    assert_eq!(steps, (1..=20).collect::<Vec<_>>());
    let kept = std::fs::read_dir(place.path("run/checkpoints")).expect("checkpoints").count();
    assert_eq!(kept, 2);
}

/// Two increments over 20 samples: 4 sequences below 10, 8 below 20, then 12.
#[test]
fn a_batch_that_grows_goes_on_growing_after_a_resume() {
    let place = Place::new();
    place.small_corpus("corpus");
    place.write(
        "run.toml",
        r#"
model = { layers = 2, hidden = 32, heads = 4, seq_len = 16, vocab_size = 50257 }
data = { train = ["corpus"] }
layout = { data = 2, pipeline = 2 }
[train]
steps = 6
global_batch = 12
micro_batch = 2
ramp_up = { start = 4, increment = 4, samples = 20 }
optimizer = { lr = 1e-3, decay_steps = 6 }
"#,
    );
    place.succeed(&["train", "run.toml", "--set", "run.dir=whole"]);
    place.succeed(&["train", "run.toml", "--set", "run.dir=parts", "--set", "train.steps=3"]);
    place.succeed(&["train", "run.toml", "--set", "run.dir=parts"]);
    assert_eq!(numbers(&place, "parts"), numbers(&place, "whole"));
    let counts = |key: &str| -> Vec<u64> {
        place.steps("whole").iter().map(|step| step[key].as_u64().expect("a count")).collect()
    };
    assert_eq!(counts("samples"), [4, 8, 12, 20, 32, 44]);
    assert_eq!(counts("tokens"), [64, 128, 192, 320, 512, 704]);
}

#[test]
fn another_layout_goes_on_from_the_same_checkpoint() {
    let place = Place::new();
    place.write("batches.json", common::batches(20, 8));
    let whole = run_file(&place, LAYOUTS[0], "whole");
    place.succeed(&["train", &whole]);
    let file = run_file(&place, LAYOUTS[0], "run");
    let fixed = ["--set", "train.optimizer.decay_steps=20"];
    let layouts: [&[&str]; 4] = [
        &["layout.tensor=4"],
        &["layout.pipeline=2", "layout.data=2"],
        &["layout.pipeline=2", "layout.chunks=2", "layout.schedule=interleaved", "train.micro_batch=1"],
        &["layout.tensor=2", "layout.pipeline=2", "layout.data=2"],
    ];
    for (stage, layout) in layouts.iter().enumerate() {
        let steps = format!("train.steps={}", 5 * (stage + 1));
        let mut arguments = vec!["train", &file, "--set", &steps];
        arguments.extend(fixed);
        layout.iter().for_each(|key| arguments.extend(["--set", *key]));
        place.succeed(&arguments);
    }
    for (got, want) in place.steps("run").iter().zip(place.steps("whole")) {
        let off = common::relative(common::number(got, "loss"), common::number(&want, "loss"));
        assert!(off < 1e-5, "step {}: off by {off:e}", want["step"]);
    }
}

/// What is loaded is held against what was recorded before a line of the run is touched.
#[test]
fn a_resume_shows_a_receipt_and_refuses_another_state() {
    let place = Place::new();
    place.write("batches.json", common::batches(20, 8));
    let file = run_file(&place, LAYOUTS[1], "run");
    let steps = |steps: &str| {
        vec!["train", &file, "--set", "train.optimizer.decay_steps=20", "--set", steps]
            .into_iter()
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    let words = |arguments: &[String], status: i32| {
        place.fail(status, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    words(&steps("train.steps=2"), 0);
    let receipt = words(&steps("train.steps=4"), 0);
    for part in ["step 2, 16 samples", "next samples 16 to 23", "second moments", "loss of sample 8 again: "] {
        assert!(receipt.contains(part), "no `{part}` in {receipt}");
    }
    let before = place.metrics("run");
    let checkpoints = place.path("run/checkpoints");
    let sound = Checkpoint::open(&checkpoints.join("step-00000004")).expect("sound").manifest().clone();
    type Change = fn(&mut RunState);
    let changes: [(Change, &str); 2] = [
        (|run| run.norms.as_mut().expect("norms").second_moment *= 1.001, "the norm of every second_moment is"),
        (|run| run.probe.as_mut().expect("a loss").loss *= 1.001, "the loss of sample 24 is"),
    ];
    for (change, expected) in changes {
        let mut manifest = sound.clone();
        change(&mut manifest.run);
        let staged = stage(&checkpoints, 4).expect("a folder");
        for file in &sound.files {
            std::fs::copy(checkpoints.join("step-00000004").join(&file.name), staged.join(&file.name)).expect("a copy");
        }
        publish(&checkpoints, &manifest, 9).expect("published");
        let refused = words(&steps("train.steps=6"), 2);
        assert!(refused.contains(expected) && refused.contains("--resume PATH"), "{refused}");
        assert_eq!(place.metrics("run"), before);
    }
}

#[test]
fn a_folder_is_not_shared_by_two_runs() {
    let place = Place::new();
    place.write("batches.json", common::batches(20, 8));
    let file = run_file(&place, LAYOUTS[0], "run");
    place.succeed(&["train", &file, "--set", "train.steps=2"]);
    let words = place.fail(2, &["train", &file, "--set", "model.layers=2"]);
    assert!(words.contains("already holds another run") && words.contains("model.layers"), "{words}");
    let words = place.fail(2, &["train", &file, "--resume", "never"]);
    assert!(words.contains("already holds another run"), "{words}");
    let words = place.fail(2, &["train", &file, "--resume", "nowhere"]);
    assert!(words.contains("nowhere"), "{words}");
}

/// Going on from an older checkpoint begins another line; the one it leaves is set aside whole,
/// and never gone on from by itself.
#[test]
fn a_run_that_goes_back_is_not_overtaken_by_the_line_it_left() {
    let place = Place::new();
    place.write("batches.json", common::batches(20, 8));
    let file = run_file(&place, LAYOUTS[0], "run");
    let train = |steps: &str, more: &[&str]| {
        let mut arguments =
            vec!["train", &file, "--set", "checkpoint.keep=9", "--set", "train.optimizer.decay_steps=20"];
        let steps = format!("train.steps={steps}");
        arguments.extend(["--set", &steps]);
        arguments.extend(more);
        place.succeed(&arguments)
    };
    train("6", &[]);
    train("3", &["--resume", "run/checkpoints/step-00000002", "--set", "train.optimizer.lr=1e-4"]);
    train("8", &["--set", "train.optimizer.lr=1e-4"]);
    let steps: Vec<u64> = place.steps("run").iter().map(|line| line["step"].as_u64().expect("a step")).collect();
    assert_eq!(steps, (1..=8).collect::<Vec<_>>(), "each step has one line, of the line that was chosen");
    assert!(common::number(&place.steps("run")[4], "lr") < 1e-3, "the fifth step is of the new line");
    for aside in ["abandoned-step-00000004", "abandoned-step-00000006"] {
        place.succeed(&["checkpoint", "verify", &format!("run/checkpoints/{aside}")]);
    }
}

#[test]
fn starting_anew_or_from_elsewhere_spares_the_checkpoints_that_are_there() {
    let place = Place::new();
    place.write("batches.json", common::batches(20, 8));
    let (file, other) = (run_file(&place, LAYOUTS[0], "run"), run_file(&place, LAYOUTS[0], "other"));
    place.succeed(&["train", &file, "--set", "train.steps=4"]);
    place.succeed(&["train", &other, "--set", "train.steps=2"]);
    let words = place.fail(2, &["train", &file, "--resume", "other"]);
    assert!(words.contains("newer checkpoints"), "{words}");
    std::fs::remove_file(place.path("run/metrics.jsonl")).expect("removed");
    let words = place.fail(2, &["train", &file, "--resume", "never"]);
    assert!(words.contains("already holds another run"), "{words}");
    place.succeed(&["checkpoint", "verify", "run"]);
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_saves_and_says_how_to_go_on() {
    let place = Place::new();
    place.write("batches.json", common::batches(20, 8));
    let file = run_file(&place, LAYOUTS[0], "run");
    let child = henge_command(&place, &["train", &file, "--set", "train.micro_batch=1"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    while !place.path("run/metrics.jsonl").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: a signal to a child of ours.
    let sent = unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(sent, 0);
    let output = child.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{words}");
    assert!(words.contains("which is saved; the same command goes on"), "{words}");
    place.succeed(&["train", &file, "--set", "train.micro_batch=1"]);
    assert_eq!(place.steps("run").len(), 20);
}
