//! Programs that are installed, and GPUs.

use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

/// A program on the search path.
#[derive(Serialize)]
pub struct Tool {
    pub path: PathBuf,
    /// The line of its own words that has a version in it.
    pub version: Option<String>,
}

impl Tool {
    /// Looks along `PATH`, then asks the program for its version.
    pub fn find(name: &str) -> Option<Self> {
        let paths = std::env::var_os("PATH")?;
        let path = std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| path.is_file())?;
        let said = Command::new(&path).arg("--version").output().ok();
        let version = said.and_then(|said| version_line(&String::from_utf8_lossy(&said.stdout)));
        Some(Self { path, version })
    }

    /// Whether it is Open MPI's, of any age: the launcher has had names of its own.
    pub fn is_open_mpi(&self) -> bool {
        let version = self.version.as_deref().unwrap_or_default();
        ["Open MPI", "OpenRTE", "PRRTE"].iter().any(|name| version.contains(name))
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version.as_deref().unwrap_or("version unknown");
        write!(f, "{} ({version})", self.path.display())
    }
}

/// The first line with a number like 1.2 in it.
fn version_line(text: &str) -> Option<String> {
    let dotted =
        |word: &str| word.split('.').filter(|part| part.starts_with(|c: char| c.is_ascii_digit())).count() >= 2;
    text.lines().map(str::trim).find(|line| line.split_whitespace().any(dotted)).map(str::to_string)
}

#[derive(Serialize)]
pub struct Gpu {
    pub name: String,
    pub memory_bytes: u64,
}

/// The GPUs that NVIDIA's driver lists; none where there is no driver.
pub fn gpus() -> Vec<Gpu> {
    let query = ["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"];
    let said = Command::new("nvidia-smi").args(query).output().ok().filter(|said| said.status.success());
    said.map_or(Vec::new(), |said| parse_gpus(&String::from_utf8_lossy(&said.stdout)))
}

/// Lines of `name, MiB`.
fn parse_gpus(text: &str) -> Vec<Gpu> {
    let gpu = |line: &str| {
        let (name, mib) = line.rsplit_once(',')?;
        let mib: u64 = mib.trim().parse().ok()?;
        Some(Gpu { name: name.trim().to_string(), memory_bytes: mib << 20 })
    };
    text.lines().filter_map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        let open_mpi = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
        assert_eq!(version_line(open_mpi).as_deref(), Some("mpirun (Open MPI) 4.1.4"));
        let nvcc = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.4, V12.4.131\n";
        assert_eq!(version_line(nvcc).as_deref(), Some("Cuda compilation tools, release 12.4, V12.4.131"));
        assert_eq!(version_line("no version here"), None);
    }

    #[test]
    fn gpus_are_read_line_by_line() {
        let found = parse_gpus("NVIDIA H200, 143771\nbroken line\n");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].memory_bytes), ("NVIDIA H200", 143_771 << 20));
    }
}
