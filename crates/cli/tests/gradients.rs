//! Every layer's backward against finite differences of the loss in float64, dropout on, and
//! every parallel form against the one-rank form.

use henge_comm::{Grid, threads};
use henge_cpu::Plain;
use henge_model::{Context, Dropouts, LossGradient, Microbatch, Output, Place, Stage, Store};
use henge_spec::{Activation, Arch, Layout, Model, NormPlacement, Recompute, Rope, TaskHead, parameters};
use henge_tensor::{Backend, Buffer};
use std::collections::BTreeMap;
use std::convert::Infallible;

type Device = Plain<f64>;
type Tensors = BTreeMap<String, Vec<f64>>;

const SEQ: usize = 6;

fn gpt() -> Model {
    // Wide weights, so that no gradient is small against the error of a difference.
    Model { init_std: 0.3, ..Model::gpt(2, 16, 4, SEQ, 37) }
}

/// Each family, and what varies inside it.
fn models() -> Vec<(&'static str, Model)> {
    let llama = Model {
        arch: Arch::Llama,
        activation: Activation::SwiGlu,
        rope: Some(Rope::plain(100.0)),
        tie_embeddings: false,
        ffn_hidden: 24,
        ..gpt()
    };
    let grouped = Model { kv_heads: 2, head_dim: 6, qkv_bias: true, ..llama.clone() };
    let bert = Model { arch: Arch::Bert, token_types: 2, activation: Activation::Gelu, ..gpt() };
    let post = Model { norm: NormPlacement::Post, ..bert.clone() };
    let task = |task| Model { task: Some(task), ..post.clone() };
    let tasks = [
        ("classes", task(TaskHead::Classes(3))),
        ("choice", task(TaskHead::Choice(3))),
        ("span", Model { norm: NormPlacement::Pre, ..task(TaskHead::Span) }),
    ];
    let families = vec![
        ("gpt", gpt()),
        ("llama", llama),
        ("grouped llama", grouped),
        ("pre-norm bert", bert),
        ("post-norm bert", post.clone()),
    ];
    families.into_iter().chain(tasks).collect()
}

fn micro(model: &Model) -> Microbatch {
    let tokens: Vec<u32> = (0..3 * SEQ as u32).map(|i| (i * i * 5 + i * 3) % 37).collect();
    let labels = tokens.iter().map(|&token| if token % 5 == 0 { -1 } else { i64::from((token * 7 + 1) % 37) });
    let micro = Microbatch { samples: vec![4, 5, 11], labels: labels.collect(), tokens, ..Microbatch::default() };
    if model.arch != Arch::Bert {
        return micro;
    }
    let types = (0..3 * SEQ).map(|token| u32::from(token % SEQ > 2)).collect();
    let (classes, ends) = match model.task {
        Some(TaskHead::Choice(_)) => (vec![2, -1, -1], vec![]),
        Some(TaskHead::Span) => (vec![1, -1, 0], vec![3, -1, 4]),
        _ => (vec![1, -1, 0], vec![]),
    };
    Microbatch { lengths: vec![SEQ, 4, 5], types, classes, ends, ..micro }
}

/// Loss and whole gradients of the model over `tensor` ranks, one element moved by `delta`.
fn run(model: &Model, tensor: usize, moved: Option<(&str, usize, f64)>) -> (f64, Tensors) {
    run_on(model, micro(model), Dropouts::of(model, 5), tensor, moved)
}

fn run_on(
    model: &Model,
    micro: Microbatch,
    dropouts: Dropouts,
    tensor: usize,
    moved: Option<(&str, usize, f64)>,
) -> (f64, Tensors) {
    let layout = Layout { tensor, ..Layout::ONE };
    let world = threads::world(Grid::new(&layout), threads::Options::new(tensor, 1));
    let (model, moved) = (model.clone(), moved.map(|(name, element, delta)| (name.to_string(), element, delta)));
    let ranks = threads::run_ranks(world, move |comm| {
        let place = Place { tensor: henge_comm::Comm::rank(&comm), tensors: tensor, stage: 0, stages: 1 };
        let backend = Device::new();
        let mut store = Store::new(&backend, &model, &[place]);
        store.draw(11);
        if let Some((name, element, delta)) = &moved {
            move_element(&mut store, name, *element, *delta);
        }
        let stage = Stage::new(&backend, &store, 0, &model, &place, Recompute::None);
        let at = Context { backend: &backend, comm: &comm, model: &model, place, dropouts };
        let gradient = LossGradient { grads: &mut store.grads, scale: 1.0, class_scale: 0.75 };
        let (output, saved) = stage.forward(&at, &micro, None, gradient).expect("forward");
        let Output::Losses(losses) = output else { panic!("one stage ends with losses") };
        stage.backward(&at, &micro, saved, None, &mut store.grads).expect("backward");
        let loss = losses.tokens.iter().sum::<f64>() + 0.75 * losses.classes.iter().sum::<f64>();
        Ok::<_, Infallible>((loss, blocks(&store)))
    });
    let ranks = ranks.expect("every rank ends");
    (ranks[0].0, whole(&ranks.into_iter().map(|(_, blocks)| blocks).collect::<Vec<_>>()))
}

type Blocks = Vec<(String, (usize, usize, usize, usize), (usize, usize), Vec<f64>)>;

