//! A whole step: seconds of every operation of every rank's program.

use crate::cost::{Group, Machine, Network, Parts, embedding_cost, head_cost, layer_cost};
use crate::switches::{ScatterGather, Sharding};
use crate::{Precision, Workload};
use henge_spec::formulas::{SequenceParallel, layer_matrix_parameters, layer_parameters, other_parameters};
use henge_spec::{Layout, Model, Recompute};

/// Parameters that one rank holds of one virtual stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageParameters {
    /// Of the layers.
    pub layers: f64,
    /// Of vocabulary tables, positions and the last norm.
    pub ends: f64,
}

impl StageParameters {
    /// Sum of both.
    pub fn total(&self) -> f64 {
        self.layers + self.ends
    }
}

/// Seconds of the operations of a step; one entry a virtual stage unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct StepCost {
    /// Forward of a microbatch.
    pub forward: Vec<Parts>,
    /// Backward of a microbatch with its recomputation.
    pub backward: Vec<Parts>,
    /// The recomputation in that backward.
    pub recompute: Vec<Parts>,
    /// The message from a stage to the next one, or back.
    pub message: Vec<f64>,
    /// Reduction of a stage's gradients over the replicas.
    pub reduce: Vec<f64>,
    /// Share of that reduction that cannot start before the last backward ends.
    pub reduce_tail: Vec<f64>,
    /// All-reduce of the tied table between the ends.
    pub sync_embedding: f64,
    /// Optimizer, a pipeline rank.
    pub optimizer: Vec<f64>,
    /// Exposed gather of updated weights, a pipeline rank.
    pub gather: Vec<f64>,
    /// Parameters of a rank.
    pub parameters: Vec<StageParameters>,
}

/// Prices every operation of a workload that keeps the rules.
pub fn step_cost(work: &Workload) -> StepCost {
    let parameters = stage_parameters(work);
    let Compute { forward, backward, recompute } = compute(work);
    let layers = work.stage_layers();
    let reduce: Vec<f64> = parameters.iter().map(|stage| reduction(work, stage.total())).collect();
    let ranks = 0..work.layout.pipeline;
    let held =
        |rank: usize| parameters.iter().skip(rank).step_by(work.layout.pipeline).map(StageParameters::total).sum();
    StepCost {
        message: (0..work.layout.stages()).map(|stage| message(work, stage)).collect(),
        reduce_tail: layers.iter().map(|layers| 1.0 / (*layers as f64 + 1.0)).collect(),
        sync_embedding: sync_embedding(work),
        optimizer: ranks.clone().map(|rank| optimizer(work, held(rank))).collect(),
        gather: ranks.map(|rank| weight_gather(work, held(rank))).collect(),
        forward,
        backward,
        recompute,
        reduce,
        parameters,
    }
}

struct Compute {
    forward: Vec<Parts>,
    backward: Vec<Parts>,
    recompute: Vec<Parts>,
}

fn compute(work: &Workload) -> Compute {
    let Workload { cluster, model, microbatch, switches, .. } = work;
    let t = work.layout.tensor;
    let layer = layer_cost(cluster, model, t, *microbatch, work.layout.recompute, switches);
    let counts = work.stage_layers();
    let mut forward: Vec<Parts> = counts.iter().map(|count| layer.forward * *count as f64).collect();
    let both = layer.backward + layer.recompute;
    let mut backward: Vec<Parts> = counts.iter().map(|count| both * *count as f64).collect();
    let (first, last) = (0, counts.len() - 1);
    let (embed, embed_back) = embedding_cost(cluster, model, t, *microbatch, switches);
    let (head, head_back) = head_cost(cluster, model, t, *microbatch, switches);
    forward[first] += embed;
    backward[first] += embed_back;
    forward[last] += head;
    backward[last] += head_back;
    if switches.sharding == Sharding::Zero3 {
        for (stage, count) in counts.iter().enumerate() {
            wait_for_weights(work, *count as f64, &mut forward[stage], &mut backward[stage]);
        }
    }
    let recompute = counts.iter().map(|count| layer.recompute * *count as f64).collect();
    Compute { forward, backward, recompute }
}

/// Matrices of a layer that ZeRO-3 gathers and scatters one by one.
const MATRICES: f64 = 4.0;

/// Blocks of a collective that runs beside computation, each of which takes a
/// multiprocessor: a ring of NCCL has about 24 on 8 GPUs with 8 cards, and DeepSeek-V3
/// gives 20 to its own (arXiv 2412.19437, section 3.2.2).
const COMMUNICATION_BLOCKS: f64 = 24.0;

/// ZeRO-3 gathers every matrix for its forward and again for its backward, once more in
/// between where the forward is run again, because what was gathered is dropped at once,
/// and scatters the gradients (arXiv 1910.02054, section 7.2.2: 3 volumes; 4 with recomputation).
fn wait_for_weights(work: &Workload, layers: f64, forward: &mut Parts, backward: &mut Parts) {
    let matrix = layer_matrix_parameters(work.model) / (MATRICES * work.layout.tensor as f64);
    let bytes = matrix * work.switches.precision.state().weight_bytes();
    let once = layers * MATRICES * Network::new(work.cluster).flat_gather(bytes, data_group(work));
    let again = if matches!(work.layout.recompute, Recompute::Every(_)) { 3.0 } else { 2.0 };
    forward.data += beside(work, once, forward.total());
    backward.data += beside(work, again * once, backward.total());
}

