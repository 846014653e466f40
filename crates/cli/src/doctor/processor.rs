//! Cores and instruction sets.

use serde::Serialize;
use std::fmt;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

/// Vector extensions worth naming, as Linux writes them.
const VECTORS: [&str; 12] = [
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512_bf16",
    "avx512_fp16",
    "asimd",
    "sve",
    "sve2",
];
/// Matrix extensions.
const TILES: [&str; 4] = ["amx_tile", "amx_bf16", "amx_int8", "sme"];

#[derive(Serialize)]
pub struct Processor {
    name: String,
    architecture: &'static str,
    /// Cores this process may use: affinity and container limits counted.
    pub cores: usize,
    pub vectors: Vec<String>,
    pub tiles: Vec<String>,
}

impl Processor {
    pub fn look() -> Self {
        let system = System::new_with_specifics(RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()));
        let name = system.cpus().first().map_or("unknown", |cpu| cpu.brand()).trim().to_string();
        let features = features(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
        let has = |wanted: &[&str]| {
            let had = wanted.iter().filter(|name| features.iter().any(|feature| feature == *name));
            had.map(|name| name.to_string()).collect()
        };
        Self {
            name,
            architecture: std::env::consts::ARCH,
            cores: crate::cores::cores(),
            vectors: has(&VECTORS),
            tiles: has(&TILES),
        }
    }
}

/// What the first processor of `/proc/cpuinfo` has: `flags` on x86, `Features` on Arm.
fn features(cpuinfo: &str) -> Vec<String> {
    let named = |line: &str| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "flags" | "Features").then(|| value.split_whitespace().map(str::to_string).collect())
    };
    cpuinfo.lines().find_map(named).unwrap_or_default()
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        write!(f, "{} ({}), {} {cores} for this process", self.name, self.architecture, self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_both_families_are_found() {
        let x86 = "processor\t: 0\nmodel name\t: X\nflags\t\t: fpu avx2 amx_tile\nflags\t\t: other\n";
        assert_eq!(features(x86), ["fpu", "avx2", "amx_tile"]);
        assert_eq!(features("processor : 0\nFeatures : fp asimd sve\n"), ["fp", "asimd", "sve"]);
        assert!(features("").is_empty());
    }
}
