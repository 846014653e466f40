//! The binary under `mpirun`, every rank a process of this machine.

use super::{Place, henge_command};
use std::process::{Command, Output, Stdio};

/// To be run in a folder: ranks may be more than the cores, and who waits lets others go on.
pub fn mpirun(place: &Place, ranks: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    let henge = henge_command(place, arguments);
    command.current_dir(henge.get_current_dir().expect("the place"));
    command.args(["--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]);
    command.args(["-n", &ranks.to_string()]).arg(henge.get_program()).args(henge.get_args());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end, expects a status and returns standard error.
pub fn ends_with(place: &Place, status: i32, ranks: usize, arguments: &[&str]) -> String {
    let output = mpirun(place, ranks, arguments).output().expect("mpirun starts (Debian: openmpi-bin)");
    expect_status(&output, status)
}

/// Standard error of what ended with a status.
pub fn expect_status(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{}", super::words(output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}
