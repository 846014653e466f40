//! What the software does, beside the layout: the switches that change time or memory.

use crate::PlanError;
use henge_spec::formulas::{Attention, SequenceParallel, StateFormat};

/// Number format of the matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32-bit floats everywhere.
    F32,
    /// IEEE half, gradients in half.
    F16,
    /// bfloat16 products, float32 gradients.
    BF16,
    /// 8-bit products, bfloat16 elsewhere, float32 gradients.
    FP8,
}

impl Precision {
    /// How weights, gradients and moments are stored.
    pub fn state(self) -> StateFormat {
        match self {
            Self::F32 => StateFormat::F32,
            Self::F16 => StateFormat::F16,
            Self::BF16 | Self::FP8 => StateFormat::BF16,
        }
    }

    /// Bytes of an operand of a matrix product.
    pub fn operand_bytes(self) -> f64 {
        match self {
            Self::F32 => 4.0,
            Self::F16 | Self::BF16 => 2.0,
            Self::FP8 => 1.0,
        }
    }

    /// Format of attention and of the head, which 8-bit recipes leave alone.
    pub fn of_attention_and_head(self) -> Self {
        match self {
            Self::FP8 => Self::BF16,
            Self::F32 | Self::F16 | Self::BF16 => self,
        }
    }

    /// Bytes of an activation.
    pub fn activation_bytes(self) -> f64 {
        match self {
            Self::F32 => 4.0,
            Self::F16 | Self::BF16 | Self::FP8 => 2.0,
        }
    }
}

/// Whether element-wise chains are one kernel each (2104.04473, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernels {
    /// bias+GeLU, bias+dropout+residual and scale+mask+softmax are one kernel each.
    Fused,
    /// Every operation reads and writes its tensor.
    Unfused,
}

/// How stage outputs, replicated over t, cross nodes (2104.04473, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterGather {
    /// Every tensor rank sends its 1/t slice; the receivers gather over their link.
    On,
    /// Every tensor rank sends the whole tensor.
    Off,
}

/// What the optimizer's states, and with it gradients and weights, are split over d for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharding {
    /// Every replica holds everything.
    None,
    /// Optimizer states are split (ZeRO-1, the distributed optimizer).
    Zero1,
    /// Weights, gradients and optimizer states are split; weights are gathered per layer.
    Zero3,
}

/// How a weight gradient joins its accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accumulation {
    /// The product writes a tensor, another kernel adds it.
    Separate,
    /// The product adds into the float32 accumulator itself.
    Fused,
}

/// Whether a stage's output outlives its send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outputs {
    /// Held until its backward (2104.04473's artifact).
    Kept,
    /// Freed once sent (2205.05198, section 4.3).
    Freed,
}

/// Which tensor parallel communication runs beside matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorOverlap {
    /// None.
    None,
    /// The reduction of an input gradient, beside the product of the weight gradient.
    Backward,
    /// That, and every gather or scatter, cut in pieces, beside the product it feeds.
    Both,
}

/// Which communication runs beside computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overlap {
    /// Messages between stages.
    pub pipeline: bool,
    /// The reduction of gradients, beside the last backwards.
    pub data: bool,
    /// Reductions inside a layer.
    pub tensor: TensorOverlap,
}

impl Overlap {
    /// Nothing overlaps.
    pub const NONE: Self = Self { pipeline: false, data: false, tensor: TensorOverlap::None };
    /// All three overlap.
    pub const ALL: Self = Self { pipeline: true, data: true, tensor: TensorOverlap::Both };
}

/// Everything about the software that the cost model looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switches {
    /// Number format.
    pub precision: Precision,
    /// Whether norms and dropouts are split along the sequence.
    pub sequence_parallel: SequenceParallel,
    /// Whether scores exist.
    pub attention: Attention,
    /// Whether element-wise chains are fused.
    pub kernels: Kernels,
    /// How stage outputs cross nodes.
    pub scatter_gather: ScatterGather,
    /// What runs beside computation.
    pub overlap: Overlap,
    /// What is split over replicas.
    pub sharding: Sharding,
    /// How weight gradients are accumulated.
    pub accumulation: Accumulation,
    /// Whether stage outputs outlive their send.
    pub outputs: Outputs,
}

