//! What the first and the last stage do beside their layers.

use crate::Cluster;
use crate::cost::{Group, Machine, Network, Parts};
use crate::switches::{Accumulation, Switches};
use henge_spec::Model;

/// Bytes a logit costs: cast to float32, maximum, difference, exponential, sum and quotient
/// (1909.08053, section 3; the artifact's `cross_entropy.py`), then scale and cast back.
const LOGIT_FORWARD_BYTES: f64 = 40.0;
const LOGIT_BACKWARD_BYTES: f64 = 22.0;

struct End<'a> {
    machine: Machine<'a>,
    network: Network<'a>,
    group: Group,
    tokens: f64,
    hidden: f64,
    /// Rows of the table on a rank.
    vocabulary: f64,
    bytes: f64,
    accumulate: f64,
}

impl<'a> End<'a> {
    fn new(cluster: &'a Cluster, model: &Model, tensor: usize, microbatch: usize, switches: &Switches) -> Self {
        let accumulator = switches.precision.state().gradient_bytes();
        let bytes = switches.precision.activation_bytes();
        Self {
            machine: Machine::new(cluster, switches.precision.of_attention_and_head()),
            network: Network::new(cluster),
            group: Group::contiguous(tensor, cluster.node_devices),
            tokens: (microbatch * model.seq_len) as f64,
            hidden: model.hidden as f64,
            vocabulary: (model.padded_vocab(tensor) / tensor) as f64,
            bytes,
            accumulate: match switches.accumulation {
                Accumulation::Separate => 2.0 * accumulator + bytes,
                Accumulation::Fused => (2.0 * accumulator - bytes) / 2.0,
            },
        }
    }

    fn all_reduce(&self) -> f64 {
        self.network.all_reduce(self.tokens * self.hidden * self.bytes, self.group)
    }
}

/// Forward and backward of the head: last norm, logits and loss.
pub(crate) fn head_cost(
    cluster: &Cluster,
    model: &Model,
    tensor: usize,
    microbatch: usize,
    switches: &Switches,
) -> (Parts, Parts) {
    let end = End::new(cluster, model, tensor, microbatch, switches);
    let logits = end.tokens * end.vocabulary;
    let stream = end.tokens * end.hidden * end.bytes;
    let forward = Parts {
        products: end.machine.product(end.tokens, end.vocabulary, end.hidden),
        elementwise: end.machine.sweep(LOGIT_FORWARD_BYTES * logits, 8.0) + end.machine.sweep(2.0 * stream, 1.0),
        // Maximum, target and sum: one number a token each.
        tensor: 3.0 * end.network.all_reduce(4.0 * end.tokens, end.group),
        ..Parts::default()
    };
    let products = end.machine.product(end.tokens, end.hidden, end.vocabulary)
        + end.machine.product(end.vocabulary, end.hidden, end.tokens);
    let elementwise = end.machine.sweep(LOGIT_BACKWARD_BYTES * logits, 3.0)
        + end.machine.sweep(5.0 * stream, 2.0)
        + end.machine.sweep(end.accumulate * end.vocabulary * end.hidden, 1.0);
    (forward, Parts { products, elementwise, tensor: end.all_reduce(), ..Parts::default() })
}

/// Forward and backward of the embedding: two tables, their sum, dropout, and the dense
/// gradient of the token table.
pub(crate) fn embedding_cost(
    cluster: &Cluster,
    model: &Model,
    tensor: usize,
    microbatch: usize,
    switches: &Switches,
) -> (Parts, Parts) {
    let end = End::new(cluster, model, tensor, microbatch, switches);
    let stream = end.tokens * end.hidden * end.bytes;
    let forward =
        Parts { elementwise: end.machine.sweep(9.5 * stream, 5.0), tensor: end.all_reduce(), ..Parts::default() };
    let table = end.vocabulary * end.hidden * (end.bytes + end.accumulate);
    let elementwise = end.machine.sweep(7.5 * stream, 4.0) + end.machine.sweep(table, 1.0);
    (forward, Parts { elementwise, ..Parts::default() })
}