fn blocks(store: &Store<Device>) -> Blocks {
    let read = |slot: &henge_model::Slot| {
        let mut values = vec![0.0; slot.range.len()];
        store.grads.read(slot.range.start, &mut values);
        (slot.parameter.name.clone(), slot.block, slot.parameter.matrix(), values)
    };
    store.slots.iter().map(read).collect()
}

fn whole(ranks: &[Blocks]) -> Tensors {
    let mut tensors = Tensors::new();
    for (name, (row, rows, column, columns), (height, width), values) in ranks.iter().flatten() {
        let tensor = tensors.entry(name.clone()).or_insert_with(|| vec![0.0; height * width]);
        for i in 0..*rows {
            let at = (row + i) * width + column;
            tensor[at..at + columns].copy_from_slice(&values[i * columns..(i + 1) * columns]);
        }
    }
    tensors
}

fn move_element(store: &mut Store<Device>, name: &str, element: usize, delta: f64) {
    for slot in store.slots.iter().filter(|slot| slot.parameter.name == name) {
        let (row, rows, column, columns) = slot.block;
        let width = slot.parameter.matrix().1;
        let (i, j) = (element / width, element % width);
        if !(row..row + rows).contains(&i) || !(column..column + columns).contains(&j) {
            continue;
        }
        let at = slot.range.start + (i - row) * columns + j - column;
        let mut value = [0.0];
        store.values.read(at, &mut value);
        store.values.write(at, &[value[0] + delta]);
    }
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    for (family, model) in models() {
        check_slopes(family, &model);
    }
}

fn check_slopes(family: &str, model: &Model) {
    let (_, gradients) = run(model, 1, None);
    // A task's softmax reads logits in float32, whose rounding a small step would drown in.
    let (step, tolerance) = if model.task.is_some() { (3e-3, 3e-3) } else { (1e-5, 1e-6) };
    for parameter in parameters(model) {
        let gradient = &gradients[&parameter.name];
        let scale = gradient.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        for element in (0..parameter.len()).step_by(parameter.len() / 5 + 1) {
            let loss = |delta| run(model, 1, Some((&parameter.name, element, delta))).0;
            let slope = (loss(step) - loss(-step)) / (2.0 * step);
            let off = (slope - gradient[element]).abs();
            // The gradient of a key's bias is zero in exact arithmetic.
            assert!(
                off < tolerance * scale.max(1e-2),
                "{family}, {} {element}: {slope} against {}",
                parameter.name,
                gradient[element]
            );
        }
    }
}

/// A batch is padded to its longest sequence only, and gives what it gives padded further.
#[test]
fn padding_changes_no_number() {
    for (family, model) in models().into_iter().filter(|(_, model)| model.arch == Arch::Bert) {
        let mut long = Microbatch { lengths: vec![4, 3, 4], ..micro(&model) };
        let padding = (0..long.tokens.len()).filter(|at| at % SEQ >= long.lengths[at / SEQ]);
        padding.for_each(|at| long.labels[at] = -1);
        long.ends.iter_mut().for_each(|end| *end = (*end).min(3));
        let mut short = long.clone();
        short.trim();
        assert_eq!((short.seq(), short.used()), (4, 11));
        let run = |micro: Microbatch| run_on(&model, micro, Dropouts::of(&model, 5), 1, None);
        let ((loss, gradients), (padded, of_padded)) = (run(short), run(long));
        assert!((loss - padded).abs() < 1e-6 * padded, "{family}: {loss} against {padded}");
        for (name, gradient) in &gradients {
            let scale = gradient.iter().fold(1e-2f64, |most, g| most.max(g.abs()));
            for (a, b) in gradient.iter().zip(&of_padded[name]) {
                assert!((a - b).abs() < 1e-6 * scale, "{family}, {name}: {a} against {b}");
            }
        }
    }
}

/// Some of the pooled first token is dropped before a task's layer; spans have no pooler.
#[test]
fn a_task_drops_of_what_is_pooled() {
    for (family, model) in models().into_iter().filter(|(_, model)| model.task.is_some()) {
        let only = Dropouts { task: Dropouts::of(&model, 5).task, ..Dropouts::NONE };
        let loss = |dropouts| run_on(&model, micro(&model), dropouts, 1, None).0;
        assert_eq!(loss(only) != loss(Dropouts::NONE), model.task.unwrap().is_pooled(), "{family}");
    }
}

#[test]
fn every_tensor_parallel_form_is_the_one_rank_form() {
    for (family, model) in models() {
        for tensor in [2, 4].into_iter().filter(|tensor| model.kv_heads.is_multiple_of(*tensor)) {
            check_tensor_parallel(family, &model, tensor);
        }
    }
}

fn check_tensor_parallel(family: &str, model: &Model, tensor: usize) {
    let (loss, gradients) = run(model, 1, None);
    {
        let (split_loss, split) = run(model, tensor, None);
        assert!((split_loss - loss).abs() < 1e-12 * loss, "{family}, loss over {tensor}: {split_loss} against {loss}");
        for (name, want) in &gradients {
            let scale = want.iter().fold(1e-9f64, |most, g| most.max(g.abs()));
            let worst = split[name].iter().zip(want).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(worst < 1e-11 * scale.max(1e-3), "{family}, {name} over {tensor}: off by {worst:e} of {scale:e}");
        }
    }
}

#[test]
fn held_bytes_of_the_reference_go_home() {
    let backend = Device::new();
    drop(backend.upload(3, 4, &[0.0; 12]));
    assert_eq!(backend.held().total(), 0);
}
