//! Helpers of the tests: numbers without a generator's state, and ways into a backend.
#![allow(dead_code)] // each test program uses its own part

use henge_cpu::{Activation, Flat};
use henge_random::{fill_normal, key};
use henge_tensor::{Backend, Buffer, Kind, Real};

/// `len` normal numbers of the stream `name`, as exact in f32 as in f64.
pub fn normals(name: &str, len: usize) -> Vec<f64> {
    let mut values = vec![0.0f32; len];
    fill_normal(key(5, name), 0, 1.0, &mut values);
    values.into_iter().map(f64::from).collect()
}

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

/// A flat buffer of a CPU backend from doubles.
pub fn flat<B, R>(backend: &B, values: &[f64]) -> Flat<R>
where
    R: Real,
    B: Backend<Real = R, Buffer = Flat<R>>,
{
    let mut buffer = backend.zeros(values.len(), Kind::Gradient);
    let values: Vec<R> = values.iter().map(|&value| R::of(value)).collect();
    buffer.write(0, &values);
    buffer
}

/// As doubles.
pub fn wide<R: Real>(values: &[R]) -> Vec<f64> {
    values.iter().map(|value| value.wide()).collect()
}
