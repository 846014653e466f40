//! One transformer layer: forward, backward and what recomputation repeats.
//!
//! Legend: T tokens of a microbatch, h hidden, t tensor ranks, w = attention width / t,
//! k = key and value width / t, f = MLP width / t, S = elements of the scores on a rank.

use crate::cost::{Group, Machine, Network};
use crate::switches::{Accumulation, Kernels, Switches, TensorOverlap};
use crate::{Cluster, Precision};
use henge_spec::formulas::{Attention, SequenceParallel, mlp_matrices};
use henge_spec::{Arch, Model, Recompute};
use std::ops::{Add, AddAssign, Mul};

/// Seconds by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// Matrix products.
    pub products: f64,
    /// Scores: products, softmax, dropout.
    pub attention: f64,
    /// Norms, activations, dropouts, residuals, accumulation.
    pub elementwise: f64,
    /// Exposed tensor parallel communication.
    pub tensor: f64,
    /// Waiting for weights that are split over the replicas.
    pub data: f64,
}

impl Parts {
    /// Sum over all kinds.
    pub fn total(&self) -> f64 {
        self.products + self.attention + self.elementwise + self.tensor + self.data
    }
}

impl Add for Parts {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            products: self.products + other.products,
            attention: self.attention + other.attention,
            elementwise: self.elementwise + other.elementwise,
            tensor: self.tensor + other.tensor,
            data: self.data + other.data,
        }
    }
}

impl AddAssign for Parts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<f64> for Parts {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self {
            products: self.products * factor,
            attention: self.attention * factor,
            elementwise: self.elementwise * factor,
            tensor: self.tensor * factor,
            data: self.data * factor,
        }
    }
}

/// Seconds of one layer and one microbatch on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerCost {
    /// Forward.
    pub forward: Parts,
    /// Backward without recomputation.
    pub backward: Parts,
    /// What is run again before the backward.
    pub recompute: Parts,
}

/// The cost of a layer.
pub fn layer_cost(
    cluster: &Cluster,
    model: &Model,
    tensor: usize,
    microbatch: usize,
    recompute: Recompute,
    switches: &Switches,
) -> LayerCost {
    let pricing = Pricing::new(cluster, model, tensor, microbatch, switches);
    let forward = pricing.forward();
    let again = match recompute {
        Recompute::None => Parts::default(),
        // Nothing is left to save by running the scores again where they never exist.
        Recompute::Selective if switches.attention == Attention::Flash => Parts::default(),
        Recompute::Selective => Parts { attention: forward.attention, ..Parts::default() },
        Recompute::Every(_) => forward,
    };
    LayerCost { forward, backward: pricing.backward(), recompute: again }
}

struct Pricing<'a> {
    machine: Machine<'a>,
    network: Network<'a>,
    group: Group,
    switches: &'a Switches,
    model: &'a Model,
    /// Tokens of the microbatch.
    tokens: f64,
    /// Tokens that norms and dropouts see: 1/t of them with sequence parallelism.
    outside: f64,
    hidden: f64,
    width: f64,
    kv_width: f64,
    ffn: f64,
    /// Input matrices of the MLP: two where a gate is used.
    inputs: f64,
    /// Score matrices on this rank.
    matrices: f64,
    /// Bytes of an activation.
    bytes: f64,
}

impl<'a> Pricing<'a> {
    fn new(cluster: &'a Cluster, model: &'a Model, tensor: usize, microbatch: usize, switches: &'a Switches) -> Self {
        let t = tensor as f64;
        let tokens = (microbatch * model.seq_len) as f64;
        let outside = match switches.sequence_parallel {
            SequenceParallel::On => tokens / t,
            SequenceParallel::Off => tokens,
        };
        Self {
            machine: Machine::new(cluster, switches.precision),
            network: Network::new(cluster),
            group: Group::contiguous(tensor, cluster.node_devices),
            switches,
            model,
            tokens,
            outside,
            hidden: model.hidden as f64,
            width: (model.heads * model.head_dim) as f64 / t,
            kv_width: (model.kv_heads * model.head_dim) as f64 / t,
            ffn: model.ffn_hidden as f64 / t,
            inputs: mlp_matrices(model) - 1.0,
            matrices: microbatch as f64 * model.heads as f64 / t,
            bytes: switches.precision.activation_bytes(),
        }
    }

    /// Output and input widths of the four matrices of a layer.
    fn matrices_of_layer(&self) -> [(f64, f64); 4] {
        [
            (self.width + 2.0 * self.kv_width, self.hidden),
            (self.hidden, self.width),
            (self.inputs * self.ffn, self.hidden),
            (self.hidden, self.ffn),
        ]
    }

