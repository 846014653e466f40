//! Bytes that each pipeline rank holds, by walking its program.

use crate::cost::StageParameters;
use crate::switches::{Accumulation, Outputs, Sharding};
use crate::{Precision, Workload};
use henge_schedule::{Op, Program, Shape};
use henge_spec::formulas::{
    Attention, LayerActivations, SequenceParallel, StateFormat, kept_activation_bytes, layer_activations, mlp_matrices,
};
use henge_spec::{MemoryForecast, Recompute};

/// What one device of a pipeline rank holds at its peak, bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankMemory {
    /// Weights in compute precision.
    pub weights: f64,
    /// Gradient accumulators.
    pub gradients: f64,
    /// Master weights, float32 gradient copies, moments.
    pub optimizer: f64,
    /// Kept between forward and backward, at the peak.
    pub activations: f64,
    /// Recomputed layer, workspace, logits, message and reduction buffers, at the peak.
    pub buffers: f64,
    /// Most chunk-microbatches in flight at any time.
    pub in_flight: usize,
    /// Operation at which the peak is reached, and its place in the program.
    pub peak: (usize, Op),
}

impl RankMemory {
    /// Sum over all kinds.
    pub fn total(&self) -> f64 {
        self.weights + self.gradients + self.optimizer + self.activations + self.buffers
    }

    /// What the rank does at its peak.
    pub fn peak_words(&self) -> String {
        match self.peak.1 {
            Op::Forward { microbatch, .. } => format!("forward {}", microbatch + 1),
            Op::Backward { microbatch, .. } => format!("backward {}", microbatch + 1),
            Op::Step => "optimizer".to_string(),
            _ => "message".to_string(),
        }
    }

    /// As the trainer prints it beside what it measures.
    pub fn forecast(&self) -> MemoryForecast {
        MemoryForecast {
            weights: self.weights as u64,
            gradients: self.gradients as u64,
            optimizer: self.optimizer as u64,
            activations: (self.activations + self.buffers) as u64,
        }
    }
}

/// The memory of every pipeline rank.
pub fn memory(work: &Workload, program: &Program, parameters: &[StageParameters]) -> Vec<RankMemory> {
    let account = Account::new(work);
    (0..work.layout.pipeline).map(|rank| account.rank(program, rank, parameters)).collect()
}

/// Bytes of the fullest rank without a program, for the search. Ranks between the second
/// and the last hold what the second holds, with less in flight.
pub fn memory_bound(work: &Workload, parameters: &[StageParameters]) -> f64 {
    let account = Account::new(work);
    let shape = work.shape();
    let window = henge_schedule::smallest_window(&shape);
    let need = |rank: usize| {
        let (weights, gradients, optimizer) = account.states(rank, parameters);
        let moving = account.moving(&shape, rank).max(account.step_space(gradients));
        weights + gradients + optimizer + account.standing(window, gradients) + moving
    };
    let last = shape.pipeline - 1;
    need(0).max(need(last)).max(need(last.min(1)))
}

struct Account<'a> {
    work: &'a Workload<'a>,
    layers: Vec<usize>,
    layer: LayerActivations,
    /// A stage's input or output on this rank.
    boundary: f64,
    /// Bytes of a microbatch's hidden states, whole.
    stream: f64,
}

impl<'a> Account<'a> {
    fn new(work: &'a Workload<'a>) -> Self {
        let switches = &work.switches;
        let t = work.layout.tensor;
        let layer = layer_activations(work.model, work.microbatch, t, switches.sequence_parallel, switches.attention);
        let wide = switches.precision.activation_bytes() / 2.0;
        let stream = 2.0 * wide * (work.microbatch * work.model.seq_len * work.model.hidden) as f64;
        let boundary = match switches.sequence_parallel {
            SequenceParallel::On => stream / t as f64,
            SequenceParallel::Off => stream,
        };
        // Products in 8 bits keep their inputs so (Transformer Engine): both norms' outputs, and
        // what enters the MLP's last matrix, a byte each in place of two.
        let saved = if switches.precision == Precision::FP8 { 1.0 } else { 0.0 };
        let entering = (work.microbatch * work.model.seq_len * work.model.ffn_hidden) as f64 / t as f64;
        let layer = LayerActivations {
            replicated: layer.replicated * wide - saved * boundary,
            split: layer.split * wide - saved * entering,
            scores: layer.scores * wide,
        };
        Self { work, layers: work.stage_layers(), layer, boundary, stream }
    }

