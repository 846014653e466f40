//! The operations of a [`Backend`] as cases that every implementation can be held to.
//!
//! An [`Operation`] runs one operation, or a few that belong together, on any backend and
//! gives all its numbers; a [`Check`] decides what they are compared with. The cases are
//! those of [`linear`], [`layer_norm`], [`attention`] and so on: awkward shapes, one row, one
//! column, multiples of nothing.
//!
//! ```
//! use henge_tensor::Backend;
//! use henge_tensor::conformance::{Check, Operation};
//!
//! struct AgainstReference<B, R>(B, R);
//!
//! impl<B: Backend, R: Backend> Check for AgainstReference<B, R> {
//!     fn check(&mut self, what: &str, tolerance: f64, operation: &impl Operation) {
//!         let (found, truth) = (operation.on(&self.0), operation.on(&self.1));
//!         let worst = found.iter().zip(&truth).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
//!         assert!(worst <= tolerance, "{what}: off by {worst}");
//!     }
//! }
//! ```

mod attention;
mod linear;
mod loss;
mod rows;

pub use attention::{attention, rotate};
pub use linear::{Linear, layer_norm, linear, rms_norm};
pub use loss::{optimizer, vocabulary_loss};
pub use rows::{embedding, residual_stream, rows_taken_and_added};

use crate::{Backend, Buffer, Kind, Real};
use henge_random::{fill_normal, key};

/// One operation, or a few that belong together, as a function of a backend to all its
/// numbers.
pub trait Operation {
    /// Every number that comes out, in an order of the operation's own.
    fn on<B: Backend>(&self, backend: &B) -> Vec<f64>;
}

/// What is done with each case.
pub trait Check {
    /// `tolerance` is that of float32 arithmetic, relative to the largest number of the case.
    fn check(&mut self, what: &str, tolerance: f64, operation: &impl Operation);
}

/// Sizes of matrices: one row, one column, multiples of nothing.
const SHAPES: [(usize, usize); 7] = [(1, 1), (1, 50), (37, 1), (14, 32), (3, 17), (70, 129), (131, 600)];

/// `len` normal numbers of the stream `name`, as exact in f32 as in f64.
pub fn normals(name: &str, len: usize) -> Vec<f64> {
    let mut values = vec![0.0f32; len];
    fill_normal(key(5, name), 0, 1.0, &mut values);
    values.into_iter().map(f64::from).collect()
}

/// An activation from doubles, rounded to f32.
fn activation<B: Backend>(backend: &B, rows: usize, columns: usize, values: &[f64]) -> B::Activation {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    backend.upload(rows, columns, &values)
}

/// A flat buffer from doubles.
pub fn flat<B: Backend>(backend: &B, values: &[f64]) -> B::Buffer {
    let mut buffer = backend.zeros(values.len(), Kind::Gradient);
    let values: Vec<B::Real> = values.iter().map(|&value| B::Real::of(value)).collect();
    buffer.write(0, &values);
    buffer
}

/// An activation's values as doubles.
fn values<B: Backend>(backend: &B, x: &B::Activation) -> Vec<f64> {
    backend.download(x).into_iter().map(f64::from).collect()
}

/// A buffer's values as doubles.
fn numbers<R: Real>(buffer: &impl Buffer<R>) -> Vec<f64> {
    let mut host = vec![R::of(0.0); buffer.len()];
    buffer.read(0, &mut host);
    host.into_iter().map(R::wide).collect()
}
