//! Whatever layout writes, whatever layout reads: the same bits.

mod common;

use common::*;
use henge_checkpoint::{Block, Checkpoint, CheckpointError, Kind, Manifest, Weights, latest, publish, stage};
use henge_spec::parameters;

const LAYOUTS: [(usize, usize); 5] = [(1, 1), (2, 1), (4, 1), (1, 3), (2, 2)];

#[test]
fn any_layout_reads_what_any_layout_wrote() {
    let model = small_model();
    for written in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        save_made(folder.path(), &model, 5, written, 3);
        for (tensor, _) in LAYOUTS {
            // Opened afresh: reads of whole chunks and of parts check themselves apart.
            let checkpoint = latest(folder.path()).unwrap().unwrap();
            for rank in 0..tensor {
                for kind in Kind::ALL {
                    for p in parameters(&model) {
                        let block = Block::from(p.block(&model, rank, tensor));
                        let mut out = vec![f32::NAN; block.len()];
                        checkpoint.read(kind, &p.name, block, &mut out).unwrap();
                        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                        assert_eq!(bits(&out), bits(&Made::block(kind, &p, block)), "{kind} {} {block}", p.name);
                    }
                }
            }
        }
    }
}

#[test]
fn blocks_of_one_row_one_column_or_nothing_are_read() {
    let model = small_model();
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(&save_made(folder.path(), &model, 5, (2, 1), 3)).unwrap();
    let mut chance = Chance(1);
    for p in parameters(&model) {
        let (rows, columns) = p.matrix();
        for _ in 0..20 {
            let (row, column) = (chance.below(rows), chance.below(columns));
            let (all_rows, all_columns) = (rows - row, columns - column);
            for (rows, columns) in [(1, all_columns), (all_rows, 1), (0, all_columns), (all_rows, 0), (1, 1)] {
                let block = Block { row, rows, column, columns };
                let mut out = vec![0.0; block.len()];
                checkpoint.read(Kind::Weight, &p.name, block, &mut out).unwrap();
                let expected = if block.is_empty() { Vec::new() } else { Made::block(Kind::Weight, &p, block) };
                assert!(out.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{} {block}", p.name);
            }
        }
    }
}

#[test]
fn a_rank_without_anything_makes_no_file() {
    let model = henge_spec::Model::gpt(1, 8, 2, 4, 10);
    let folder = tempfile::tempdir().unwrap();
    let p = &parameters(&model)[0];
    let empty = Block { row: 10, rows: 0, column: 0, columns: 8 };
    let slots = vec![henge_checkpoint::Slot::new(Kind::Weight, p, empty)];
    let mut writer = henge_checkpoint::ShardWriter::create(folder.path(), 3, slots).unwrap();
    writer.add(Kind::Weight, p, empty, &[]).unwrap();
    assert_eq!(writer.finish().unwrap().file, None);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_state_of_the_run_comes_back_to_the_last_bit() {
    let model = small_model();
    let folder = tempfile::tempdir().unwrap();
    let mut run = run_state(9);
    run.loss = Some(0.1 + 0.2);
    run.config = "text = \"\u{e9}\\\" \u{1f980}\"\n# a comment\n".to_string();
    let staged = stage(folder.path(), 9).unwrap();
    let shards = write_shards(&staged, &model, &Kind::ALL, (1, 1), Made::block);
    let manifest = Manifest::assemble(&model, run.clone(), shards).unwrap();
    let checkpoint = Checkpoint::open(&publish(folder.path(), &manifest, 1).unwrap()).unwrap();
    assert_eq!(checkpoint.manifest(), &manifest);
    assert_eq!(checkpoint.manifest().run, run);
    assert_eq!(checkpoint.manifest().model, model.facts());
    checkpoint.check_model(&model).unwrap();
}

#[test]
fn another_model_is_named_by_the_key_that_differs() {
    let model = small_model();
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(&save_made(folder.path(), &model, 5, (1, 1), 3)).unwrap();
    let mut other = model.clone();
    other.dropout.hidden = 0.3; // free
    checkpoint.check_model(&other).unwrap();
    other.norm_eps = 1e-6;
    let error = checkpoint.check_model(&other).unwrap_err();
    assert!(matches!(&error, CheckpointError::OtherModel { key, .. } if key == "model.norm_eps"), "{error}");
    other = henge_spec::Model { seq_len: 16, ..model.clone() };
    let error = checkpoint.check_model(&other).unwrap_err().to_string();
    assert!(error.contains("`model.seq_len` is 8 there and 16 here"), "{error}");
    let wide = parameters(&henge_spec::Model::gpt(2, 32, 4, 8, 50)).remove(0);
    let error = Weights::read(&checkpoint, &wide, Block::whole(&wide), &mut vec![0.0; wide.len()]).unwrap_err();
    assert!(matches!(error, CheckpointError::Shape { .. }), "{error}");
}

#[test]
fn shards_that_miss_or_double_something_are_not_published() {
    let model = small_model();
    let folder = tempfile::tempdir().unwrap();
    let staged = stage(folder.path(), 5).unwrap();
    let shards = write_shards(&staged, &model, &Kind::ALL, (2, 2), Made::block);
    let joined = |shards| Manifest::assemble(&model, run_state(5), shards).unwrap_err();
    let error = joined(shards[..3].to_vec());
    assert!(matches!(&error, CheckpointError::Uncovered { .. }), "{error}");
    let mut twice = shards.clone();
    twice.push(shards[1].clone());
    let error = joined(twice).to_string();
    assert!(error.contains("are stored twice"), "{error}");
    let mut gone = shards.clone();
    gone.iter_mut().for_each(|shard| shard.chunks.retain(|(kind, ..)| *kind != Kind::SecondMoment));
    let error = joined(gone).to_string();
    assert!(error.contains("one moment of the optimizer without the other"), "{error}");
}

#[test]
fn a_checkpoint_without_moments_says_so() {
    let model = small_model();
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = save_weights(folder.path(), &model, &Made, (1, 1));
    assert!(!checkpoint.manifest().has_moments());
    let p = &parameters(&model)[0];
    let error = checkpoint.read(Kind::FirstMoment, &p.name, Block::whole(p), &mut vec![0.0; p.len()]).unwrap_err();
    assert!(error.to_string().contains("without the optimizer's moments"), "{error}");
}
