//! Dependency arrows: the manifests against the table of ARCHITECTURE.md.

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Fails with every arrow that the table does not allow and every crate it does not name.
pub fn check(root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    let faults = faults(&allowed(&text), &actual(&root.join("crates"))?);
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

/// The table's rows: the crate in the first column, what it may use in the last.
fn allowed(architecture: &str) -> Arrows {
    let cells = |line: &str| line.split('|').map(str::trim).map(str::to_string).collect::<Vec<_>>();
    let rows = architecture.lines().filter(|line| line.starts_with("| `")).map(cells).filter(|row| row.len() == 6);
    let names = |cell: &str| cell.split(',').map(str::trim).filter(|name| *name != "-").map(str::to_string).collect();
    rows.map(|row| (row[1].trim_matches('`').to_string(), names(&row[4]))).collect()
}

/// What each manifest under `crates` depends on within the workspace, tests included.
fn actual(crates: &Path) -> Result<Arrows> {
    let mut arrows = Arrows::new();
    for entry in fs::read_dir(crates)? {
        let path = entry?.path().join("Cargo.toml");
        let name = path.parent().and_then(Path::file_name).context("a crate's folder")?.to_string_lossy().to_string();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let manifest: toml::Table = text.parse().with_context(|| path.display().to_string())?;
        arrows.insert(name, dependencies(&manifest));
    }
    Ok(arrows)
}

fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(|table| table.keys())
        .filter_map(|name| name.strip_prefix("henge-"))
        .map(str::to_string)
        .collect()
}

fn faults(allowed: &Arrows, actual: &Arrows) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, used) in actual {
        match allowed.get(name) {
            None => faults.push(format!("ARCHITECTURE.md has no row for crates/{name}")),
            Some(may) => {
                let wrong = used.difference(may);
                faults.extend(wrong.map(|other| format!("crates/{name} must not use {other} (ARCHITECTURE.md)")));
            }
        }
    }
    let gone = allowed.keys().filter(|name| !actual.contains_key(*name));
    faults.extend(gone.map(|name| format!("ARCHITECTURE.md names crates/{name}, which does not exist")));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "| crate | what | not | may use |\n|---|---|---|---|\n| `a` | x | y | - |\n| `b` | x | y | a |\n";

    fn arrows(list: &[(&str, &[&str])]) -> Arrows {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        list.iter().map(|(name, used)| (name.to_string(), set(used))).collect()
    }

    #[test]
    fn allowed_arrows_pass() {
        assert!(faults(&allowed(TABLE), &arrows(&[("a", &[]), ("b", &["a"])])).is_empty());
    }

    #[test]
    fn an_arrow_against_the_table_is_named() {
        let found = faults(&allowed(TABLE), &arrows(&[("a", &["b"]), ("b", &[])]));
        assert_eq!(found, ["crates/a must not use b (ARCHITECTURE.md)"]);
    }

    #[test]
    fn crates_and_rows_must_meet() {
        let found = faults(&allowed(TABLE), &arrows(&[("a", &[]), ("c", &[])]));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn this_workspace_keeps_to_its_table() {
        check(&crate::root()).unwrap();
    }
}
