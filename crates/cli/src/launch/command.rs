//! The command line of Open MPI's `mpirun`.

use super::hosts::Hosts;
use crate::failure::Failure;
use std::path::PathBuf;
use std::process::Command;

/// One start of a run.
pub struct Start {
    pub hosts: Hosts,
    /// Ranks that a host holds.
    pub per_host: usize,
    /// Ranks in all, as many as the hosts hold or fewer.
    pub ranks: usize,
    /// Arguments of `henge`.
    pub train: Vec<String>,
}

/// A daemon that cannot be reached is found out by the network's own probes, before ranks give
/// each other up: seconds of silence, between two probes, and probes.
const PROBES: [(&str, &str); 3] =
    [("oob_tcp_keepalive_time", "5"), ("oob_tcp_keepalive_intvl", "2"), ("oob_tcp_keepalive_probes", "3")];

impl Start {
    /// `mpirun` and its arguments.
    pub fn line(&self) -> Result<Vec<String>, Failure> {
        let henge = std::env::current_exe().map_err(Failure::run)?;
        let folder = std::env::current_dir().map_err(Failure::run)?;
        Ok(self.line_of(henge, folder, is_root()))
    }

    fn line_of(&self, henge: PathBuf, folder: PathBuf, is_root: bool) -> Vec<String> {
        let mut line = vec!["mpirun".to_string()];
        line.extend(is_root.then(|| "--allow-run-as-root".to_string()));
        let slots = self.hosts.names().map(|host| format!("{host}:{}", self.per_host)).collect::<Vec<_>>().join(",");
        let pairs = [("--host", slots), ("-n", self.ranks.to_string()), ("--wdir", folder.display().to_string())];
        line.extend(pairs.into_iter().flat_map(|(flag, value)| [flag.to_string(), value]));
        // A rank has threads, which one core would not do for; consecutive ranks share a host.
        line.extend(["--map-by", "slot", "--bind-to", "none"].map(str::to_string));
        line.extend(PROBES.iter().flat_map(|(key, value)| ["--mca", key, value]).map(str::to_string));
        line.push(henge.display().to_string());
        line.extend(self.train.iter().cloned());
        line
    }

    pub fn command(&self) -> Result<Command, Failure> {
        let line = self.line()?;
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]);
        Ok(command)
    }

    /// As a person types it.
    pub fn words(&self) -> Result<String, Failure> {
        Ok(self.line()?.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| {
        use std::os::unix::fs::MetadataExt;
        process.uid() == 0
    })
}

/// A word that a shell leaves as it is.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ranks_become_slots() {
        let hosts = Hosts::of(&["a".to_string(), "10.0.0.2".to_string()]).unwrap();
        let train = ["train", "run.toml", "--set", "run.dir=two words"].map(str::to_string).to_vec();
        let start = Start { hosts, per_host: 8, ranks: 16, train };
        let line = start.line_of("/bin/henge".into(), "/shared/work".into(), false);
        let text = line.join(" ");
        assert!(text.starts_with("mpirun --host a:8,10.0.0.2:8 -n 16 --wdir /shared/work --map-by slot"), "{text}");
        assert!(text.ends_with("/bin/henge train run.toml --set run.dir=two words"), "{text}");
        assert_eq!(start.line_of("h".into(), "w".into(), true)[1], "--allow-run-as-root");
    }

    #[test]
    fn what_a_shell_would_split_is_quoted() {
        assert_eq!(quoted("layout.data=2"), "layout.data=2");
        assert_eq!(quoted("two words"), "'two words'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
