//! The hosts of a run.

use crate::failure::Failure;
use std::net::{TcpListener, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A host that answers does so within this time, also where it is busy.
const ANSWER: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Each host once, by a name that a command line takes.
    pub fn of(names: &[String]) -> Result<Self, Failure> {
        if names.is_empty() {
            return Ok(Self(vec!["localhost".to_string()]));
        }
        for (index, name) in names.iter().enumerate() {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            if name.is_empty() || name.starts_with('-') || !name.chars().all(fits) {
                let words = format!("--hosts: `{name}` is no host's name; give names or addresses with commas between");
                return Err(Failure::request(words));
            }
            if names[..index].contains(name) {
                return Err(Failure::request(format!(
                    "--hosts names {name} twice; --per-host says how many ranks it has"
                )));
            }
        }
        Ok(Self(names.to_vec()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn list(&self) -> String {
        self.0.join(", ")
    }

    /// Those that run a command when asked to, the way the launcher asks.
    pub fn that_answer(&self) -> Result<Self, Failure> {
        let asked: Vec<(&String, Option<Child>)> =
            self.0.iter().map(|host| (host, if is_this_machine(host) { None } else { ask(host) })).collect();
        let begun = Instant::now();
        let mut answering = vec![];
        for (host, child) in asked {
            if is_this_machine(host) || child.is_some_and(|child| answers(child, begun)) {
                answering.push(host.clone());
            } else {
                eprintln!("{host} does not answer");
            }
        }
        if answering.is_empty() { Err(Failure::run("no host answers")) } else { Ok(Self(answering)) }
    }
}

/// Whether an address is one of this machine's, as the launcher sees it: that can be bound.
fn is_this_machine(host: &str) -> bool {
    let addresses = (host, 0).to_socket_addrs().into_iter().flatten();
    addresses.into_iter().any(|address| TcpListener::bind(address).is_ok())
}

/// Runs `true` there.
fn ask(host: &str) -> Option<Child> {
    let agent = std::env::var("OMPI_MCA_plm_rsh_agent").unwrap_or_else(|_| "ssh".to_string());
    let mut words = agent.split_whitespace();
    let program = words.next()?;
    let mut command = Command::new(program);
    command.args(words);
    if program.rsplit('/').next() == Some("ssh") {
        command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
    }
    command.args([host, "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok()
}

fn answers(mut child: Child, begun: Instant) -> bool {
    while begun.elapsed() < ANSWER {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => return false,
        }
    }
    // It may be gone by now, which is as well.
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Result<Hosts, Failure> {
        Hosts::of(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn names_that_are_none_are_refused() {
        assert_eq!(of(&["a", "b.example.org", "10.0.0.1"]).unwrap().len(), 3);
        assert_eq!(of(&[]).unwrap().list(), "localhost");
        for names in [&["a", ""][..], &["a b"], &["--host"], &["a", "a"], &["a:8"]] {
            assert!(of(names).is_err(), "{names:?}");
        }
    }

    #[test]
    fn this_machine_is_known() {
        assert!(is_this_machine("127.0.0.1"));
        assert!(!is_this_machine("192.0.2.1"), "kept for documentation");
    }
}
