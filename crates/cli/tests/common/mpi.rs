//! The binary under `mpirun`, every rank a process of this machine.

use super::{Place, henge_command};
use std::process::{Command, Output};

#[path = "../../../mpi/tests/support/mpirun.rs"]
mod launcher;

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