/// What communication that runs beside `computation` adds to it: what is longer is waited
/// for, and while both run the collective's blocks hold their multiprocessors.
fn beside(work: &Workload, communication: f64, computation: f64) -> f64 {
    let taken = (COMMUNICATION_BLOCKS / work.cluster.device.multiprocessors).min(1.0);
    (communication - computation).max(0.0) + taken * communication.min(computation)
}

fn data_group(work: &Workload) -> Group {
    Group::strided(work.layout.data, work.layout.tensor, work.cluster.node_devices)
}

/// Parameters a rank of each virtual stage holds: matrices split over t, the rest whole.
fn stage_parameters(work: &Workload) -> Vec<StageParameters> {
    let model = work.model;
    let t = work.layout.tensor;
    let matrices = layer_matrix_parameters(model);
    let layer = matrices / t as f64 + (layer_parameters(model) - matrices);
    let layers = work.stage_layers().into_iter().map(|count| count as f64 * layer);
    let mut stages: Vec<StageParameters> = layers.map(|layers| StageParameters { layers, ends: 0.0 }).collect();
    let table = table(model, t);
    let last = stages.len() - 1;
    stages[0].ends += table + other_parameters(model);
    if model.task.is_none() && (last > 0 || !model.tie_embeddings) {
        stages[last].ends += table;
    }
    stages
}

fn table(model: &Model, tensor: usize) -> f64 {
    (model.padded_vocab(tensor) / tensor * model.hidden) as f64
}

/// Message from stage to stage + 1: inside a node only where it is so for every replica.
fn message(work: &Workload, stage: usize) -> f64 {
    let Layout { tensor, pipeline, data, .. } = work.layout;
    if pipeline == 1 {
        return 0.0;
    }
    let network = Network::new(work.cluster);
    let whole =
        (work.microbatch * work.model.seq_len * work.model.hidden) as f64 * work.switches.precision.activation_bytes();
    let node = work.cluster.node_devices;
    let (from, to) = (stage % pipeline * tensor * data, (stage + 1) % pipeline * tensor * data);
    let inside = |replica: usize| (from + replica * tensor) / node == (to + replica * tensor) / node;
    let together = tensor * data < node && (0..data).all(inside);
    let slice = whole / tensor as f64;
    let group = Group::contiguous(tensor, node);
    match (work.switches.sequence_parallel, work.switches.scatter_gather) {
        _ if together => network.message_in_node(whole),
        (SequenceParallel::On, _) => network.message_across(slice),
        (_, ScatterGather::On) => network.message_across(slice) + network.gather(whole, group),
        (_, ScatterGather::Off) => network.message_across(whole),
    }
}

fn reduction(work: &Workload, parameters: f64) -> f64 {
    let bytes = parameters * work.switches.precision.state().gradient_bytes();
    let network = Network::new(work.cluster);
    match work.switches.sharding {
        Sharding::None => network.all_reduce(bytes, data_group(work)),
        Sharding::Zero1 => network.gather(bytes, data_group(work)),
        Sharding::Zero3 => 0.0,
    }
}

fn sync_embedding(work: &Workload) -> f64 {
    if work.layout.pipeline == 1 || !work.model.head_is_tied() {
        return 0.0;
    }
    let bytes = table(work.model, work.layout.tensor) * work.switches.precision.state().gradient_bytes();
    let pair = Group { ranks: 2.0, per_node: 1.0 };
    Network::new(work.cluster).all_reduce(bytes, pair)
}

/// Bytes the optimizer moves per parameter: gradient copied to float32 and unscaled (half
/// only), norm, clip, Adam on four arrays, weight written back, gradient zeroed.
fn optimizer_bytes(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 4.0 + 8.0 + 28.0 + 4.0,
        Precision::F16 => 6.0 + 8.0 + 4.0 + 8.0 + 28.0 + 6.0 + 2.0,
        Precision::BF16 | Precision::FP8 => 4.0 + 8.0 + 28.0 + 6.0 + 4.0,
    }
}

fn sharded(work: &Workload, parameters: f64) -> f64 {
    match work.switches.sharding {
        Sharding::None => parameters,
        Sharding::Zero1 | Sharding::Zero3 => parameters / work.layout.data as f64,
    }
}

fn optimizer(work: &Workload, parameters: f64) -> f64 {
    let bytes = optimizer_bytes(work.switches.precision) * sharded(work, parameters);
    Machine::new(work.cluster, work.switches.precision).sweep(bytes, 20.0)
}

/// ZeRO-1 gathers what the replicas updated; overlapped, the next forward hides all but
/// the first layer's share.
fn weight_gather(work: &Workload, parameters: f64) -> f64 {
    if work.switches.sharding != Sharding::Zero1 {
        return 0.0;
    }
    let bytes = parameters * work.switches.precision.state().weight_bytes();
    let all = Network::new(work.cluster).gather(bytes, data_group(work));
    if !work.switches.overlap.data {
        return all;
    }
    all / (work.stage_layers()[0] as f64 + 1.0)
}
