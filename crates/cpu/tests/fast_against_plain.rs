//! Every fast operation against the plain reference in double precision, over awkward
//! shapes, for every instruction set of this machine, and with the same bits for 1, 2 and
//! 3 threads.

use henge_cpu::{Fast, Level, Plain, Rounding};
use henge_tensor::conformance::{self, Check, Linear, Operation, flat, normals};
use henge_tensor::{AdamStep, Backend, Kind, NonLinearity};

/// Compares the fast forms with the reference: errors relative to the largest number.
struct FastAgainstPlain;

impl Check for FastAgainstPlain {
    fn check(&mut self, what: &str, tolerance: f64, operation: &impl Operation) {
        let truth = operation.on(&Plain::<f64>::new());
        let largest = truth.iter().filter(|x| x.is_finite()).fold(1e-30f64, |most, x| most.max(x.abs()));
        for level in Level::available() {
            let mut first: Option<Vec<f64>> = None;
            for threads in [1, 2, 3] {
                let got = operation.on(&Fast::with_level(level, threads, Rounding::Exact));
                assert_eq!(got.len(), truth.len(), "{what} {level:?}");
                for (i, (&got, &truth)) in got.iter().zip(&truth).enumerate() {
                    let equal = got == truth || (got - truth).abs() <= tolerance * largest;
                    assert!(equal, "{what} {level:?}[{i}]: {got}, truly {truth}");
                }
                let same = first.get_or_insert_with(|| got.clone()) == &got;
                assert!(same, "{what} {level:?}: {threads} threads give other bits");
            }
        }
    }
}

#[test]
fn linear() {
    conformance::linear(&mut FastAgainstPlain);
}

#[test]
fn layer_norm() {
    conformance::layer_norm(&mut FastAgainstPlain);
}

#[test]
fn rms_norm() {
    conformance::rms_norm(&mut FastAgainstPlain);
}

#[test]
fn rotate() {
    conformance::rotate(&mut FastAgainstPlain);
}

#[test]
fn rows_taken_and_added() {
    conformance::rows_taken_and_added(&mut FastAgainstPlain);
}

#[test]
fn attention() {
    conformance::attention(&mut FastAgainstPlain);
}

#[test]
fn residual_stream() {
    conformance::residual_stream(&mut FastAgainstPlain);
}

#[test]
fn embedding() {
    conformance::embedding(&mut FastAgainstPlain);
}

#[test]
fn vocabulary_loss() {
    conformance::vocabulary_loss(&mut FastAgainstPlain);
}

#[test]
fn optimizer() {
    conformance::optimizer(&mut FastAgainstPlain);
}

/// Without gradients the moments shrink to zero and do not stay at the smallest subnormal
/// number, where each operation on them would be slow for ever.
#[test]
fn moments_without_gradients_end_at_zero() {
    let b = Fast::new(1, Rounding::Exact);
    let (mut values, grads) = (flat(&b, &normals("values", 40)), b.zeros(40, Kind::Gradient));
    let (mut first, mut second) = (flat(&b, &normals("first", 40)), flat(&b, &[0.5; 40]));
    for update in 1..2500 {
        let step =
            AdamStep { lr: 0.0, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.0, update, gradient_scale: 1.0 };
        b.adam(&mut values, &grads, &mut first, &mut second, 0..40, &step);
    }
    assert!(first.values().iter().chain(second.values()).all(|&moment| moment == 0.0));
}

/// With rounded operands both forms agree to a unit in the last place of the precision,
/// and differ from the exact form by about that much.
#[test]
fn rounded_operands() {
    for (rounding, ulp) in [(Rounding::Bf16, 1.0 / 128.0), (Rounding::F16, 1.0 / 1024.0)] {
        let operation = Linear { rows: 20, inputs: 70, outputs: 30, f: NonLinearity::GeluTanh };
        let exact = operation.on(&Plain::<f32>::new());
        let plain = operation.on(&Plain::<f32>::rounded(rounding));
        let fast = operation.on(&Fast::new(2, rounding));
        let largest = plain.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let worst = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst(&plain, &fast) <= ulp * largest, "{rounding:?}: {}", worst(&plain, &fast));
        assert!(worst(&plain, &exact) >= ulp / 16.0, "{rounding:?} rounds nothing");
        // Products' outputs are numbers of the precision.
        let mut again: Vec<f64> = fast[..20 * 30].to_vec();
        rounding.apply(&mut again);
        assert_eq!(again, fast[..20 * 30], "{rounding:?}");
    }
}