    /// One all-reduce of a layer's output, or the gather and scatter that replace it.
    fn all_reduce(&self) -> f64 {
        self.network.all_reduce(self.tokens * self.hidden * self.bytes, self.group)
    }

    fn forward(&self) -> Parts {
        let product = |(out, input): (f64, f64)| self.machine.product(self.tokens, out, input);
        let products: f64 = self.matrices_of_layer().into_iter().map(product).sum();
        Parts {
            products,
            attention: self.attention_forward(),
            elementwise: self.elementwise_forward() + self.casts(self.hidden + self.width + self.hidden + self.ffn),
            tensor: self.exposed_forward(products),
            data: 0.0,
        }
    }

    fn score_elements(&self) -> f64 {
        self.matrices * (self.model.seq_len * self.model.seq_len) as f64
    }

    fn scores_product(&self) -> f64 {
        let (sequence, width) = (self.model.seq_len as f64, self.model.head_dim as f64);
        self.machine.scores_product(self.matrices, sequence, width, self.bytes)
    }

    /// FLOP of fused attention's forward: a decoder skips the half above the diagonal.
    fn fused_flops(&self) -> f64 {
        let half = if self.model.arch == Arch::Bert { 1.0 } else { 0.5 };
        half * 4.0 * self.score_elements() * self.model.head_dim as f64
    }

    /// Bytes of the dropout of probabilities: read and write, and one byte of mask.
    fn probability_dropout(&self) -> f64 {
        if self.model.dropout.attention > 0.0 { (2.0 * self.bytes + 1.0) * self.score_elements() } else { 0.0 }
    }

    fn attention_forward(&self) -> f64 {
        if self.switches.attention == Attention::Flash {
            return self.machine.fused_attention(self.fused_flops());
        }
        let softmax = 2.0 * self.bytes * self.score_elements();
        // Unfused: scale, two steps of the mask and softmax each read and write all scores.
        let passes = if self.switches.kernels == Kernels::Fused { 1.0 } else { 4.0 };
        2.0 * self.scores_product()
            + self.machine.sweep(passes * softmax, passes)
            + self.machine.sweep(self.probability_dropout(), 1.0)
    }

    fn attention_backward(&self) -> f64 {
        if self.switches.attention == Attention::Flash {
            // Five products against two (arXiv 2205.14135, appendix B.2).
            return self.machine.fused_attention(2.5 * self.fused_flops());
        }
        let softmax = 3.0 * self.bytes * self.score_elements();
        let passes = if self.switches.kernels == Kernels::Fused { 1.0 } else { 2.0 };
        4.0 * self.scores_product()
            + self.machine.sweep(passes * softmax, passes)
            + self.machine.sweep(self.probability_dropout(), 1.0)
    }

    /// Bytes a dropout mask adds, per element.
    fn mask(&self) -> f64 {
        if self.model.dropout.hidden > 0.0 { 1.0 } else { 0.0 }
    }

    fn elementwise_forward(&self) -> f64 {
        let (machine, e) = (&self.machine, self.bytes);
        let stream = self.outside * self.hidden;
        let inner = self.tokens * self.ffn;
        let norm = machine.sweep(2.0 * e * stream, 1.0);
        let permute = machine.sweep(2.0 * e * self.tokens * self.width, 1.0);
        let joined = (3.0 * e + self.mask()) * stream;
        let activation = (self.inputs + 1.0) * e * inner;
        match self.switches.kernels {
            Kernels::Fused => 2.0 * norm + permute + 2.0 * machine.sweep(joined, 1.0) + machine.sweep(activation, 1.0),
            Kernels::Unfused => {
                // bias, dropout and residual apart; tanh GeLU as eight operations; q, k, v transposed.
                let branch = machine.sweep((2.0 * e + 2.0 * e + self.mask() + 3.0 * e) * stream, 3.0);
                let gelu = machine.sweep(9.0 * 2.0 * e * inner, 9.0);
                let transposes = machine.sweep(3.0 * 2.0 * e * self.tokens * self.width, 3.0);
                let biases = machine.sweep(2.0 * e * self.tokens * self.biased(), 2.0);
                2.0 * norm + permute + 2.0 * branch + gelu + transposes + biases
            }
        }
    }

    /// With 8-bit products every operand of these widths is read, and written in both orders.
    fn casts(&self, widths: f64) -> f64 {
        match self.switches.precision {
            Precision::FP8 => self.machine.sweep(4.0 * self.tokens * widths, 4.0),
            Precision::F32 | Precision::F16 | Precision::BF16 => 0.0,
        }
    }

    /// Widths of the column-parallel products, whose biases are a kernel each when unfused.
    fn biased(&self) -> f64 {
        self.width + 2.0 * self.kv_width + self.inputs * self.ffn
    }

