//! `mpirun` on this machine alone, for tests of any crate.

use std::process::{Command, Output, Stdio};

/// What lets ranks of one machine meet wherever tests run: more ranks than cores, who waits lets
/// others go on, no remote shell is looked for, and no process reads another's memory, which
/// containers forbid.
const ONE_MACHINE: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_plm", "isolated"),
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
];
/// What a launcher around the tests leaves in the environment, which would make `mpirun` part of
/// its job.
const LAUNCHERS: [&str; 5] = ["OMPI_", "PMIX_", "PMI_", "ORTE_", "SLURM_"];

/// A command that starts so many ranks; the program and its arguments are to be added. Each line
/// that a rank prints begins with its number.
pub fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    for (name, _) in std::env::vars_os() {
        if LAUNCHERS.iter().any(|launcher| name.to_string_lossy().starts_with(launcher)) {
            command.env_remove(name);
        }
    }
    command.envs(ONE_MACHINE);
    command.args(["--oversubscribe", "--tag-output", "--mca", "mpi_yield_when_idle", "1", "-n", &ranks.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What it printed, its ranks' own words last: a log's end shows them.
pub fn words(output: &Output) -> String {
    let text = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
    let (ranks, launcher): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("[1,"));
    format!("mpirun ended with {}\n{}\n{}", output.status, launcher.join("\n"), ranks.join("\n"))
}
