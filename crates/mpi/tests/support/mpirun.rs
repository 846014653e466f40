//! `mpirun` on this machine alone, for tests of any crate.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What lets ranks of one machine meet wherever tests run: more ranks than cores, who waits lets
/// others go on, no remote shell is looked for, and no process reads another's memory, which
/// containers forbid.
const ONE_MACHINE: [(&str, &str); 5] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_plm", "isolated"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
];
/// What a launcher around the tests leaves in the environment, which would make `mpirun` part of
/// its job.
const LAUNCHERS: [&str; 5] = ["OMPI_", "PMIX_", "PMI_", "ORTE_", "SLURM_"];

/// A command that starts so many ranks; the program and its arguments are to be added. Each line
/// that a rank prints begins with its number.
pub fn mpirun(ranks: usize) -> Command {
    need_loopback();
    let mut command = Command::new("mpirun");
    environment(&mut command);
    command.args(["--oversubscribe", "--tag-output", "-n", &ranks.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `mpirun` needs an interface, and a sandbox may begin with its loopback down.
///
/// # Panics
/// Where it is down and cannot be brought up.
fn need_loopback() {
    let is_up = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        TcpStream::connect(listener.local_addr().expect("its address")).is_ok()
    };
    if !is_up() {
        // Whether it could is what is looked at.
        drop(Command::new("ip").args(["link", "set", "lo", "up"]).status());
        assert!(is_up(), "the loopback interface is down and mpirun needs it: `ip link set lo up`");
    }
}

/// The environment of a launcher in a test.
pub fn environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if LAUNCHERS.iter().any(|launcher| name.to_string_lossy().starts_with(launcher)) {
            command.env_remove(name);
        }
    }
    command.envs(ONE_MACHINE);
}

/// Waits for a launcher that is over within a limit, and returns what it printed till then: a
/// process that it leaves behind may hold its pipes open.
///
/// # Panics
/// Where it is not; it is then ended.
#[allow(dead_code)] // not every test bounds its command
pub fn within(mut child: Child, limit: Duration) -> Output {
    let begun = Instant::now();
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of this process") {
            break Some(status);
        }
        if begun.elapsed() > limit {
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if status.is_none() {
        // The launcher takes its ranks with it.
        drop(Command::new("kill").args(["-TERM", &child.id().to_string()]).status());
        std::thread::sleep(Duration::from_secs(5));
        drop(child.kill());
    }
    let ended = child.wait().expect("a child of this process");
    // The last words are on their way.
    std::thread::sleep(Duration::from_millis(200));
    let take = |words: Words| std::mem::take(&mut *words.lock().expect("a reader that does not panic"));
    let output = Output { status: status.unwrap_or(ended), stdout: take(stdout), stderr: take(stderr) };
    assert!(status.is_some(), "not over after {limit:?}\n{}", words(&output));
    output
}

type Words = Arc<Mutex<Vec<u8>>>;

/// What comes out of a pipe, by a thread of its own: a full one would hold the process up.
fn collect(pipe: Option<impl Read + Send + 'static>) -> Words {
    let words = Words::default();
    let (mut pipe, into) = (pipe.expect("a pipe"), words.clone());
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            into.lock().expect("a taker that does not panic").extend(&buffer[..count]);
        }
    });
    words
}

/// What it printed, its ranks' own words last: a log's end shows them.
pub fn words(output: &Output) -> String {
    let text = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
    let (ranks, launcher): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("[1,"));
    format!("mpirun ended with {}\n{}\n{}", output.status, launcher.join("\n"), ranks.join("\n"))
}
