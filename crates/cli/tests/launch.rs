//! `henge launch`: the command that it prints, what it refuses, and that it goes on after a failure.

mod common;

use common::Place;

const RUN: &str = r#"
run = { dir = "run", seed = 3, timeout = 20, heartbeat_timeout = 5 }
model = { layers = 2, hidden = 64, heads = 4, seq_len = 48, vocab_size = 509 }
layout = { pipeline = 2, data = 2 }
data = { batches = "batches.json" }
checkpoint = { every = 10, keep = 3 }
train = { steps = 120, micro_batch = 2, optimizer = { lr = 1e-3, decay = "constant" } }
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("batches.json", common::batches(120, 8));
    place.write("run.toml", RUN);
    place
}

#[test]
fn the_command_is_printed() {
    let place = place();
    let arguments = ["launch", "--hosts", "a,b", "--per-host", "2", "--dry-run", "run.toml", "--set", "train.steps=9"];
    let said = place.succeed(&arguments);
    for word in ["mpirun ", "--host a:2,b:2 ", "-n 4 ", "henge train run.toml --set train.steps=9"] {
        assert!(said.contains(word), "`{word}`: {said}");
    }
    assert!(!place.path("run").exists(), "nothing was run");
    let alone = place.succeed(&["launch", "--dry-run", "run.toml"]);
    assert!(alone.contains("--host localhost:4 -n 4 "), "{alone}");
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let place = place();
    let cases: [(&[&str], &[&str]); 5] = [
        (
            &["--hosts", "a,b", "--per-host", "8", "run.toml"],
            &["2 hosts with 8 ranks each are 16", "has 4", "layout.data"],
        ),
        (&["--hosts", "a,a", "run.toml"], &["names a twice"]),
        (&["--hosts", "a,,b", "run.toml"], &["is no host's name"]),
        (&["--hosts", "a", "gone.toml"], &["gone.toml"]),
        (&["--hosts", "a", "run.toml", "--set", "train.step=3"], &["did you mean `train.steps`"]),
    ];
    for (arguments, words) in cases {
        let said = place.fail(2, &[&["launch", "--dry-run"], arguments].concat());
        words.iter().for_each(|word| assert!(said.contains(word), "{arguments:?}, `{word}`: {said}"));
    }
    let without = common::henge_command(&place, &["launch", "run.toml"])
        .env("PATH", "")
        .stderr(std::process::Stdio::piped())
        .output();
    let without = without.expect("the binary starts");
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    let word = if cfg!(feature = "mpi") { "openmpi-bin" } else { "--features mpi" };
    assert!(without.status.code() == Some(2) && said.contains(word), "{said}");
}

#[cfg(all(feature = "mpi", target_os = "linux"))]
mod running {
    use super::{common, place};
    use common::Place;
    use common::mpi::{environment, process, signal, within};
    use common::resumed::same_losses;
    use std::process::{Child, Stdio};
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(180);

    fn launch(place: &Place, arguments: &[&str]) -> Child {
        let mut command = common::henge_command(place, &[&["launch"], arguments].concat());
        environment(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary starts")
    }

    fn undisturbed(place: &Place) {
        place.succeed(&["train", "run.toml", "--set", "run.dir=whole"]);
    }

    #[test]
    fn a_killed_rank_costs_the_steps_since_the_last_checkpoint() {
        let place = place();
        undisturbed(&place);
        let run = launch(&place, &["--restart", "1", "run.toml"]);
        signal(&process(&place, 3, 25), "-KILL");
        let ended = within(run, LIMIT);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{said}");
        for word in ["rank 3 (host ", "died", "restart 1 of 1", "going on with 4 ranks on localhost"] {
            assert!(said.contains(word), "`{word}`: {said}");
        }
        same_losses(&place, "run", "whole", 0.0);
    }

    #[test]
    fn without_restarts_left_the_failure_stands() {
        let place = place();
        let run = launch(&place, &["run.toml"]);
        signal(&process(&place, 0, 5), "-KILL");
        let ended = within(run, LIMIT);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("rank 0 (host ") && said.contains("--restart N"), "{said}");
    }

    #[test]
    fn a_request_to_stop_saves_first() {
        let place = place();
        undisturbed(&place);
        let run = launch(&place, &["run.toml"]);
        process(&place, 0, 5);
        signal(&run.id().to_string(), "-INT");
        let ended = within(run, LIMIT);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(130), "{said}");
        let stopped = place.steps("run").len();
        assert!((5..120).contains(&stopped), "after step {stopped}: {said}");
        place.succeed(&["train", "run.toml"]);
        same_losses(&place, "run", "whole", 0.0);
    }

    #[test]
    fn a_wrong_request_is_not_started_again() {
        let place = place();
        place.succeed(&["train", "run.toml", "--set", "train.steps=1"]);
        let ended = within(launch(&place, &["--restart", "3", "run.toml", "--set", "run.seed=4"]), LIMIT);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains("run.seed differs") && !said.contains("restart 1"), "{said}");
    }
}
