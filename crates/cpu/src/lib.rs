//! The CPU backends.
mod memory;
pub mod plain;
mod rounding;

pub use memory::{Activation, Flat};
pub use plain::Plain;
pub use rounding::Rounding;