    fn elementwise_backward(&self) -> f64 {
        let (machine, e) = (&self.machine, self.bytes);
        let stream = self.outside * self.hidden;
        let inner = self.tokens * self.ffn;
        // A norm reads input and gradient twice: once for the input, once for the gains.
        let norm = machine.sweep(5.0 * e * stream, 2.0);
        let dropout = machine.sweep((2.0 * e + self.mask()) * stream, 1.0) + machine.sweep(e * stream, 1.0);
        let residual = machine.sweep(3.0 * e * stream, 1.0);
        let widths = 2.0 * self.width + 4.0 * self.kv_width;
        let permutes =
            machine.sweep(2.0 * e * self.tokens * self.width, 1.0) + machine.sweep(1.5 * e * self.tokens * widths, 2.0);
        let activation = machine.sweep((2.0 * self.inputs + 1.0) * e * inner, 1.0) + machine.sweep(e * inner, 1.0);
        let unfused = match self.switches.kernels {
            Kernels::Fused => 0.0,
            Kernels::Unfused => {
                let gelu = machine.sweep(14.0 * 2.5 * e * inner, 14.0);
                let transposes = machine.sweep(4.0 * 2.0 * e * self.tokens * self.width, 4.0);
                let biases = machine.sweep(e * self.tokens * self.biased(), 2.0);
                gelu + transposes + biases + machine.sweep(4.0 * e * stream, 2.0)
            }
        };
        2.0 * (norm + dropout + residual) + permutes + activation + unfused + self.accumulation()
    }

    /// Adding weight gradients to their accumulators, every microbatch anew.
    fn accumulation(&self) -> f64 {
        let weights: f64 = self.matrices_of_layer().iter().map(|(out, input)| out * input).sum();
        let accumulator = self.switches.precision.state().gradient_bytes();
        match self.switches.accumulation {
            Accumulation::Separate => self.machine.sweep(weights * (2.0 * accumulator + self.bytes), 4.0),
            // The product reads the accumulator and writes it in place of a 16-bit result.
            Accumulation::Fused => self.machine.sweep(weights * (2.0 * accumulator - self.bytes) / 2.0, 0.0),
        }
    }

    fn backward(&self) -> Parts {
        let inputs = self.matrices_of_layer().map(|(out, input)| self.machine.product(self.tokens, input, out));
        let weights = self.matrices_of_layer().map(|(out, input)| self.machine.product(out, input, self.tokens));
        Parts {
            products: inputs.iter().sum::<f64>() + weights.iter().sum::<f64>(),
            attention: self.attention_backward(),
            elementwise: self.elementwise_backward() + self.casts(self.biased() + 2.0 * self.hidden),
            tensor: self.exposed_backward(inputs, weights),
            data: 0.0,
        }
    }

    fn exposed_forward(&self, products: f64) -> f64 {
        match self.switches.overlap.tensor {
            TensorOverlap::None | TensorOverlap::Backward => 2.0 * self.all_reduce(),
            // Cutting a product into pieces that follow a ring pays only on the node's links.
            TensorOverlap::Both if self.group.crosses_nodes() => 2.0 * self.all_reduce(),
            TensorOverlap::Both => self.behind(2.0 * self.all_reduce(), products),
        }
    }

    /// Only the column-parallel matrices, the first and the third, have a reduction, which can
    /// hide behind their weight gradient. With sequence parallelism a backward also gathers the
    /// gradient of each row-parallel output, and each column-parallel input anew beside the
    /// product of its gradient (2205.05198, section 4.2.2).
    fn exposed_backward(&self, inputs: [f64; 4], weights: [f64; 4]) -> f64 {
        let two = self.all_reduce();
        let (column_inputs, column_weights) = (inputs[0] + inputs[2], weights[0] + weights[2]);
        let split = self.switches.sequence_parallel == SequenceParallel::On;
        let row_gathers = match self.switches.overlap.tensor {
            TensorOverlap::Both if !self.group.crosses_nodes() => self.behind(two, inputs[1] + inputs[3]),
            _ => two,
        };
        match self.switches.overlap.tensor {
            TensorOverlap::None if split => 3.0 * two,
            TensorOverlap::None => 2.0 * two,
            _ if split => row_gathers + self.behind(two, column_inputs) + self.behind(two, column_weights),
            _ => self.behind(2.0 * two, column_weights),
        }
    }

    /// What is left of communication beside products: a tenth of the products' time is not
    /// available to it, and a twentieth of its own slows them down.
    fn behind(&self, communication: f64, products: f64) -> f64 {
        (communication - 0.9 * products).max(0.0) + 0.05 * communication
    }
}
