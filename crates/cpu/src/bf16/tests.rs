//! Tile products against the definition in double precision over the rounded operands, on
//! both units, every level and any number of threads.

use super::*;
use crate::rounding::Rounding;
use crate::simd::Level;
use crate::team::{Parts, Team};
use henge_random::{fill_normal, key};
use henge_tensor::NonLinearity;

/// Rows, depth, columns: one of each, none, multiples of nothing, cut sums.
const SHAPES: [(usize, usize, usize); 9] = [
    (1, 1, 1),
    (0, 5, 7),
    (3, 33, 40),
    (64, 64, 64),
    (33, 70, 550),
    (100, 800, 70),
    (1, 1030, 31),
    (300, 512, 33),
    (70, 31, 1),
];

/// Normal numbers that are bf16 already.
fn normals(name: &str, len: usize) -> Vec<f32> {
    let mut values = vec![0.0; len];
    fill_normal(key(1, name), 0, 1.0, &mut values);
    Rounding::Bf16.apply(&mut values);
    values
}

/// As a tile matrix; what no kernel may read is not a number.
fn narrow(values: &[f32], rows: usize, columns: usize) -> (Vec<u16>, usize) {
    let stride = stride_of(columns);
    let mut narrow = vec![0x7fc0; len_of(rows, columns).max(1)];
    for (row, to) in narrow.chunks_mut(stride.max(1)).enumerate().take(rows) {
        to.fill(0);
        for (to, x) in to.iter_mut().zip(&values[row * columns..][..columns]) {
            *to = (x.to_bits() >> 16) as u16;
        }
    }
    (narrow, stride)
}

fn wide(x: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(x) << 16))
}

fn units() -> Vec<Tiles> {
    [Some(Tiles::Software), Tiles::detect()].into_iter().flatten().collect()
}

/// Runs on every unit, level and some teams; all must agree to the bit within a level.
fn everywhere(run: impl Fn(Machine) -> Vec<f64>, truth: &[(f64, f64)], rounded: f64) {
    for tiles in units() {
        for level in Level::available() {
            let mut first: Option<Vec<f64>> = None;
            for threads in [1, 2, 3] {
                let team = Team::new(threads);
                let found = run(Machine { level, tiles, team: &team });
                assert_eq!(found.len(), truth.len());
                for (i, (&found, &(sum, size))) in found.iter().zip(truth).enumerate() {
                    let tolerance = 2e-6 * size + rounded * sum.abs() + 1e-30;
                    assert!((found - sum).abs() <= tolerance, "{tiles:?} {level:?} [{i}]: {found}, truly {sum}");
                }
                let first = first.get_or_insert_with(|| found.clone());
                assert_eq!(first, &found, "{tiles:?} {level:?}: {threads} threads give other bits");
            }
        }
    }
}

/// `sum_k a(r, k) b(k, j)` and the sum of the terms' sizes.
fn truth(
    (rows, depth, columns): (usize, usize, usize),
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
) -> Vec<(f64, f64)> {
    let element = |i: usize| {
        let (row, column) = (i / columns, i % columns);
        (0..depth).fold((0.0, 0.0), |(sum, size), k| {
            let term = f64::from(a(row, k)) * f64::from(b(k, column));
            (sum + term, size + term.abs())
        })
    };
    (0..rows * columns).map(element).collect()
}

/// Values of a tile matrix, row by row.
fn rows_of(values: &[u16], rows: usize, columns: usize, stride: usize) -> Vec<f64> {
    (0..rows * columns).map(|i| wide(values[i / columns * stride + i % columns])).collect()
}

#[test]
fn forward_and_input_gradient_are_their_definition() {
    for shape @ (rows, depth, columns) in SHAPES {
        let (x, w, bias) = (normals("x", rows * depth), normals("w", columns * depth), normals("bias", columns));
        let (a, a_stride) = narrow(&x, rows, depth);
        let (packing, stride) = (Packing { depth, columns }, stride_of(columns));
        // The transpose of [columns, depth], and the same numbers as [depth, columns].
        for straight in [false, true] {
            let b = |k: usize, j: usize| if straight { w[k * columns + j] } else { w[j * depth + k] };
            let mut expected = truth(shape, |r, k| x[r * depth + k], b);
            expected.iter_mut().enumerate().for_each(|(i, (sum, _))| *sum += f64::from(bias[i % columns]));
            let run = |machine: Machine, wide_output: bool| {
                let mut packed = vec![0x7fc0; packing.len()];
                let pack = if straight { pack_straight } else { pack_transposed };
                pack(machine, packing, &w, &mut packed);
                let mut scratch = vec![f32::NAN; machine.team.threads() * product_scratch(depth)];
                let (a, b) = (Bf16::new(&a, rows, depth, a_stride), Packed { packing, values: &packed });
                let mut y = vec![0u16; len_of(rows, columns)];
                let mut wide = vec![0.0f32; rows * columns];
                let output = match wide_output {
                    true => Output::Wide { y: Parts::of(&mut wide), stride: columns, bias: Some(&bias) },
                    false => Output::Narrow { y: Parts::of(&mut y), stride, bias: Some(&bias) },
                };
                product(machine, a, b, &output, &mut scratch, &|_, _| ());
                if wide_output { wide.into_iter().map(f64::from).collect() } else { rows_of(&y, rows, columns, stride) }
            };
            everywhere(|machine| run(machine, true), &expected, 0.0);
            everywhere(|machine| run(machine, false), &expected, 1.0 / 256.0);
        }
    }
}

