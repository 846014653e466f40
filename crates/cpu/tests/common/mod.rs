//! Helpers of the tests: ways into a CPU backend and out of it.

use henge_cpu::Activation;
use henge_tensor::{Backend, Real};

/// An activation of a CPU backend from doubles.
pub fn activation<B, R>(backend: &B, rows: usize, columns: usize, values: &[f64]) -> Activation<R>
where
    R: Real,
    B: Backend<Real = R, Activation = Activation<R>>,
{
    assert_eq!(values.len(), rows * columns);
    let mut x = backend.blank(rows, columns);
    x.values_mut().iter_mut().zip(values).for_each(|(x, &value)| *x = R::of(value));
    x
}

/// As doubles.
pub fn wide<R: Real>(values: &[R]) -> Vec<f64> {
    values.iter().map(|value| value.wide()).collect()
}
