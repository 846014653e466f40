//! What this processor has that the kernels use, for reports.

use crate::simd::Level;
use std::fmt;

/// Instruction sets found at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// What kernels are chosen for.
    pub level: Level,
    /// Products of bfloat16 pairs in vectors.
    pub avx512_bf16: bool,
    /// Products of bfloat16 tiles.
    pub amx_bf16: bool,
    /// Cores that the system lets this process use.
    pub cores: usize,
}

/// Looks at this processor.
pub fn features() -> Features {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    #[cfg(target_arch = "x86_64")]
    let (avx512_bf16, amx_bf16) = (is_x86_feature_detected!("avx512bf16"), amx_bf16());
    #[cfg(not(target_arch = "x86_64"))]
    let (avx512_bf16, amx_bf16) = (false, false);
    Features { level: Level::detect(), avx512_bf16, amx_bf16, cores }
}

/// AMX-TILE and AMX-BF16: leaf 7, bits 24 and 22 of edx. (The standard library's own test
/// of it is not stable.)
#[cfg(target_arch = "x86_64")]
fn amx_bf16() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (1 << 24 | 1 << 22) == 1 << 24 | 1 << 22
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores, {}", self.cores, self.level.name())?;
        for (has, name) in [(self.avx512_bf16, "AVX-512 bf16"), (self.amx_bf16, "AMX bf16")] {
            if has {
                write!(f, ", {name}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux lists what it lets programs use.
    #[test]
    #[cfg(target_os = "linux")]
    fn features_are_those_that_the_system_lists() {
        let listed = std::fs::read_to_string("/proc/cpuinfo").expect("Linux has /proc/cpuinfo");
        let has = |name: &str| listed.split_whitespace().any(|flag| flag == name);
        let found = features();
        assert_eq!(
            found.level == Level::Avx512,
            has("avx512f") && has("avx512dq") && has("avx512bw") && has("avx512vl")
        );
        assert_eq!(found.avx512_bf16, has("avx512_bf16"));
        assert_eq!(found.amx_bf16, has("amx_tile") && has("amx_bf16"));
        assert!(found.cores >= 1 && found.to_string().contains(found.level.name()));
    }
}
