//! MPI: the library of this build, the launcher that is found, and whether they are one.

use super::tools::Tool;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// What ranks that are processes would run on.
#[derive(Serialize)]
pub struct Mpi {
    /// Whether this build has ranks that are processes.
    used: bool,
    /// The library's own words.
    library: Option<String>,
    library_path: Option<PathBuf>,
    launcher: Option<Tool>,
    /// Whether the launcher is the library's own; none where one is missing.
    same: Option<bool>,
    /// What to install or change.
    advice: Option<&'static str>,
}

impl Mpi {
    pub fn look() -> Self {
        Self::of(library(), loaded("libmpi.so"), Tool::find("mpirun"))
    }

    fn of(library: Option<String>, library_path: Option<PathBuf>, launcher: Option<Tool>) -> Self {
        let same = library.as_deref().zip(launcher.as_ref()).map(|(library, launcher)| {
            let said = launcher.version.as_deref().unwrap_or_default();
            kind(library) == kind(said) && version(library) == version(said)
        });
        let advice = match (&library, &launcher, same) {
            (None, None, _) => Some(
                "install it (Debian: `apt install openmpi-bin libopenmpi-dev libclang-dev`), then build with MPI: `cargo \
                 install --path crates/cli --features mpi`",
            ),
            (None, Some(_), _) => Some(
                "build with MPI: `cargo install --path crates/cli --features mpi` (needs Debian's libopenmpi-dev and \
                 libclang-dev)",
            ),
            (Some(_), None, _) => Some("there is no mpirun on PATH: `apt install openmpi-bin`"),
            (_, _, Some(false)) => Some(
                "put the mpirun of the library first on PATH (`dpkg -S` names the package of a file), or build again \
                 with the mpicc beside this mpirun",
            ),
            _ => None,
        };
        Self { used: library.is_some(), library, library_path, launcher, same, advice }
    }
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.library, &self.library_path) {
            (Some(library), Some(path)) => write!(f, "{library} ({})", path.display())?,
            (Some(library), None) => f.write_str(library)?,
            (None, _) => f.write_str("not used by this build")?,
        }
        match (&self.launcher, self.same) {
            (Some(launcher), Some(true)) => write!(f, "; its mpirun is {}", launcher.path.display())?,
            (Some(launcher), Some(false)) => write!(f, "; mpirun is another MPI's: {launcher}")?,
            (Some(launcher), None) => write!(f, "; mpirun is {launcher}")?,
            (None, _) => f.write_str("; no mpirun")?,
        }
        self.advice.map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

#[cfg(feature = "mpi")]
fn library() -> Option<String> {
    // Open MPI says its version first, MPICH on a line of its own.
    let words = henge_mpi::library_version();
    let line = words.lines().find(|line| !version(line).is_empty()).unwrap_or(&words);
    Some(line.split(',').next().unwrap_or(line).trim().to_string())
}

#[cfg(not(feature = "mpi"))]
fn library() -> Option<String> {
    None
}

/// The file of a library that this process has loaded.
fn loaded(name: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(PathBuf::from);
    paths.into_iter().find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
}

/// Open MPI's launchers have had names of their own.
fn kind(words: &str) -> &'static str {
    match words {
        words if ["Open MPI", "OpenRTE", "PRRTE"].iter().any(|name| words.contains(name)) => "Open MPI",
        words if ["MPICH", "HYDRA", "Intel"].iter().any(|name| words.contains(name)) => "MPICH",
        _ => "unknown",
    }
}

/// The first number with points in it.
fn version(words: &str) -> &str {
    let mut numbers = words.split(|c: char| !c.is_ascii_digit() && c != '.').filter(|word| word.contains('.'));
    numbers.find(|word| word.starts_with(|c: char| c.is_ascii_digit())).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(version: &str) -> Option<Tool> {
        Some(Tool { path: "/usr/bin/mpirun".into(), version: Some(version.to_string()) })
    }

    #[test]
    fn library_and_launcher_are_held_against_each_other() {
        let of = |library: Option<&str>, launcher| Mpi::of(library.map(str::to_string), None, launcher);
        let open_mpi = Some("Open MPI v4.1.4");
        assert_eq!(of(open_mpi, launcher("mpirun (Open MPI) 4.1.4")).same, Some(true));
        assert_eq!(of(open_mpi, launcher("mpirun (Open MPI) 5.0.1")).same, Some(false));
        assert_eq!(of(Some("MPICH Version: 4.0.2"), launcher("mpirun (Open MPI) 4.0.2")).same, Some(false));
        let without = of(open_mpi, None).to_string();
        assert!(without.contains("apt install openmpi-bin"), "{without}");
        let unused = of(None, launcher("mpirun (Open MPI) 4.1.4")).to_string();
        assert!(unused.starts_with("not used by this build; mpirun is /usr/bin/mpirun"), "{unused}");
        assert!(unused.contains("--features mpi"), "{unused}");
        let other = of(open_mpi, launcher("HYDRA build details: Version: 4.0.2")).to_string();
        assert!(other.contains("another MPI's"), "{other}");
    }

    #[test]
    fn versions_are_read_out_of_words() {
        assert_eq!(version("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"), "4.1.4");
        assert_eq!(version("no number"), "");
    }
}
