//! The binary under `mpirun`, every rank a process of this machine.

use super::{Place, henge_command};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

#[path = "../../../mpi/tests/support/mpirun.rs"]
mod launcher;
#[allow(unused_imports)] // not every test starts a launcher of its own
pub use launcher::{environment, within};

/// A step that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(120);

/// To be run in a folder.
pub fn mpirun(place: &Place, ranks: usize, arguments: &[&str]) -> Command {
    let mut command = launcher::mpirun(ranks);
    let henge = henge_command(place, arguments);
    command.current_dir(henge.get_current_dir().expect("the place"));
    command.arg(henge.get_program()).args(henge.get_args());
    command
}

/// Runs to the end, expects a status and returns standard error.
pub fn ends_with(place: &Place, status: i32, ranks: usize, arguments: &[&str]) -> String {
    let output = mpirun(place, ranks, arguments).output().expect("mpirun starts (Debian: openmpi-bin)");
    expect_status(&output, status)
}

/// Standard error of what ended with a status.
pub fn expect_status(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{}", launcher::words(output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts what is to fail.
pub fn start(place: &Place, ranks: usize, arguments: &[&str]) -> Child {
    mpirun(place, ranks, arguments).spawn().expect("mpirun starts (Debian: openmpi-bin)")
}

/// Standard error of what failed; the launcher's status is that of what it saw first.
pub fn expect_failure(output: &Output) -> String {
    assert!(!output.status.success(), "{}", launcher::words(output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The process of a rank of the run in a place, once it is that far.
pub fn process(place: &Place, rank: usize, steps: usize) -> String {
    let begun = Instant::now();
    let metrics = place.path("run/metrics.jsonl");
    while std::fs::read_to_string(&metrics).map_or(0, |text| text.lines().count()) < steps {
        assert!(begun.elapsed() < PATIENCE, "step {steps} never came");
        std::thread::sleep(Duration::from_millis(20));
    }
    let here = place.path("").canonicalize().expect("the place");
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let found =
        processes.filter(|path| is_rank(path, rank) && std::fs::read_link(path.join("cwd")).ok() == Some(here.clone()));
    let found: Vec<PathBuf> = found.collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].file_name().expect("its number").to_string_lossy().into_owned()
}

fn is_rank(path: &Path, rank: usize) -> bool {
    let environment = std::fs::read(path.join("environ")).unwrap_or_default();
    let wanted = format!("OMPI_COMM_WORLD_RANK={rank}");
    environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
}

pub fn signal(pid: &str, signal: &str) {
    let sent = std::process::Command::new("kill").args([signal, pid]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill {signal} {pid}");
}
