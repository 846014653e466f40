//! The CPU backends.
pub mod ceiling;
mod fast;
mod math;
mod memory;
pub mod plain;
mod product;
mod rounding;
mod simd;
mod team;

pub use fast::{Fast, FastLogits, FastWeight};
pub use memory::{Activation, Flat};
pub use plain::Plain;
pub use rounding::Rounding;
pub use simd::Level;
pub use team::Team;
