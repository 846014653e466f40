//! A GPT in float64 loops, slow and plain, to hold weights and configuration against logits.

use henge_checkpoint::{Block, Source, model_of};
use henge_spec::{Activation, Arch, Model, parameters};
use std::collections::BTreeMap;

type Matrix = Vec<Vec<f64>>;

pub struct Reference {
    model: Model,
    weights: BTreeMap<String, Matrix>,
}

impl Reference {
    pub fn of(source: &dyn Source) -> Self {
        let model = model_of(&source.facts(), source.path()).unwrap();
        let mut weights = BTreeMap::new();
        for p in parameters(&model) {
            let mut values = vec![0.0; p.len()];
            source.read(&p, Block::whole(&p), &mut values).unwrap();
            let columns = if p.shape.len() == 1 { p.len() } else { p.shape[1] };
            let rows = values.chunks(columns).map(|row| row.iter().map(|&v| f64::from(v)).collect());
            weights.insert(p.name, rows.collect());
        }
        Self { model, weights }
    }

    fn vector(&self, name: &str) -> &[f64] {
        &self.weights[name][0]
    }

    fn linear(&self, name: &str, x: &Matrix) -> Matrix {
        let weight = &self.weights[&format!("{name}.weight")];
        let bias = self.weights.get(&format!("{name}.bias")).map(|bias| &bias[0]);
        let dot = |row: &[f64], x: &[f64]| row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
        let one = |x: &Vec<f64>| {
            weight.iter().enumerate().map(|(i, row)| dot(row, x) + bias.map_or(0.0, |bias| bias[i])).collect()
        };
        x.iter().map(one).collect()
    }

    fn norm(&self, name: &str, x: &Matrix) -> Matrix {
        let gain = self.vector(&format!("{name}.gain"));
        let n = gain.len() as f64;
        let layer = self.model.arch == Arch::Gpt;
        let one = |x: &Vec<f64>| {
            let mean = if layer { x.iter().sum::<f64>() / n } else { 0.0 };
            let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
            let scale = 1.0 / (variance + self.model.norm_eps).sqrt();
            let bias = |i: usize| if layer { self.vector(&format!("{name}.bias"))[i] } else { 0.0 };
            x.iter().enumerate().map(|(i, v)| (v - mean) * scale * gain[i] + bias(i)).collect()
        };
        x.iter().map(one).collect()
    }

    /// Rotates channel i with channel i + half, as Hugging Face's Llama does.
    fn rotate(&self, x: &mut Matrix) {
        let (Some(rope), size) = (self.model.rope, self.model.head_dim) else { return };
        let (frequencies, amplitude) = (rope.frequencies(size), rope.amplitude());
        for (position, row) in x.iter_mut().enumerate() {
            for head in row.chunks_mut(size) {
                for (i, frequency) in frequencies.iter().enumerate() {
                    let angle = position as f64 * frequency;
                    let (a, b) = (amplitude * head[i], amplitude * head[i + size / 2]);
                    head[i] = a * angle.cos() - b * angle.sin();
                    head[i + size / 2] = b * angle.cos() + a * angle.sin();
                }
            }
        }
    }

    fn attention(&self, layer: usize, x: &Matrix) -> Matrix {
        let part = |part: &str| self.linear(&format!("layer.{layer}.attention.{part}"), x);
        let (mut q, mut k, v) = (part("q"), part("k"), part("v"));
        self.rotate(&mut q);
        self.rotate(&mut k);
        let size = self.model.head_dim;
        let mut out = vec![vec![0.0; self.model.heads * size]; x.len()];
        for head in 0..self.model.heads {
            let group = head / (self.model.heads / self.model.kv_heads);
            let (own, shared) = (head * size..(head + 1) * size, group * size..(group + 1) * size);
            for i in 0..x.len() {
                let score = |j: usize| {
                    let dot = q[i][own.clone()].iter().zip(&k[j][shared.clone()]).map(|(a, b)| a * b).sum::<f64>();
                    (dot / (size as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = (0..=i).map(score).collect();
                let total: f64 = scores.iter().sum();
                for (j, score) in scores.iter().enumerate() {
                    for (out, v) in out[i][own.clone()].iter_mut().zip(&v[j][shared.clone()]) {
                        *out += score / total * v;
                    }
                }
            }
        }
        self.linear(&format!("layer.{layer}.attention.output"), &out)
    }

    fn mlp(&self, layer: usize, x: &Matrix) -> Matrix {
        let part = |part: &str, x: &Matrix| self.linear(&format!("layer.{layer}.mlp.{part}"), x);
        let mut up = part("up", x);
        match self.model.activation {
            Activation::GeluTanh => each(&mut up, gelu_tanh),
            Activation::Gelu => each(&mut up, gelu_erf),
            Activation::SwiGlu => {
                let gate = part("gate", x);
                for (up, gate) in up.iter_mut().flatten().zip(gate.iter().flatten()) {
                    *up *= gate / (1.0 + (-gate).exp());
                }
            }
        }
        part("down", &up)
    }

    /// Logits of every position.
    pub fn logits(&self, tokens: &[usize]) -> Matrix {
        let table = &self.weights["embedding.token.weight"];
        let mut x: Matrix = tokens.iter().map(|&token| table[token].clone()).collect();
        if let Some(positions) = self.weights.get("embedding.position.weight") {
            add(&mut x, &positions[..tokens.len()].to_vec());
        }
        for layer in 0..self.model.layers {
            let branch = self.attention(layer, &self.norm(&format!("layer.{layer}.norm1"), &x));
            add(&mut x, &branch);
            let branch = self.mlp(layer, &self.norm(&format!("layer.{layer}.norm2"), &x));
            add(&mut x, &branch);
        }
        let x = self.norm("final_norm", &x);
        self.linear(if self.model.tie_embeddings { "embedding.token" } else { "head" }, &x)
    }
}

fn add(x: &mut Matrix, branch: &Matrix) {
    x.iter_mut().flatten().zip(branch.iter().flatten()).for_each(|(x, b)| *x += b);
}

fn each(x: &mut Matrix, f: impl Fn(f64) -> f64) {
    x.iter_mut().flatten().for_each(|v| *v = f(*v));
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

/// The error function by its series, good to float64 for the arguments that occur here.
fn gelu_erf(x: f64) -> f64 {
    let z = x / 2f64.sqrt();
    let (mut term, mut sum) = (z, z);
    for n in 1..200 {
        term *= -z * z / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    0.5 * x * (1.0 + 2.0 / std::f64::consts::PI.sqrt() * sum)
}