#[test]
fn what_is_activated_is_the_rounded_sum() {
    let (rows, depth, columns) = (37, 65, 45);
    let (x, w, bias) = (normals("x", rows * depth), normals("w", columns * depth), normals("bias", columns));
    let (a, a_stride) = narrow(&x, rows, depth);
    let (packing, stride) = (Packing { depth, columns }, stride_of(columns));
    let gelu = |x: f64| 0.5 * x * libm::erfc(-x / std::f64::consts::SQRT_2);
    for tiles in units() {
        let team = Team::new(2);
        let machine = Machine { level: Level::detect(), tiles, team: &team };
        let mut packed = vec![0; packing.len()];
        pack_transposed(machine, packing, &w, &mut packed);
        let (mut pre, mut y) = (vec![0u16; len_of(rows, columns)], vec![0u16; len_of(rows, columns)]);
        let output = Output::Activated {
            pre: Parts::of(&mut pre),
            y: Parts::of(&mut y),
            stride,
            bias: Some(&bias),
            f: NonLinearity::Gelu,
        };
        let b = Packed { packing, values: &packed };
        product(machine, Bf16::new(&a, rows, depth, a_stride), b, &output, &mut [], &|_, _| ());
        let (pre, y) = (rows_of(&pre, rows, columns, stride), rows_of(&y, rows, columns, stride));
        for (i, (&pre, &y)) in pre.iter().zip(&y).enumerate() {
            let sum = truth((1, depth, 1), |_, k| x[i / columns * depth + k], |k, _| w[i % columns * depth + k])[0];
            let sum = sum.0 + f64::from(bias[i % columns]);
            assert!((pre - sum).abs() <= sum.abs() / 256.0 + 1e-4, "{tiles:?} [{i}]: {pre}, truly {sum}");
            assert!((y - gelu(pre)).abs() <= gelu(pre).abs() / 250.0 + 1e-6, "{tiles:?} [{i}]: gelu({pre}) = {y}");
        }
    }
}

/// Zeros past the columns stay, so that the output is the next product's operand.
#[test]
fn outputs_keep_their_margin() {
    let (rows, depth, columns) = (5, 40, 33);
    let (a, a_stride) = narrow(&normals("x", rows * depth), rows, depth);
    let (packing, stride) = (Packing { depth, columns }, stride_of(columns));
    let team = Team::new(1);
    for tiles in units() {
        let machine = Machine { level: Level::detect(), tiles, team: &team };
        let mut packed = vec![0; packing.len()];
        pack_transposed(machine, packing, &normals("w", columns * depth), &mut packed);
        let mut y = vec![0u16; len_of(rows, columns)];
        let output = Output::Narrow { y: Parts::of(&mut y), stride, bias: None };
        product(
            machine,
            Bf16::new(&a, rows, depth, a_stride),
            Packed { packing, values: &packed },
            &output,
            &mut [],
            &|_, _| (),
        );
        for (at, &value) in y.iter().enumerate() {
            let inside = at / stride < rows && at % stride < columns;
            assert!(inside || value == 0, "{tiles:?}: {value:#x} at {at}");
        }
    }
}

#[test]
fn weight_gradients_are_their_definition() {
    for (tokens, columns, rows) in SHAPES.into_iter().chain([(2100, 20, 40), (530, 600, 300)]) {
        let (x, dy, old) =
            (normals("x", tokens * columns), normals("dy", tokens * rows), normals("dw", rows * columns));
        let ((a, a_stride), (b, b_stride)) = (narrow(&x, tokens, columns), narrow(&dy, tokens, rows));
        let mut expected = truth((rows, tokens, columns), |r, t| dy[t * rows + r], |t, j| x[t * columns + j]);
        for ((sum, size), old) in expected.iter_mut().zip(&old) {
            *sum += f64::from(*old);
            *size += f64::from(old.abs());
        }
        let run = |machine: Machine| {
            let mut scratch = vec![0x7fc0; gradient_scratch(tokens, columns, machine.team.threads())];
            let mut dw = old.clone();
            let call =
                Gradient { x: Bf16::new(&a, tokens, columns, a_stride), dy: Bf16::new(&b, tokens, rows, b_stride) };
            weight_gradient(machine, call, &mut dw, &mut scratch);
            dw.into_iter().map(f64::from).collect()
        };
        everywhere(run, &expected, 0.0);
    }
}
