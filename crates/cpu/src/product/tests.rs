//! Products against the definition in double precision.

use super::*;
use henge_random::{fill_normal, key};

fn normals(name: &str, len: usize) -> Vec<f32> {
    let mut values = vec![0.0; len];
    fill_normal(key(1, name), 0, 1.0, &mut values);
    values
}

/// `c[r][j] = sum_k a(r, k) b(k, j)` and the sum of the terms' sizes, which rounding errors
/// are in proportion to.
fn truth(
    m: usize,
    n: usize,
    depth: usize,
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
) -> Vec<(f64, f64)> {
    let mut c = vec![(0.0, 0.0); m * n];
    for r in 0..m {
        for k in 0..depth {
            for j in 0..n {
                let term = f64::from(a(r, k)) * f64::from(b(k, j));
                c[r * n + j].0 += term;
                c[r * n + j].1 += term.abs();
            }
        }
    }
    c
}

fn close(what: &str, got: &[f32], truth: &[(f64, f64)]) {
    assert_eq!(got.len(), truth.len(), "{what}");
    for (i, (&got, &(sum, size))) in got.iter().zip(truth).enumerate() {
        // Errors of a chain of n roundings grow with its root; 512 terms a chain.
        assert!((f64::from(got) - sum).abs() <= 3e-6 * size + 1e-30, "{what}[{i}]: {got}, truly {sum}");
    }
}

const SHAPES: [(usize, usize, usize); 11] = [
    (1, 1, 1),
    (1, 1300, 600),
    (14, 32, 512),
    (15, 33, 513),
    (1, 70, 1100),
    (29, 1, 7),
    (3, 600, 20),
    (97, 40, 5),
    (5, 0, 3),
    (0, 9, 4),
    (4, 5, 0),
];

#[test]
fn products_agree_with_the_definition_for_any_level_and_threads() {
    for (m, n, depth) in SHAPES {
        let (x, w) = (normals("x", m * depth), normals("w", n * depth));
        let expected = truth(m, n, depth, |r, k| x[r * depth + k], |k, j| w[j * depth + k]);
        for level in Level::available() {
            let mut first: Option<Vec<f32>> = None;
            for threads in [1, 2, 3] {
                let team = Team::new(threads);
                let packing = Packing::new(level, depth, n);
                let mut packed = vec![f32::NAN; packing.len()];
                pack_transposed(&team, packing, &w, &mut packed);
                let mut y = vec![f32::NAN; m * n];
                product(level, &team, &x, Panels { packing, values: &packed }, &mut y, &|_, _, _| {});
                close(&format!("{level:?} {m} x {depth} x {n}"), &y, &expected);
                assert_eq!(first.get_or_insert_with(|| y.clone()), &y, "{threads} threads");
            }
        }
    }
}

#[test]
fn transposed_products_add() {
    for (m, n, tokens) in SHAPES {
        let (y, x) = (normals("y", tokens * m), normals("x", tokens * n));
        let mut expected = truth(m, n, tokens, |r, k| y[k * m + r], |k, j| x[k * n + j]);
        expected.iter_mut().for_each(|c| *c = (c.0 + 2.0, c.1 + 2.0));
        for level in Level::available() {
            let mut first: Option<Vec<f32>> = None;
            for threads in [1, 2, 3] {
                let team = Team::new(threads);
                let packing = Packing::new(level, tokens, n);
                let mut packed = vec![f32::NAN; packing.len()];
                pack_rows(&team, packing, &x, &mut packed);
                let mut c = vec![2.0; m * n];
                transposed_product(level, &team, &y, Panels { packing, values: &packed }, &mut c);
                close(&format!("{level:?} {m} x {tokens} x {n}"), &c, &expected);
                assert_eq!(first.get_or_insert_with(|| c.clone()), &c, "{threads} threads");
            }
        }
    }
}

#[test]
fn each_piece_of_a_row_is_finished_once() {
    let (n, depth) = (1300, 520);
    for m in [1, 14, 40] {
        let (x, w) = (vec![1.0; m * depth], vec![1.0; n * depth]);
        let (level, team) = (Level::detect(), Team::new(2));
        let packing = Packing::new(level, depth, n);
        let mut packed = vec![0.0; packing.len()];
        pack_transposed(&team, packing, &w, &mut packed);
        let mut y = vec![f32::NAN; m * n];
        product(level, &team, &x, Panels { packing, values: &packed }, &mut y, &|row, columns, values| {
            assert_eq!((columns.start % COLUMNS, columns.len()), (0, values.len()));
            values.iter_mut().zip(columns).for_each(|(value, column)| *value += (row * n + column) as f32);
        });
        assert!(y.iter().enumerate().all(|(i, &value)| value == 520.0 + i as f32), "{m} rows");
    }
}
