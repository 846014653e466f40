//! What things cost: kernels, collectives, layers, ends of the model, a whole step.

mod collective;
mod ends;
mod kernel;
mod layer;
mod step;

pub use collective::{Group, Network};
pub(crate) use ends::{embedding_cost, head_cost};
pub use kernel::Machine;
pub use layer::{LayerCost, Parts, layer_cost};
pub use step::{StageParameters, StepCost, step_cost};