    /// Weights, gradients and optimizer states of a rank.
    fn states(&self, rank: usize, parameters: &[StageParameters]) -> (f64, f64, f64) {
        let held: f64 =
            parameters.iter().skip(rank).step_by(self.work.layout.pipeline).map(StageParameters::total).sum();
        let format = self.work.switches.precision.state();
        let data = self.work.layout.data as f64;
        let (weights, gradients) = (held * format.weight_bytes(), held * format.gradient_bytes());
        let optimizer = held * (format.optimizer_bytes() - gradient_copy(format));
        match self.work.switches.sharding {
            Sharding::None => (weights, gradients, optimizer),
            Sharding::Zero1 => (weights, gradients, optimizer / data),
            Sharding::Zero3 => (weights / data, gradients / data, optimizer / data),
        }
    }

    /// What a stage keeps of one microbatch.
    fn kept(&self, stage: usize) -> f64 {
        let layers = self.layers[stage] as f64;
        // The checkpoint is the layer's input as the artifact keeps it: whole on every rank,
        // unless the sequence is split anyway.
        let mut bytes = layers * kept_activation_bytes(&self.layer, self.boundary, self.work.layout.recompute);
        let last = self.layers.len() - 1;
        if self.work.switches.outputs == Outputs::Kept && stage != last {
            bytes += self.boundary;
        }
        if stage == 0 && self.work.model.dropout.embedding > 0.0 {
            bytes += self.boundary / self.work.switches.precision.activation_bytes();
        }
        if stage == last {
            bytes += 2.0 * self.boundary + self.logits();
        }
        bytes
    }

    /// float32 logits of a microbatch.
    fn logits(&self) -> f64 {
        let rows = self.work.model.padded_vocab(self.work.layout.tensor) / self.work.layout.tensor;
        4.0 * (self.work.microbatch * self.work.model.seq_len * rows) as f64
    }

    /// Working space of a backward: the recomputed layers, and gradients of the widest tensors.
    fn backward_space(&self, stage: usize) -> f64 {
        let again = match self.work.layout.recompute {
            Recompute::None => 0.0,
            Recompute::Selective => self.layer.scores,
            Recompute::Every(every) => self.layer.total() * every.clamp(1, self.layers[stage].max(1)) as f64,
        };
        let layers = again + self.gradient_space();
        if stage + 1 < self.layers.len() {
            return layers;
        }
        // The head goes first, and its kept logits are gone when the layers' turn comes.
        let logits = self.logits();
        (layers - logits).max(1.5 * logits)
    }

    /// Most that a layer's backward adds. The MLP goes first: the gradients on both sides of
    /// its activation. Its tensors are freed before the scores' gradient is made.
    fn gradient_space(&self) -> f64 {
        let t = self.work.layout.tensor as f64;
        let model = self.work.model;
        let e = self.work.switches.precision.activation_bytes();
        let tokens = (self.work.microbatch * model.seq_len) as f64;
        let inner = e * tokens * model.ffn_hidden as f64 / t;
        let scores = match self.work.switches.attention {
            Attention::Plain => e * tokens * (model.heads * model.seq_len) as f64 / t,
            Attention::Flash => 0.0,
        };
        let freed = mlp_matrices(model) * inner;
        (2.0 * inner).max(scores - freed) + 2.0 * self.stream
    }

    /// Receive and send buffers, buckets; with ZeRO-3 the matrices that are gathered.
    fn standing(&self, window: usize, gradients: f64) -> f64 {
        let messages = if self.work.layout.pipeline > 1 { (window + 2) as f64 * self.boundary } else { 0.0 };
        messages + self.gathered() + self.buckets(gradients)
    }

    /// The overlapping DDP of the artifact's days copied every gradient into its buckets and
    /// kept these all along (PyTorch 1.8 without `gradient_as_bucket_view`).
    fn buckets(&self, gradients: f64) -> f64 {
        let copies = self.reduces_copies() && self.work.switches.overlap.data;
        if copies { gradients } else { 0.0 }
    }

    /// Whether reductions work on copies of the gradients: before accumulation was fused
    /// into one contiguous buffer.
    fn reduces_copies(&self) -> bool {
        self.work.switches.accumulation == Accumulation::Separate
            && self.work.layout.data > 1
            && self.work.switches.sharding == Sharding::None
    }

    fn gathered(&self) -> f64 {
        if self.work.switches.sharding != Sharding::Zero3 {
            return 0.0;
        }
        // One matrix in use and one fetched ahead; the gradient of one.
        let matrix = (self.work.model.hidden * self.work.model.ffn_hidden) as f64 / self.work.layout.tensor as f64;
        3.0 * matrix * self.work.switches.precision.state().weight_bytes()
    }

