//! One of several processes comes to a bad end; all others end too, in bounded time, and one
//! message names it and where it stood. This program starts itself under `mpirun`.
#![cfg_attr(not(feature = "mpi"), allow(dead_code, unused_imports))]

#[path = "../../comm/tests/support/mod.rs"]
mod support;

#[path = "support/mpirun.rs"]
mod mpirun;

#[cfg(feature = "mpi")]
use henge_comm::{Comm, Group, Reduce};
use std::time::{Duration, Instant};
use support::{Message, grid};

/// What the rank does, which rank, and words of the message.
const ENDS: [(&str, usize, &[&str]); 9] = [
    ("kill", 2, &["rank 2 ", "died", "(B7"]),
    ("kill", 0, &["rank 0 ", "died", "(B7"]),
    ("leave", 1, &["rank 1 ", "died", "(B7"]),
    ("stop", 3, &["rank 3 ", "not been heard from for 2 s", "(B7"]),
    ("stop", 0, &["rank 0 ", "not been heard from for 2 s", "(B7"]),
    ("stall", 1, &["waited 4 s", "rank 1 (host", "(B7) waits for nobody", "hangs or is slow: rank 1"]),
    ("fail", 2, &["rank 2 ", "failed at operation 7 (B7)", "its disk is gone"]),
    ("poison", 3, &["rank 3 ", "failed at operation 7 (B7)", "poisoned"]),
    ("late", 1, &["rank 1 ", "died"]),
];
const RANKS: usize = 4;
const HEARTBEAT: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(4);
/// A job that is not over by then hangs.
const LIMIT: Duration = Duration::from_secs(90);

#[cfg(feature = "mpi")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [end, culprit] => rank(end, culprit.parse().expect("a rank")),
        _ => ENDS.iter().for_each(|(end, culprit, words)| launch(end, *culprit, words)),
    }
}

#[cfg(not(feature = "mpi"))]
fn main() {
    println!("skipped: the feature `mpi` is off");
}

#[cfg(feature = "mpi")]
fn launch(end: &str, culprit: usize, words: &[&str]) {
    let mut command = mpirun::mpirun(RANKS);
    command.arg(std::env::current_exe().expect("this program")).args([end, &culprit.to_string()]);
    let begun = Instant::now();
    let output = mpirun::within(command.spawn().expect("mpirun starts (Debian: openmpi-bin)"), LIMIT);
    let said = mpirun::words(&output);
    assert!(!output.status.success(), "{end} of rank {culprit}: {said}");
    words.iter().for_each(|word| assert!(said.contains(word), "{end} of rank {culprit}, `{word}`: {said}"));
    assert_eq!(said.matches("verdict: ").count(), 1, "{end} of rank {culprit} is told once: {said}");
    println!("{end} of rank {culprit}: ended after {:.1} s", begun.elapsed().as_secs_f64());
}

#[cfg(feature = "mpi")]
fn rank(end: &str, culprit: usize) {
    // What a run does with it: the launcher sends it to all once one is gone.
    // SAFETY: no handler is called.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    let world = henge_mpi::World::start(|verdict| eprintln!("verdict: {}", verdict.words)).expect("MPI");
    world.set_heartbeat_timeout(HEARTBEAT);
    let comm = world.comm::<Message>(grid(2, 2, 1), TIMEOUT, 1).expect("communicators");
    let steps = (0..12).try_for_each(|step| {
        comm.at(step, &format!("B{step}"));
        if (step, comm.rank()) == (7, culprit) {
            meet(end, &world, &comm);
        }
        let mut data = vec![1.0_f32; 100_000];
        comm.all_reduce(Group::World, henge_tensor::ViewMut::of(&mut data), Reduce::Sum)
    });
    if let Err(error) = steps {
        let failed = henge_mpi::Failed { status: 1, words: error.to_string(), follows: true };
        let verdict = world.fail(failed).expect("a verdict");
        std::process::exit(verdict.status.into());
    }
    assert_eq!(end, "late", "rank {} met no end", comm.rank());
    if comm.rank() == culprit {
        std::process::abort();
    }
    world.finish();
}

#[cfg(feature = "mpi")]
fn meet(end: &str, world: &henge_mpi::World, comm: &impl Comm<Message>) {
    // Long enough for the others to have heard where this rank is.
    std::thread::sleep(Duration::from_millis(if end == "late" { 0 } else { 600 }));
    match end {
        // SAFETY: ends, or stops, this process.
        "kill" => drop(unsafe { libc::raise(libc::SIGKILL) }),
        // SAFETY: as above.
        "stop" => drop(unsafe { libc::raise(libc::SIGSTOP) }),
        // SAFETY: as above.
        "leave" => unsafe { libc::_exit(0) },
        "stall" => loop {
            std::thread::park();
        },
        "poison" => comm.poison("poisoned"),
        "fail" => {
            let words = "its disk is gone".to_owned();
            let verdict = world.fail(henge_mpi::Failed { status: 1, words, follows: false }).expect("a verdict");
            std::process::exit(verdict.status.into());
        }
        "late" => {}
        other => panic!("no end is called {other}"),
    }
}
