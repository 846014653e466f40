//! Folders of others through Henge and back: every tensor byte for byte.

mod common;

use common::*;
use henge_checkpoint::{
    Checkpoint, CheckpointError, Cut, Export, HfFolder, diff, export, import, latest, list, open_source, reshape,
    verify,
};
use henge_spec::DType;
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::Path;

/// Every folder, the encoder's beside the decoders'.
fn folders() -> impl Iterator<Item = &'static str> {
    HF_FOLDERS.into_iter().chain(["oracle/bert"])
}

/// Name, type, shape and bytes of every tensor of a folder, read by the reference implementation.
fn tensors(folder: &Path) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "safetensors") {
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
            let value = (format!("{:?}", view.dtype()), view.shape().to_vec(), view.data().to_vec());
            assert!(found.insert(name, value).is_none());
        }
    }
    found
}

#[test]
fn real_folders_come_back_byte_for_byte_through_any_layout() {
    let Some(data) = test_data() else { return };
    for name in folders() {
        let source = data.join(name);
        let (hf, model) = open_hf(&source);
        let original = tensors(&source);
        for layout in [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)] {
            let folder = tempfile::tempdir().unwrap();
            let checkpoint = save_weights(folder.path(), &model, &hf, layout);
            let out = folder.path().join("out");
            let done = export(&checkpoint, &Export::float32(), &out).unwrap();
            assert_eq!(done.tensors, original.len());
            assert_eq!(tensors(&out), original, "{name} through {layout:?}");
            // The configuration describes the same model.
            assert_eq!(HfFolder::open(&out).unwrap().facts(), hf.facts(), "{name}");
        }
    }
}

#[test]
fn import_reshape_and_export_change_no_bit() {
    let Some(data) = test_data() else { return };
    for name in folders() {
        let (source, folder) = (data.join(name), tempfile::tempdir().unwrap());
        let at = |part: &str| folder.path().join(part);
        import(open_source(&source).unwrap().as_ref(), Cut::Shards(3), &at("imported")).unwrap();
        let mut before = at("imported");
        let cuts = [Cut::Shards(7), Cut::Layout { tensor: 2, pipeline: 1 }, Cut::Shards(1)];
        for (place, cut) in cuts.into_iter().enumerate() {
            let after = at(&format!("reshaped-{place}"));
            let checkpoint = Checkpoint::open(&before).unwrap();
            let manifest = reshape(&checkpoint, cut, &after).unwrap();
            assert_eq!(manifest.run, checkpoint.manifest().run);
            verify(&after).unwrap();
            before = after;
        }
        let exported = export(open_source(&before).unwrap().as_ref(), &Export::float32(), &at("out")).unwrap();
        assert_eq!(tensors(&at("out")), tensors(&source), "{name}");
        // The tokenizer follows the weights through the checkpoint.
        let has_tokenizer = source.join("tokenizer.json").is_file();
        assert_eq!(exported.tokenizer.contains(&"tokenizer.json".to_string()), has_tokenizer);
        let same = diff(open_source(&source).unwrap().as_ref(), open_source(&before).unwrap().as_ref()).unwrap();
        assert!(!same.is_empty() && same.iter().all(henge_checkpoint::TensorDiff::is_same));
    }
}

#[test]
fn moments_and_state_survive_a_reshape() {
    let (folder, model) = (tempfile::tempdir().unwrap(), small_model());
    let first = save_made(folder.path(), &model, 5, (2, 2), 3);
    for (place, cut) in [Cut::Shards(5), Cut::Layout { tensor: 4, pipeline: 2 }].into_iter().enumerate() {
        let out = folder.path().join(format!("reshaped-{place}"));
        reshape(&Checkpoint::open(&first).unwrap(), cut, &out).unwrap();
        let checkpoint = Checkpoint::open(&out).unwrap();
        check_made(&checkpoint, &model).unwrap();
        assert_eq!(checkpoint.manifest().run, run_state(5));
    }
}

#[test]
fn half_precision_folders_are_exact_in_their_own_precision() {
    let Some(data) = test_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |part: &str| folder.path().join(part);
    for dtype in [DType::BF16, DType::F16] {
        let (once, twice) = (at(&format!("{dtype}-once")), at(&format!("{dtype}-twice")));
        let options = Export { dtype, ..Export::float32() };
        export(open_source(&data.join("oracle/llama")).unwrap().as_ref(), &options, &once).unwrap();
        import(open_source(&once).unwrap().as_ref(), Cut::Shards(2), &at(&format!("{dtype}"))).unwrap();
        export(open_source(&at(&format!("{dtype}"))).unwrap().as_ref(), &options, &twice).unwrap();
        assert_eq!(tensors(&once), tensors(&twice));
    }
    // A bfloat16 has 8 significant bits: rounding moves each number by at most 2^-8 of it.
    let changes = diff(
        open_source(&data.join("oracle/llama")).unwrap().as_ref(),
        open_source(&at("bf16-once")).unwrap().as_ref(),
    );
    for change in changes.unwrap() {
        let numbers = change.numbers.unwrap();
        assert!(numbers.difference_norm <= numbers.left_norm / 256.0, "{change:?}");
    }
}

