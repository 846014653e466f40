//! Memory and huge pages.

use henge_tensor::{Kind, Pool};
use indicatif::HumanBytes;
use serde::Serialize;
use std::fmt;
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// Bytes asked of the system to see whether they come on huge pages.
const PROBE: usize = 64 << 20;

#[derive(Serialize)]
pub struct Memory {
    /// The machine's, or the container's where it may use less.
    total_bytes: u64,
    /// What a run could take now.
    available_bytes: u64,
    pub huge_pages: HugePages,
}

#[derive(Serialize)]
pub struct HugePages {
    /// The system's word: always, madvise or never; absent where it has none.
    setting: Option<String>,
    /// Bytes of a probe.
    asked_bytes: u64,
    /// How many of them came on huge pages; absent where the system does not say.
    granted_bytes: Option<u64>,
}

impl Memory {
    pub fn look() -> Self {
        let (total_bytes, available_bytes) = total_and_available();
        Self { total_bytes, available_bytes, huge_pages: HugePages::look() }
    }
}

/// Bytes of the machine, or of the container where it may use less: all, and free for a run.
pub fn total_and_available() -> (u64, u64) {
    let system = System::new_with_specifics(RefreshKind::nothing().with_memory(MemoryRefreshKind::everything()));
    let limits = system.cgroup_limits();
    let within = |own: u64, limit: Option<u64>| limit.filter(|&limit| limit > 0).map_or(own, |limit| own.min(limit));
    (
        within(system.total_memory(), limits.as_ref().map(|limits| limits.total_memory)),
        within(system.available_memory(), limits.as_ref().map(|limits| limits.free_memory)),
    )
}

impl HugePages {
    fn look() -> Self {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok();
        let before = on_huge_pages();
        let mut probe = Pool::new().take(PROBE, Kind::Buffer);
        probe.fill(1);
        let granted_bytes = on_huge_pages().zip(before).map(|(after, before)| after.saturating_sub(before));
        Self { setting: setting.as_deref().and_then(chosen), asked_bytes: PROBE as u64, granted_bytes }
    }
}

/// The word in brackets of `always [madvise] never`.
fn chosen(setting: &str) -> Option<String> {
    let (_, rest) = setting.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_string())
}

/// Bytes of this process that lie on huge pages.
fn on_huge_pages() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} free for a run", HumanBytes(self.total_bytes), HumanBytes(self.available_bytes))
    }
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.setting.as_deref().unwrap_or("no setting found"))?;
        let asked = HumanBytes(self.asked_bytes);
        match self.granted_bytes {
            Some(granted) => write!(f, "; of {asked} asked for, {} came on huge pages", HumanBytes(granted))?,
            None => f.write_str("; the system does not say what it grants")?,
        }
        let never = self.setting.as_deref() == Some("never");
        if never {
            f.write_str(" (write madvise to /sys/kernel/mm/transparent_hugepage/enabled for faster steps)")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_is_the_setting() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("always madvise never"), None);
    }

    #[test]
    fn memory_is_of_this_world() {
        let memory = Memory::look();
        assert!(memory.available_bytes > 0 && memory.available_bytes <= memory.total_bytes);
        assert!(memory.huge_pages.granted_bytes.is_none_or(|granted| granted <= 2 * PROBE as u64));
    }
}
