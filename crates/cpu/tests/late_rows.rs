//! The loss of a block of tokens does not depend on where the block stands.

use henge_cpu::{Fast, Plain};
use henge_tensor::Precision;
use henge_tensor::{Backend, Buffer, Kind, VocabularyShard};

fn values(count: usize, seed: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37 + seed).sin() * 1.5).collect()
}

fn logits<B: Backend<Real = f32>>(backend: &B, rows: (usize, usize)) -> Vec<f32> {
    let (tokens, inner, entries) = (1100, 64, 509);
    let mut table = backend.zeros(entries * inner, Kind::Weight);
    table.write(0, &values(entries * inner, 0.5));
    let table = backend.prepare(&table, 0, entries, inner);
    let x = backend.upload(tokens, inner, &values(tokens * inner, 0.1));
    let targets = vec![3; rows.1 - rows.0];
    let (logits, _) =
        backend.vocabulary_sweep(&x, &table, None, &VocabularyShard { first_row: 0, rows, targets: &targets });
    backend.logits_values(&logits)
}

#[test]
fn a_block_is_the_same_wherever_it_stands() {
    let (plain, fast) = (Plain::<f32>::new(), Fast::new(2, Precision::F32));
    for rows in [(0, 1), (47, 48), (5, 9), (512, 1024), (1024, 1100)] {
        let (want, got) = (logits(&plain, rows), logits(&fast, rows));
        let worst = want.iter().zip(&got).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(worst < 1e-3, "rows {rows:?}: off by {worst}");
    }
}
