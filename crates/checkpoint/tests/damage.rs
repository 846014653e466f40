//! Damage at random, by the hundred (`HENGE_FLIPS` sets how many bits are flipped): never a wrong
//! number, always a name.

mod common;

use common::*;
use henge_checkpoint::{Checkpoint, CheckpointError, MANIFEST};
use henge_spec::Model;
use std::path::{Path, PathBuf};

struct Saved {
    _folder: tempfile::TempDir,
    model: Model,
    earlier: PathBuf,
    newest: PathBuf,
}

fn saved() -> Saved {
    let (folder, model) = (tempfile::tempdir().unwrap(), small_model());
    let earlier = save_made(folder.path(), &model, 5, (1, 2), 3);
    let newest = save_made(folder.path(), &model, 10, (2, 2), 3);
    Saved { _folder: folder, model, earlier, newest }
}

impl Saved {
    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = std::fs::read_dir(&self.newest).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files
    }

    fn load(&self) -> Result<(), CheckpointError> {
        check_made(&Checkpoint::open(&self.newest)?, &self.model)
    }

    /// Loads with `path` changed, puts it back, and checks that the error names it, and the
    /// checkpoint before it as the way out.
    fn expect_named(&self, path: &Path, what: &str) -> String {
        let error = self.load().expect_err(what).to_string();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(error.contains(name) || name == MANIFEST && error.contains("no manifest.json"), "{what}: {error}");
        assert!(error.contains(self.earlier.to_str().unwrap()), "{what}: {error}");
        error
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_and_named() {
    let saved = saved();
    let mut chance = Chance(11);
    let mut tensors_named = 0;
    let rounds = rounds("HENGE_FLIPS", 400);
    for round in 0..rounds {
        let files = saved.files();
        let path = &files[round % files.len()];
        let whole = std::fs::read(path).unwrap();
        let mut flipped = whole.clone();
        let place = chance.below(8 * whole.len());
        flipped[place / 8] ^= 1 << (place % 8);
        std::fs::write(path, &flipped).unwrap();
        let error = saved.expect_named(path, &format!("bit {place} of {}", path.display()));
        if path.extension().is_some_and(|e| e == "safetensors") && !error.contains("header") {
            assert!(error.contains("weight `") || error.contains("moment `"), "{error}");
            assert!(error.contains("at byte"), "{error}");
            tensors_named += 1;
        }
        std::fs::write(path, &whole).unwrap();
    }
    assert!(tensors_named > rounds / 4, "{tensors_named}");
    saved.load().unwrap();
}

#[test]
fn a_file_cut_or_grown_at_any_length_is_found_and_named() {
    let saved = saved();
    let mut chance = Chance(12);
    for round in 0..200 {
        let files = saved.files();
        let path = &files[round % files.len()];
        let whole = std::fs::read(path).unwrap();
        let length = if round < files.len() { 0 } else { chance.below(whole.len()) };
        std::fs::write(path, &whole[..length]).unwrap();
        saved.expect_named(path, &format!("{} cut to {length}", path.display()));
        std::fs::write(path, [&whole[..], b"x"].concat()).unwrap();
        saved.expect_named(path, &format!("{} one byte longer", path.display()));
        std::fs::write(path, &whole).unwrap();
    }
    saved.load().unwrap();
}

#[test]
fn a_missing_file_is_named_with_what_it_held() {
    let saved = saved();
    for path in saved.files() {
        let aside = path.with_extension("aside");
        std::fs::rename(&path, &aside).unwrap();
        let error = saved.expect_named(&path, "missing file");
        assert!(path.ends_with(MANIFEST) || error.contains("it holds `"), "{error}");
        std::fs::rename(&aside, &path).unwrap();
    }
    saved.load().unwrap();
}

#[test]
fn shards_of_two_checkpoints_do_not_mix() {
    let saved = saved();
    let (a, b) = (saved.newest.join("shard-00000.safetensors"), saved.newest.join("shard-00001.safetensors"));
    let aside = saved.newest.join("aside");
    std::fs::rename(&a, &aside).unwrap();
    std::fs::rename(&b, &a).unwrap();
    std::fs::rename(&aside, &b).unwrap();
    saved.expect_named(&a, "two shards swapped");
}

#[test]
fn a_later_version_is_told_from_damage() {
    let saved = saved();
    let path = saved.newest.join(MANIFEST);
    let text = std::fs::read_to_string(&path).unwrap();
    let (body, _) = text.split_once(",\n  \"checksum\"").unwrap();
    let body = body.replace("\"version\": 1", "\"version\": 7");
    let mut checksum = henge_files::Checksum::new();
    checksum.update(body.as_bytes());
    std::fs::write(&path, format!("{body},\n  \"checksum\": \"{}\"\n}}\n", checksum.hex())).unwrap();
    let error = saved.load().unwrap_err();
    assert!(matches!(error, CheckpointError::NewerVersion { found: 7, known: 1, .. }), "{error}");
}
