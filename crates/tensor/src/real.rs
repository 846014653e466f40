//! The element type of master weights, gradients and moments.

use henge_spec::DType;
use num_traits::Float;

/// A floating-point type that parameters are kept in: `f32` in every run, `f64` in
/// the reference that finite differences are taken with.
pub trait Real:
    Float + bytemuck::Pod + Send + Sync + std::iter::Sum + std::ops::AddAssign + std::ops::MulAssign + std::fmt::Debug
{
    /// Its tag in files and messages.
    const DTYPE: DType;
    /// Rounds from double precision.
    fn of(value: f64) -> Self;
    /// Widens to double precision.
    fn wide(self) -> f64;
}

impl Real for f32 {
    const DTYPE: DType = DType::F32;
    fn of(value: f64) -> Self {
        value as f32
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    const DTYPE: DType = DType::F64;
    fn of(value: f64) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self
    }
}
