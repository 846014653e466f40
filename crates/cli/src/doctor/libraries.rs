//! Shared libraries of GPU machines: the driver's, NCCL, libtorch.

use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library that is loaded at run time.
#[derive(Serialize)]
pub struct Library {
    name: &'static str,
    path: Option<PathBuf>,
    /// How to get it, where it is missing.
    advice: Option<&'static str>,
}

#[derive(Serialize)]
pub struct Libraries {
    pub libtorch: Library,
    pub cuda_driver: Library,
    pub nccl: Library,
}

impl Libraries {
    pub fn look() -> Self {
        let torch = torch();
        let mut folders = search_path();
        folders.extend(torch.iter().map(|torch| torch.join("lib")));
        // PyTorch's wheel brings NCCL as a wheel beside it.
        folders.extend(torch.iter().filter_map(|torch| Some(torch.parent()?.join("nvidia/nccl/lib"))));
        let find = |name: &'static str, advice| Library::of(name, &folders, &cached(), advice);
        Self {
            libtorch: find("libtorch_cpu.so", "`pip install torch==2.11.0`, or name a folder of it by LIBTORCH"),
            cuda_driver: find("libcuda.so.1", "it comes with NVIDIA's driver (Debian: `apt install nvidia-driver`)"),
            nccl: find("libnccl.so.2", "`pip install nvidia-nccl-cu12`, or libnccl2 of NVIDIA's packages"),
        }
    }
}

impl Library {
    fn of(name: &'static str, folders: &[PathBuf], cached: &str, advice: &'static str) -> Self {
        let beside = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        let path = beside.or_else(|| in_cache(cached, name));
        Self { name, advice: path.is_none().then_some(advice), path }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.advice) {
            (Some(path), _) => write!(f, "{}", path.display()),
            (None, advice) => write!(f, "no {}: {}", self.name, advice.unwrap_or_default()),
        }
    }
}

fn search_path() -> Vec<PathBuf> {
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    std::env::split_paths(&listed).filter(|folder| folder.is_absolute()).collect()
}

/// The folder of libtorch: the one that is named, or that of the Python on the path.
fn torch() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("LIBTORCH") {
        return Some(named.into());
    }
    let script =
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')";
    let said = Command::new("python3").args(["-c", script]).output().ok()?;
    let folder = String::from_utf8_lossy(&said.stdout).trim().to_string();
    (!folder.is_empty()).then(|| folder.into())
}

/// What the system's loader knows, `name (kind) => path` a line.
fn cached() -> String {
    let ask = |program: &str| Command::new(program).arg("-p").output().ok();
    let said = ask("ldconfig").or_else(|| ask("/sbin/ldconfig"));
    said.map_or(String::new(), |said| String::from_utf8_lossy(&said.stdout).into_owned())
}

fn in_cache(cached: &str, name: &str) -> Option<PathBuf> {
    let entry = cached.lines().map(str::trim).find(|line| line.split_whitespace().next() == Some(name))?;
    let (_, path) = entry.split_once("=> ")?;
    Some(Path::new(path).to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_in_a_folder_or_in_the_loaders_list_or_advised_on() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libone.so"), "").unwrap();
        let cached = "2 libs found\n\tlibtwo.so.1 (libc6,x86-64) => /usr/lib/libtwo.so.1\n";
        let of = |name| Library::of(name, &[folder.path().to_path_buf()], cached, "install it");
        assert_eq!(of("libone.so").path, Some(folder.path().join("libone.so")));
        assert_eq!(of("libtwo.so.1").to_string(), "/usr/lib/libtwo.so.1");
        assert_eq!(of("libtwo.so").to_string(), "no libtwo.so: install it");
    }
}
