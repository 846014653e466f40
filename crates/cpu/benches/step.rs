//! Where the time of a GPT step goes, by operation, beside the peak of the same moment.
//!
//! `cargo bench -p henge-cpu` measures one thread and then two; `-- 4` four. Seconds by
//! operation are processor seconds, so that what others run beside it does not count; wall
//! time does count it.

use henge_cpu::{Activation, Fast, Flat, Rounding, ceiling};
use henge_random::{fill_normal, key};
use henge_tensor::{
    AdamStep, AttentionCall, AttentionShape, Backend, Buffer, Kind, Mask, NonLinearity, VocabularyShard,
};
use std::collections::BTreeMap;
use std::time::Instant;

const LAYERS: usize = 6;
const HIDDEN: usize = 512;
const HEADS: usize = 8;
const SEQ: usize = 512;
const BATCH: usize = 8;
const VOCABULARY: usize = 50304;
/// Tokens whose logits exist at once.
const BLOCK: usize = 512;

/// Processor seconds of this process: what others run beside it does not count.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the value it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// The peak in operations per processor second.
fn peak(b: &Fast) -> f64 {
    let (wall, processor) = (Instant::now(), processor_seconds());
    let rate = ceiling::peak_flops(b.team(), 0.05);
    rate * wall.elapsed().as_secs_f64() / (processor_seconds() - processor)
}