    /// Most that a rank's kept activations and working space come to, from the order of its
    /// chunks alone. In the steady state what is kept repeats itself once every microbatch of
    /// a group has passed every chunk, so that one such period and the remainder stand for all.
    fn moving(&self, shape: &Shape, rank: usize) -> f64 {
        let Shape { pipeline, chunks, .. } = *shape;
        let stages = (0..chunks).map(|chunk| chunk * pipeline + rank);
        let held: Vec<(f64, f64)> = stages.map(|stage| (self.kept(stage), self.backward_space(stage))).collect();
        let period = pipeline * chunks;
        let chunk_of = |step: usize| step % period / pipeline;
        let (warmup, forward_space) = (shape.warmup(rank), self.forward_space());
        let pairs = shape.forwards_per_rank() - warmup;
        let pairs = if pairs > period { period + pairs % period } else { pairs };
        let mut live: f64 = (0..warmup).map(|step| held[chunk_of(step)].0).sum();
        let mut peak = live + forward_space;
        for step in 0..pairs + warmup {
            if step < pairs {
                live += held[chunk_of(warmup + step)].0;
                peak = peak.max(live + forward_space);
            }
            let (kept, space) = held[chunks - 1 - chunk_of(step)];
            peak = peak.max(live + space);
            live -= kept;
        }
        peak
    }

    /// Working space of a forward. Inside a checkpointed stage one layer at a time lives whole.
    fn forward_space(&self) -> f64 {
        match self.work.layout.recompute {
            Recompute::None => 0.0,
            Recompute::Selective => self.layer.scores,
            Recompute::Every(_) => self.layer.total(),
        }
    }

    /// The copy that is reduced is gone before the float32 gradients are made.
    fn step_space(&self, gradients: f64) -> f64 {
        let format = self.work.switches.precision.state();
        let shards = match self.work.switches.sharding {
            Sharding::None => 1.0,
            Sharding::Zero1 | Sharding::Zero3 => self.work.layout.data as f64,
        };
        let whole = if self.work.switches.sharding == Sharding::Zero3 { shards * gradients } else { gradients };
        let copy = whole / format.gradient_bytes() * gradient_copy(format) / shards;
        copy.max(self.reduction_copy(gradients))
    }

    /// The artifact flattens all gradients of a type into one copy before it reduces them.
    fn reduction_copy(&self, gradients: f64) -> f64 {
        let copies = self.reduces_copies() && !self.work.switches.overlap.data;
        if copies { gradients } else { 0.0 }
    }

    fn rank(&self, program: &Program, rank: usize, parameters: &[StageParameters]) -> RankMemory {
        let (weights, gradients, optimizer) = self.states(rank, parameters);
        let standing = self.standing(program.receive_window, gradients);
        let mut live = Live::default();
        let mut memory = RankMemory {
            weights,
            gradients,
            optimizer,
            activations: 0.0,
            buffers: 0.0,
            in_flight: 0,
            peak: (0, Op::Step),
        };
        for (position, op) in program.ranks[rank].iter().enumerate() {
            let space = self.space_of(op, rank, gradients, &mut live);
            let held = live.kept + space + standing;
            memory.in_flight = memory.in_flight.max(live.count);
            if held > memory.activations + memory.buffers {
                memory.activations = live.kept;
                memory.buffers = space + standing;
                memory.peak = (position, *op);
            }
            if let Op::Backward { chunk, .. } = op {
                live.kept -= self.kept(chunk * self.work.layout.pipeline + rank);
                live.count -= 1;
            }
        }
        memory
    }

    /// Temporary bytes of an operation; a forward's result is kept from here on.
    fn space_of(&self, op: &Op, rank: usize, gradients: f64, live: &mut Live) -> f64 {
        match *op {
            Op::Forward { chunk, .. } => {
                live.kept += self.kept(chunk * self.work.layout.pipeline + rank);
                live.count += 1;
                self.forward_space()
            }
            Op::Backward { chunk, .. } => self.backward_space(chunk * self.work.layout.pipeline + rank),
            Op::Step => self.step_space(gradients),
            _ => 0.0,
        }
    }
}

/// Bytes a parameter of the float32 gradient copy of half precision, which lives only
/// while the optimizer runs (the artifact's `_copy_model_grads_to_main_grads`).
fn gradient_copy(format: StateFormat) -> f64 {
    match format {
        StateFormat::F16 => 4.0,
        StateFormat::F32 | StateFormat::BF16 => 0.0,
    }
}

#[derive(Default)]
struct Live {
    kept: f64,
    count: usize,
}
