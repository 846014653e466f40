//! A saving process is killed at random moments (`HENGE_KILLS` sets how many): what was
//! published stays whole.

mod common;

use common::*;
use henge_checkpoint::{Block, Kind, Manifest, latest, publish, published, stage};
use henge_spec::parameters;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const FOLDER: &str = "HENGE_TEST_SAVES_INTO";

/// Every number of step n is n.
fn save(checkpoints: &Path, step: u64) {
    let model = small_model();
    let staged = stage(checkpoints, step).unwrap();
    let shards = write_shards(&staged, &model, &Kind::ALL, (2, 1), |_, _, block| vec![step as f32; block.len()]);
    publish(checkpoints, &Manifest::assemble(&model, run_state(step), shards).unwrap(), 2).unwrap();
}

/// The newest step, every number of it checked; 0 before the first.
fn load(checkpoints: &Path) -> u64 {
    let Some(checkpoint) = latest(checkpoints).unwrap() else { return 0 };
    let step = checkpoint.manifest().run.step;
    for kind in Kind::ALL {
        for p in parameters(&small_model()) {
            let mut out = vec![0.0; p.len()];
            checkpoint.read(kind, &p.name, Block::whole(&p), &mut out).unwrap();
            assert!(out.iter().all(|&value| value == step as f32), "{kind} {} of step {step}", p.name);
        }
    }
    step
}

/// The process that is killed: goes on from the newest checkpoint, as a run would. It is a
/// test only so that the test binary can start itself.
#[test]
fn saving_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let first = load(Path::new(&folder)) + 1;
    for step in first.. {
        save(Path::new(&folder), step);
    }
}

#[test]
fn killed_at_any_moment_the_newest_checkpoint_loads() {
    let folder = tempfile::tempdir().unwrap();
    // Follows the disk, so that about half of the kills come behind a save.
    let mut longest = 100_000;
    let mut chance = Chance(3);
    let (kills, mut newest, mut advanced) = (rounds("HENGE_KILLS", 100), 0, 0);
    for round in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "saving_process"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(10_000 + chance.below(longest) as u64));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), None, "the process ended by itself in round {round}");
        let found = load(folder.path());
        assert!(found >= newest, "round {round}: step {newest} was published and {found} is the newest now");
        advanced += usize::from(found > newest);
        longest = if found > newest { (longest * 4 / 5).max(40_000) } else { (longest * 5 / 4).min(2_000_000) };
        newest = found;
    }
    // Kills between a rename and the removal leave old ones, which the next whole save removes.
    save(folder.path(), newest + 1);
    assert_eq!(published(folder.path()).unwrap().len(), 2, "old checkpoints are removed in the end");
    assert!(advanced > kills / 8, "only {advanced} of {kills} rounds saved anything: the kills came too early");
}
