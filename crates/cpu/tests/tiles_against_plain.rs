//! Every operation in bf16 on tiles, the hardware's where there are and those in plain code,
//! against the plain reference in double precision: within the rounding of bf16, and with the
//! same bits for 1, 2 and 3 threads.

use henge_cpu::{Fast, Level, Plain, Tiles};
use henge_tensor::Backend;
use henge_tensor::conformance::{self, Check, Operation};

/// Errors relative to the largest number: where float32 may be off by some units in its last
/// place, bf16 may be off by as many in its own.
struct TilesAgainstPlain;

impl Check for TilesAgainstPlain {
    fn check(&mut self, what: &str, tolerance: f64, operation: &impl Operation) {
        let truth = operation.on(&Plain::<f64>::new());
        let largest = truth.iter().filter(|x| x.is_finite()).fold(1e-30f64, |most, x| most.max(x.abs()));
        let tolerance = (tolerance * 65536.0 / 8.0).min(0.05) * largest;
        let units = [Some(Tiles::Software), Tiles::detect()];
        for tiles in units.into_iter().flatten() {
            let mut first: Option<Vec<f64>> = None;
            for threads in [1, 2, 3] {
                let got = operation.on(&Fast::with_tiles(tiles, Level::detect(), threads));
                assert_eq!(got.len(), truth.len(), "{what} {tiles:?}");
                for (i, (&got, &truth)) in got.iter().zip(&truth).enumerate() {
                    let equal = got == truth || (got - truth).abs() <= tolerance;
                    assert!(equal, "{what} {tiles:?}[{i}]: {got}, truly {truth}");
                }
                let same = first.get_or_insert_with(|| got.clone()) == &got;
                assert!(same, "{what} {tiles:?}: {threads} threads give other bits");
            }
        }
    }
}

#[test]
fn linear() {
    conformance::linear(&mut TilesAgainstPlain);
}

#[test]
fn layer_norm() {
    conformance::layer_norm(&mut TilesAgainstPlain);
}

#[test]
fn rms_norm() {
    conformance::rms_norm(&mut TilesAgainstPlain);
}

#[test]
fn rotate() {
    conformance::rotate(&mut TilesAgainstPlain);
}

#[test]
fn rows_taken_and_added() {
    conformance::rows_taken_and_added(&mut TilesAgainstPlain);
}

#[test]
fn attention() {
    conformance::attention(&mut TilesAgainstPlain);
}

#[test]
fn residual_stream() {
    conformance::residual_stream(&mut TilesAgainstPlain);
}

#[test]
fn embedding() {
    conformance::embedding(&mut TilesAgainstPlain);
}

#[test]
fn vocabulary_loss() {
    conformance::vocabulary_loss(&mut TilesAgainstPlain);
}

#[test]
fn optimizer() {
    conformance::optimizer(&mut TilesAgainstPlain);
}

#[test]
fn new_takes_the_tiles_that_there_are() {
    let has = Tiles::detect().is_some();
    assert_eq!(Fast::new(1, henge_cpu::Rounding::Bf16).describe().contains("tiles"), has);
    assert!(!Fast::new(1, henge_cpu::Rounding::Exact).describe().contains("tiles"));
}
