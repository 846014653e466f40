//! Damage at random, by the hundred (`HENGE_FLIPS` sets how many bits are flipped, and how often a
//! file is cut): never a wrong number, always a name.

mod common;

use common::*;
use henge_checkpoint::{
    Checkpoint, CheckpointError, Kind, MANIFEST, Manifest, latest, newest_written, note_part, note_run, publish,
    remove_notes, stage, written,
};
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
    eprintln!("{rounds} bits flipped, all found");
}

#[test]
fn a_file_cut_or_grown_at_any_length_is_found_and_named() {
    let saved = saved();
    let mut chance = Chance(12);
    let rounds = rounds("HENGE_FLIPS", 200);
    for round in 0..rounds {
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
    eprintln!("{rounds} files cut and {rounds} grown, all found");
}

/// A save that is written and not yet published: nothing of it is published once a note is damaged,
/// and a damaged shard is found when it is read; the checkpoint before it stays.
#[test]
fn damage_before_publication_is_found_too() {
    let (folder, model) = (tempfile::tempdir().unwrap(), small_model());
    save_made(folder.path(), &model, 5, (1, 2), 3);
    let staged = stage(folder.path(), 10).unwrap();
    let records = write_shards(&staged, &model, &Kind::ALL, (2, 1), Made::block);
    note_run(&staged, &run_state(10)).unwrap();
    for (rank, record) in records.into_iter().enumerate() {
        note_part(&staged, rank, record, [rank as f64; 3]).unwrap();
    }
    let mut notes: Vec<_> = std::fs::read_dir(&staged).unwrap().map(|entry| entry.unwrap().path()).collect();
    notes.retain(|path| path.extension().is_some_and(|extension| extension == "note"));
    notes.sort();
    assert_eq!(notes.len(), 3);
    let (mut chance, rounds) = (Chance(13), rounds("HENGE_FLIPS", 200));
    for round in 0..rounds {
        let path = &notes[round % notes.len()];
        let whole = std::fs::read(path).unwrap();
        let mut damaged = whole.clone();
        let place = chance.below(8 * whole.len());
        match round % 4 {
            0 => damaged.truncate(place / 8),
            _ => damaged[place / 8] ^= 1 << (place % 8),
        }
        std::fs::write(path, &damaged).unwrap();
        assert_eq!(newest_written(folder.path(), 2), None, "{} at bit {place}", path.display());
        let error = written(&staged, 2).expect_err("damage").to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        std::fs::write(path, &whole).unwrap();
    }
    assert_eq!(latest(folder.path()).unwrap().unwrap().manifest().run.step, 5);
    let (_, whole) = newest_written(folder.path(), 2).unwrap();
    let manifest = Manifest::assemble(&model, whole.run, whole.records).unwrap();
    remove_notes(&staged, 2).unwrap();
    publish(folder.path(), &manifest, 3).unwrap();
    let checkpoint = latest(folder.path()).unwrap().unwrap();
    assert_eq!(checkpoint.manifest().run, run_state(10));
    check_made(&checkpoint, &model).unwrap();
    eprintln!("{rounds} notes damaged, all found");
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
