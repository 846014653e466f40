//! Plans a training run before a machine is booked.
//!
//! A [`Workload`] is one question: a model (crate `spec`), a [`Cluster`] from the
//! catalogue, a layout, a batch and the [`Switches`] of the software. [`predict`] prices
//! every operation of every rank ([`cost`]), walks the programs of crate `schedule`, the
//! same that training walks, in a discrete-event simulation ([`simulate`]), and adds up
//! the bytes each rank holds on the way ([`memory`]).
//!
//! ```
//! use henge_plan::{Cluster, Stack, Workload, parse_layout, predict};
//! use henge_spec::{Layout, Recompute, preset};
//!
//! let cluster = Cluster::named("dgx-a100")?;
//! let model = preset("gpt3-175b").unwrap();
//! let (layout, microbatch) = parse_layout("t=8,p=12,d=1,v=4,b=1")?;
//! let layout = Layout { recompute: Recompute::FULL, ..layout };
//! let switches = Stack::Sc21.switches();
//! let work = Workload { cluster: &cluster, model: &model, layout, microbatch, batch: 24, switches };
//! let prediction = predict(&work)?;
//! // Figure 12 of arXiv 2104.04473 shows 134 TFLOP/s a GPU.
//! assert!((prediction.hardware_rate / 134e12 - 1.0).abs() < 0.1);
//! # Ok::<(), henge_plan::PlanError>(())
//! ```
//!
//! This crate must not know: tensors, threads, files, clocks. Texts go in, texts come out.

pub mod cost;
mod error;
mod explain;
mod fit;
mod hardware;
mod jitter;
pub mod memory;
mod predict;
pub mod published;
pub mod questions;
pub mod report;
pub mod search;
mod shape;
pub mod simulate;
mod switches;
mod workload;

pub use error::PlanError;
pub use explain::{Neighbour, neighbours};
pub use fit::{gib, shortfall};
pub use hardware::{Cluster, Constants, Device, Peaks};
pub use jitter::Jitter;
pub use predict::{Breakdown, Estimate, Prediction, estimate, observe, predict};
pub use shape::parse_shape;
pub use switches::{
    Accumulation, Kernels, Outputs, Overlap, Precision, ScatterGather, Sharding, Stack, Switches, TensorOverlap,
    on_or_off,
};
pub use workload::{Workload, parse_layout};