#[test]
fn large_models_are_written_in_parts() {
    let Some(data) = test_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (data.join("oracle/gpt2"), folder.path().join("out"));
    let options = Export { shard_bytes: 200_000, ..Export::float32() };
    let done = export(open_source(&source).unwrap().as_ref(), &options, &out).unwrap();
    assert!(done.weights.len() > 3 && done.weights[0].starts_with("model-00001-of-0000"), "{done:?}");
    assert_eq!(tensors(&out), tensors(&source));
    assert!(
        diff(open_source(&source).unwrap().as_ref(), open_source(&out).unwrap().as_ref())
            .unwrap()
            .iter()
            .all(henge_checkpoint::TensorDiff::is_same)
    );
    std::fs::remove_file(out.join(&done.weights[1])).unwrap();
    let error = HfFolder::open(&out).unwrap_err().to_string();
    assert!(error.contains(&done.weights[1]), "{error}");
}

#[test]
fn differences_are_given_by_tensor() {
    let (folder, model) = (tempfile::tempdir().unwrap(), small_model());
    let open = |part: &str| latest(&folder.path().join(part)).unwrap().unwrap();
    save_weights(&folder.path().join("a"), &model, &Made, (1, 1));
    let staged = henge_checkpoint::stage(&folder.path().join("b"), 2).unwrap();
    let shards = write_shards(&staged, &model, &[henge_checkpoint::Kind::Weight], (1, 1), |kind, p, block| {
        let mut values = Made::block(kind, p, block);
        if p.name == "layer.1.norm2.gain" {
            values.fill(2.0);
            values[3] = 5.0;
        }
        values
    });
    let manifest = henge_checkpoint::Manifest::assemble(&model, run_state(2), shards).unwrap();
    henge_checkpoint::publish(&folder.path().join("b"), &manifest, 1).unwrap();
    let found = diff(&open("a"), &open("b")).unwrap();
    let changed: Vec<_> = found.iter().filter(|d| !d.is_same()).collect();
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].name, "layer.1.norm2.gain");
    let numbers = changed[0].numbers.unwrap();
    assert_eq!((numbers.differing, numbers.right_norm), (16, (15.0f64 * 4.0 + 25.0).sqrt()));
}

#[test]
fn the_list_shows_every_checkpoint_and_says_what_is_damaged() {
    let (folder, model) = (tempfile::tempdir().unwrap(), small_model());
    let run = folder.path().join("checkpoints");
    save_made(&run, &model, 5, (1, 1), 9);
    let second = save_made(&run, &model, 10, (2, 1), 9);
    let summaries = list(folder.path()).unwrap();
    let summary = summaries[1].as_ref().unwrap();
    assert_eq!((summary.step, summary.samples, summary.moments, summary.shards), (10, 80, true, 2));
    let count: usize = henge_spec::parameters(&model).iter().map(henge_spec::Parameter::len).sum();
    assert_eq!(summary.parameters, count as u64);
    std::fs::remove_file(second.join("shard-00001.safetensors")).unwrap();
    let summaries = list(folder.path()).unwrap();
    assert!(summaries[0].is_ok());
    assert!(matches!(summaries[1], Err(CheckpointError::MissingShard { .. })));
    assert!(matches!(list(&folder.path().join("none")), Err(CheckpointError::NotFound { .. })));
}

#[test]
fn verify_names_everything_that_is_wrong() {
    let (folder, model) = (tempfile::tempdir().unwrap(), small_model());
    let path = save_made(folder.path(), &model, 5, (2, 1), 3);
    let whole = verify(&path).unwrap();
    assert_eq!((whole.files, whole.tensors), (2, 3 * henge_spec::parameters(&model).len()));
    std::fs::remove_file(path.join("shard-00001.safetensors")).unwrap();
    let shard = path.join("shard-00000.safetensors");
    let mut bytes = std::fs::read(&shard).unwrap();
    let end = bytes.len();
    bytes[end - 1] ^= 1;
    bytes[end - 10_000] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let problems = verify(&path).unwrap_err();
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 3, "{text:#?}");
}

#[test]
fn nothing_is_overwritten_and_nothing_half_written_stays() {
    let (folder, model) = (tempfile::tempdir().unwrap(), small_model());
    let path = save_made(folder.path(), &model, 5, (1, 1), 3);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let error = reshape(&checkpoint, Cut::Shards(2), &path).unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
    for (cut, words) in [
        (Cut::Layout { tensor: 3, pipeline: 1 }, "does not split over 3"),
        (Cut::Layout { tensor: 1, pipeline: 5 }, "2 layers are not divisible by 5"),
        (Cut::Shards(0), "0 shards"),
    ] {
        let error = reshape(&checkpoint, cut, &folder.path().join("out")).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // Damage found on the way leaves no folder behind.
    let shard = path.join("shard-00000.safetensors");
    let mut bytes = std::fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    reshape(&Checkpoint::open(&path).unwrap(), Cut::Shards(2), &folder.path().join("out")).unwrap_err();
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["step-00000005"]);
}
