//! Two hosts on one machine: network namespaces with an address each and a link between them. MPI
//! goes over that link; it is cut in mid-step, or a host is stopped, and the run goes on on the
//! host that is left, to the losses of one that was never disturbed. Only root may make such
//! hosts; elsewhere the tests say that they were skipped.

#![cfg(target_os = "linux")]

mod common;

use common::mpi::{environment, process, within};
use common::resumed::{numbers, same_losses};
use common::{Place, henge_command};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const RUN: &str = r#"
run = { dir = "run", seed = 3, timeout = 40, heartbeat_timeout = 4 }
model = { layers = 2, hidden = 64, heads = 4, seq_len = 48, vocab_size = 509 }
layout = { tensor = 2, data = 2 }
data = { batches = "batches.json" }
checkpoint = { every = 10, keep = 3 }
train = { steps = 120, micro_batch = 2, optimizer = { lr = 1e-3, decay = "constant" } }
"#;
/// A run that is not over by then hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Two hosts and the link between them; gone at the end.
struct Hosts {
    names: [String; 2],
    addresses: [String; 2],
}

impl Hosts {
    /// Test binaries and tests run side by side: each `number` has names and addresses of its own.
    fn make(number: u8) -> Option<Self> {
        let id = format!("{}x{number}", std::process::id());
        let hosts = Self {
            names: ["a", "b"].map(|host| format!("henge{host}{id}")),
            addresses: [1, 2].map(|host| format!("10.213.{number}.{host}")),
        };
        if !ip(&["netns", "add", &hosts.names[0]]) {
            eprintln!("skipped: this test makes network namespaces, which only root may do");
            return None;
        }
        let [a, b] = &hosts.names;
        assert!(ip(&["netns", "add", b]));
        assert!(ip(&["-n", a, "link", "add", "link0", "type", "veth", "peer", "name", "link0", "netns", b]));
        for (name, address) in hosts.names.iter().zip(&hosts.addresses) {
            assert!(ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", "link0"]));
            assert!(ip(&["-n", name, "link", "set", "lo", "up"]));
            assert!(ip(&["-n", name, "link", "set", "link0", "up"]));
        }
        Some(hosts)
    }

    fn cut(&self) {
        assert!(ip(&["-n", &self.names[1], "link", "set", "link0", "down"]));
    }

    /// Stops every process of the second host.
    fn stop(&self) {
        self.signal("-STOP");
    }

    fn signal(&self, signal: &str) {
        for process in self.processes() {
            // One that is gone meanwhile needs none.
            drop(Command::new("kill").args([signal, &process]).stderr(Stdio::null()).status());
        }
    }

    fn processes(&self) -> Vec<String> {
        let listed = Command::new("ip").args(["netns", "pids", &self.names[1]]).output().expect("ip runs");
        String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
    }

    /// What the launcher opens the other host with: a shell there, where the link is up and the
    /// host answers. It holds no pipe of this process, which would never end once the link is cut.
    fn agent(&self, place: &Place) -> String {
        let [a, b] = &self.names;
        let path = place.write(
            "agent.sh",
            format!(
                "#!/bin/sh\nshift\nip -n {a} link show link0 | grep -q LOWER_UP || exit 1\n\
                 [ -e {stopped} ] && sleep 60\n\
                 exec ip netns exec {b} unshare --uts sh -c \"hostname {b}; $*\" >/dev/null 2>&1\n",
                stopped = place.path("stopped").display()
            ),
        );
        assert!(Command::new("chmod").arg("+x").arg(&path).status().is_ok_and(|status| status.success()));
        path.display().to_string()
    }

    /// `henge launch` on the first host, over both.
    fn launch(&self, place: &Place, more: &[&str]) -> Command {
        let hosts = self.addresses.join(",");
        let henge =
            henge_command(place, &[&["launch", "--hosts", &hosts, "--per-host", "2", "run.toml"], more].concat());
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[0], "unshare", "--uts", "sh", "-c"]);
        command.arg(format!("hostname {}; exec \"$@\"", self.names[0])).arg("sh");
        command.arg(henge.get_program()).args(henge.get_args()).current_dir(place.path(""));
        environment(&mut command);
        command.env_remove("OMPI_MCA_plm").env("OMPI_MCA_plm_rsh_agent", self.agent(place));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.signal("-KILL");
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn place() -> Place {
    let place = Place::new();
    place.write("batches.json", common::batches(120, 8));
    place.write("run.toml", RUN);
    place.succeed(&["train", "run.toml", "--set", "run.dir=whole"]);
    place
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn two_hosts_train_the_same_bits_over_their_link() {
    let Some(hosts) = Hosts::make(1) else { return };
    let place = place();
    let steps = ["--set", "train.steps=12"];
    place.succeed(&[&["train", "run.toml", "--set", "run.dir=short"], &steps[..]].concat());
    let ended = within(hosts.launch(&place, &steps).spawn().expect("ip runs"), LIMIT);
    assert!(ended.status.success(), "{}", said(&ended));
    assert_eq!(numbers(&place, "run"), numbers(&place, "short"));
}

/// The run loses its second host, says so, and goes on on the first.
fn goes_on_without_the_second(hosts: &Hosts, lose: impl Fn(&Place)) {
    let place = place();
    let run = hosts.launch(&place, &["--restart", "1"]).spawn().expect("ip runs");
    process(&place, 3, 25);
    lose(&place);
    let ended = within(run, LIMIT);
    let said = said(&ended);
    assert!(ended.status.success(), "{said}");
    let (second, [first, lost]) = (&hosts.names[1], &hosts.addresses);
    for word in [
        format!("(host {second}) has not been heard from for 4 s"),
        format!("{lost} does not answer"),
        format!("going on with 2 ranks on {first}"),
    ] {
        assert!(said.contains(&word), "`{word}`: {said}");
    }
    same_losses(&place, "run", "whole", 1e-5);
}

#[test]
fn a_link_that_is_cut_ends_the_run_which_goes_on_on_one_host() {
    let Some(hosts) = Hosts::make(2) else { return };
    goes_on_without_the_second(&hosts, |_| hosts.cut());
}

#[test]
fn a_host_that_is_stopped_ends_the_run_which_goes_on_on_the_other() {
    let Some(hosts) = Hosts::make(3) else { return };
    goes_on_without_the_second(&hosts, |place| {
        place.write("stopped", "");
        hosts.stop();
    });
}