/// A named set of switches: the software of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stack {
    /// The artifact of arXiv 1909.08053 (2019): no fused kernels.
    Megatron2019,
    /// The artifact of arXiv 2104.04473: fused kernels, nothing overlaps.
    Sc21,
    /// That of arXiv 2205.05198: accumulation in the product, backward all-reduce overlapped.
    Act2022,
    /// Everything that exists today.
    Modern,
}

impl Stack {
    /// Its switches.
    pub fn switches(self) -> Switches {
        let sc21 = Switches {
            precision: Precision::F16,
            sequence_parallel: SequenceParallel::Off,
            attention: Attention::Plain,
            kernels: Kernels::Fused,
            scatter_gather: ScatterGather::On,
            overlap: Overlap::NONE,
            sharding: Sharding::None,
            accumulation: Accumulation::Separate,
            outputs: Outputs::Kept,
        };
        let act = Switches {
            precision: Precision::BF16,
            overlap: Overlap { tensor: TensorOverlap::Backward, ..Overlap::NONE },
            accumulation: Accumulation::Fused,
            outputs: Outputs::Freed,
            ..sc21
        };
        match self {
            Self::Megatron2019 => Switches { kernels: Kernels::Unfused, ..sc21 },
            Self::Sc21 => sc21,
            Self::Act2022 => act,
            Self::Modern => Switches {
                sequence_parallel: SequenceParallel::On,
                attention: Attention::Flash,
                overlap: Overlap::ALL,
                sharding: Sharding::Zero1,
                ..act
            },
        }
    }
}

macro_rules! switch {
    ($type:ty, $name:literal, $allowed:literal, $($text:literal => $value:expr),+) => {
        impl std::str::FromStr for $type {
            type Err = PlanError;
            fn from_str(text: &str) -> Result<Self, PlanError> {
                match text {
                    $($text => Ok($value),)+
                    other => Err(PlanError::Switch {
                        switch: $name, given: other.to_string(), allowed: $allowed,
                    }),
                }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(if *self == $value { return f.pad($text); })+
                f.pad("mixed")
            }
        }
    };
}

switch!(Precision, "--precision", "f32, f16, bf16, fp8",
    "f32" => Self::F32, "f16" => Self::F16, "bf16" => Self::BF16, "fp8" => Self::FP8);
switch!(ScatterGather, "--scatter-gather", "on, off", "on" => Self::On, "off" => Self::Off);
switch!(Sharding, "--optimizer-sharding", "none, zero1, zero3",
    "none" => Self::None, "zero1" => Self::Zero1, "zero3" => Self::Zero3);
switch!(Kernels, "--kernels", "fused, unfused", "fused" => Self::Fused, "unfused" => Self::Unfused);
switch!(Overlap, "--overlap", "none, p2p, dp, tp, all",
    "none" => Self::NONE, "p2p" => Self { pipeline: true, ..Self::NONE },
    "dp" => Self { data: true, ..Self::NONE }, "tp" => Self { tensor: TensorOverlap::Backward, ..Self::NONE }, "all" => Self::ALL);
switch!(Stack, "--stack", "2019, sc21, 2022, modern",
    "2019" => Self::Megatron2019, "sc21" => Self::Sc21, "2022" => Self::Act2022, "modern" => Self::Modern);

/// Reads `on` or `off` of a switch whose type belongs to another crate.
pub fn on_or_off<T>(switch: &'static str, text: &str, on: T, off: T) -> Result<T, PlanError> {
    match text {
        "on" => Ok(on),
        "off" => Ok(off),
        other => Err(PlanError::Switch { switch, given: other.to_string(), allowed: "on, off" }),
    }
}