/// Processor seconds by operation.
#[derive(Default)]
struct Clock(BTreeMap<&'static str, f64>);

impl Clock {
    fn time<T>(&mut self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let start = processor_seconds();
        let result = work();
        *self.0.entry(what).or_default() += processor_seconds() - start;
        result
    }
}

/// Parameters of one linear `[outputs, inputs]`, its gradients at the same offsets.
struct Linear {
    weight: <Fast as Backend>::Weight,
    bias: Flat<f32>,
    inputs: usize,
    outputs: usize,
}

impl Linear {
    fn new(b: &Fast, values: &Flat<f32>, outputs: usize, inputs: usize) -> Self {
        Self {
            weight: b.prepare(values, 0, outputs, inputs),
            bias: b.prepare_vector(values, 0, outputs),
            inputs,
            outputs,
        }
    }

    fn backward(
        &self,
        b: &Fast,
        clock: &mut Clock,
        x: &Activation<f32>,
        dy: &Activation<f32>,
        grads: &mut Flat<f32>,
    ) -> Activation<f32> {
        clock.time("linear, weight gradient", || b.linear_weight_gradient(x, dy, grads, 0));
        clock.time("bias gradient", || b.bias_gradient(dy, grads, self.inputs * self.outputs));
        clock.time("linear, input gradient", || b.linear_input_gradient(dy, &self.weight))
    }
}

struct Model {
    qkv: Linear,
    proj: Linear,
    up: Linear,
    down: Linear,
    table: <Fast as Backend>::Weight,
    gain: Flat<f32>,
    grads: Flat<f32>,
}

impl Model {
    /// All layers share one set of parameters: the time is the same but for the caches, which
    /// a layer's 12 MB leave anyway.
    fn new(b: &Fast) -> Self {
        let mut numbers = vec![0.0; VOCABULARY * HIDDEN];
        fill_normal(key(5, "values"), 0, 0.02, &mut numbers);
        let mut values = b.zeros(numbers.len(), Kind::Weight);
        values.write(0, &numbers);
        let linear = |outputs, inputs| Linear::new(b, &values, outputs, inputs);
        Self {
            qkv: linear(3 * HIDDEN, HIDDEN),
            proj: linear(HIDDEN, HIDDEN),
            up: linear(4 * HIDDEN, HIDDEN),
            down: linear(HIDDEN, 4 * HIDDEN),
            table: b.prepare(&values, 0, VOCABULARY, HIDDEN),
            gain: b.prepare_vector(&values, 0, HIDDEN),
            grads: b.zeros(VOCABULARY * HIDDEN + 4 * HIDDEN, Kind::Gradient),
        }
    }

    fn layer(&mut self, b: &Fast, clock: &mut Clock, x: Activation<f32>) -> Activation<f32> {
        let shape = AttentionShape { batch: BATCH, seq: SEQ, heads: HEADS, kv_heads: HEADS, head_dim: HIDDEN / HEADS };
        let call = AttentionCall { shape, mask: Mask::Causal, scale: 0.125, dropout: None };
        let f = NonLinearity::GeluTanh;
        let (x1, stats1) = clock.time("norm", || b.layer_norm(&x, &self.gain, &self.gain, 1e-5));
        let qkv = clock.time("linear", || b.linear(&x1, &self.qkv.weight, Some(&self.qkv.bias)));
        let (heads, logs) = clock.time("attention", || b.attention(&qkv, &call));
        let branch = clock.time("linear", || b.linear(&heads, &self.proj.weight, None));
        let middle = clock.time("add branch", || b.add_branch(&x, branch, Some(&self.proj.bias), None));
        let (x2, stats2) = clock.time("norm", || b.layer_norm(&middle, &self.gain, &self.gain, 1e-5));
        let (act, pre) =
            clock.time("linear, activated", || b.linear_activated(&x2, &self.up.weight, Some(&self.up.bias), f));
        let branch = clock.time("linear", || b.linear(&act, &self.down.weight, None));
        let y = clock.time("add branch", || b.add_branch(&middle, branch, Some(&self.down.bias), None));

        let mut dy = clock.time("copy", || b.duplicate(&y));
        let dact = self.down.backward(b, clock, &act, &dy, &mut self.grads);
        let dpre = clock.time("activation backward", || b.activation_backward(dact, &pre, f));
        let dx2 = self.up.backward(b, clock, &x2, &dpre, &mut self.grads);
        clock.time("norm backward", || {
            b.layer_norm_backward(&dx2, &middle, &stats2, &self.gain, &mut dy, &mut self.grads, 0, HIDDEN)
        });
        let dheads = self.proj.backward(b, clock, &heads, &dy, &mut self.grads);
        let dqkv = clock.time("attention backward", || b.attention_backward(&dheads, &qkv, &heads, &logs, &call));
        let dx1 = self.qkv.backward(b, clock, &x1, &dqkv, &mut self.grads);
        clock.time("norm backward", || {
            b.layer_norm_backward(&dx1, &x, &stats1, &self.gain, &mut dy, &mut self.grads, 0, HIDDEN)
        });
        y
    }

    fn head(&mut self, b: &Fast, clock: &mut Clock, x: &Activation<f32>) {
        let mut dx = b.blank(BATCH * SEQ, HIDDEN);
        for start in (0..BATCH * SEQ).step_by(BLOCK) {
            let targets: Vec<i64> = (0..BLOCK as i64).map(|i| i * 97 % VOCABULARY as i64).collect();
            let shard = VocabularyShard { first_row: 0, rows: (start, start + BLOCK), targets: &targets };
            let (logits, stats) = clock.time("head, sweep", || b.vocabulary_sweep(x, &self.table, None, &shard));
            clock.time("head, gradient", || {
                b.vocabulary_gradient(logits, &stats, x, &self.table, &shard, 1e-4, &mut dx, &mut self.grads, 0, None);
            });
        }
    }
}

fn optimizer(b: &Fast, clock: &mut Clock, model: &mut Model, state: &mut [Flat<f32>; 4]) {
    let len = 12 * LAYERS * HIDDEN * HIDDEN + (VOCABULARY + SEQ) * HIDDEN;
    let [values, grads, first, second] = state;
    let step =
        AdamStep { lr: 1e-4, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, update: 1, gradient_scale: 1.0 };
    clock.time("gradient norm", || b.sum_of_squares(grads, 0..len));
    clock.time("adam", || b.adam(values, grads, first, second, 0..len, &step));
    clock.time("refresh", || {
        b.refresh(&mut model.table, values, 0);
        for _ in 0..LAYERS {
            for linear in [&mut model.qkv, &mut model.proj, &mut model.up, &mut model.down] {
                b.refresh(&mut linear.weight, values, 0);
            }
        }
    });
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Test runs of all targets start benchmarks too, without this word.
    if !arguments.iter().any(|word| word == "--bench") {
        return;
    }
    let asked: Vec<usize> = arguments.iter().filter_map(|word| word.parse().ok()).collect();
    for threads in if asked.is_empty() { vec![1, 2] } else { asked } {
        measure(threads);
    }
}

/// Operations of the step's products and attention, all of it (not its causal half).
fn flop() -> f64 {
    let tokens = (BATCH * SEQ) as f64;
    let layer = 24.0 * tokens * (HIDDEN * HIDDEN) as f64 + 4.0 * tokens * (SEQ * HIDDEN) as f64;
    3.0 * (LAYERS as f64 * layer + 2.0 * tokens * (VOCABULARY * HIDDEN) as f64)
}

/// Prints three steps; the first pays for first touch.
fn measure(threads: usize) {
    let b = Fast::new(threads, Rounding::Exact);
    let mut model = Model::new(&b);
    let len = 12 * LAYERS * HIDDEN * HIDDEN + (VOCABULARY + SEQ) * HIDDEN;
    let mut state = [(); 4].map(|()| b.zeros(len, Kind::Optimizer));
    println!("{}", b.describe());
    for step in 1..=3 {
        let before = peak(&b);
        let (mut clock, start) = (Clock::default(), (Instant::now(), processor_seconds()));
        let mut x = b.upload(BATCH * SEQ, HIDDEN, &vec![0.5; BATCH * SEQ * HIDDEN]);
        for _ in 0..LAYERS {
            x = model.layer(&b, &mut clock, x);
        }
        model.head(&b, &mut clock, &x);
        optimizer(&b, &mut clock, &mut model, &mut state);
        let (wall, processor) = (start.0.elapsed().as_secs_f64(), processor_seconds() - start.1);
        let rates = [flop() / wall, flop() / processor, before, peak(&b)].map(|rate| rate / 1e9);
        println!("step {step}: {wall:.3} s, {:.0} GFLOP/s", rates[0]);
        println!("    by the processor's clock {processor:.3} s, {:.1} GFLOP/s a core", rates[1]);
        println!("    peak of a core {:.1} before, {:.1} GFLOP/s after", rates[2], rates[3]);
        for (what, seconds) in &clock.0 {
            println!("    {what:<28}{:8.1} ms", 1e3 * seconds);
        }
    }
}
