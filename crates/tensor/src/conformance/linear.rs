//! Products with their non-linearities and gradients, and norms.

use super::{Check, Operation, SHAPES, activation, flat, normals, numbers, values};
use crate::{Backend, Matrix, NonLinearity};

/// A linear layer and its non-linearity, forward and backward: `f(y)` first.
pub struct Linear {
    /// Tokens.
    pub rows: usize,
    /// Channels before.
    pub inputs: usize,
    /// Channels after.
    pub outputs: usize,
    /// What is done to them.
    pub f: NonLinearity,
}

impl Operation for Linear {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let Self { rows, inputs, outputs, f } = *self;
        let x = activation(b, rows, inputs, &normals("x", rows * inputs));
        let parameters = flat(b, &normals("parameters", 3 + outputs * inputs + outputs));
        let weight = b.prepare(&parameters, 3, outputs, inputs);
        let bias = b.prepare_vector(&parameters, 3 + outputs * inputs, outputs);
        let (y, pre) = b.linear_activated(&x, &weight, Some(&bias), f);
        let dy = activation(b, y.rows(), y.columns(), &normals("dy", y.rows() * y.columns()));
        let dpre = b.activation_backward(dy, &pre, f);
        let mut grads = flat(b, &normals("grads", outputs * inputs + outputs + 1));
        b.linear_weight_gradient(&x, &dpre, &mut grads, 1);
        b.bias_gradient(&dpre, &mut grads, 1 + outputs * inputs);
        let dx = b.linear_input_gradient(&dpre, &weight);
        let plain = b.linear(&x, &weight, None);
        let forward = [&y, &pre, &dpre].map(|x| values(b, x)).concat();
        [forward, numbers(&grads), values(b, &dx), values(b, &plain)].concat()
    }
}

/// Cases of [`Linear`].
pub fn linear(check: &mut impl Check) {
    for (rows, inputs) in SHAPES {
        for (outputs, f) in [
            (2, NonLinearity::SwiGlu),
            (45, NonLinearity::Gelu),
            (64, NonLinearity::GeluTanh),
            (19, NonLinearity::Tanh),
        ] {
            check.check(&format!("{rows} x {inputs} x {outputs} {f:?}"), 2e-6, &Linear { rows, inputs, outputs, f });
        }
    }
    check.check("deep", 3e-6, &Linear { rows: 530, inputs: 1030, outputs: 40, f: NonLinearity::GeluTanh });
}

struct Norm {
    rows: usize,
    columns: usize,
}

impl Operation for Norm {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let Self { rows, columns } = *self;
        let x: Vec<f64> = normals("x", rows * columns).iter().map(|x| 3.0 + x).collect();
        let x = activation(b, rows, columns, &x);
        let parameters = flat(b, &normals("parameters", 2 * columns));
        let gain = b.prepare_vector(&parameters, 0, columns);
        let bias = b.prepare_vector(&parameters, columns, columns);
        let (y, stats) = b.layer_norm(&x, &gain, &bias, 1e-5);
        let dy = activation(b, rows, columns, &normals("dy", rows * columns));
        let mut dx = activation(b, rows, columns, &normals("dx", rows * columns));
        let mut grads = flat(b, &normals("grads", 2 * columns));
        b.layer_norm_backward(&dy, &x, &stats, &gain, &mut dx, &mut grads, columns, 0);
        [values(b, &y), values(b, &dx), numbers(&grads)].concat()
    }
}

/// Layer norm and its backward.
pub fn layer_norm(check: &mut impl Check) {
    for (rows, columns) in SHAPES {
        // One column has no variance: its norm is its bias, and gradients meet 1 / sqrt(eps).
        let tolerance = if columns == 1 { 1e-4 } else { 3e-6 };
        check.check(&format!("{rows} x {columns}"), tolerance, &Norm { rows, columns });
    }
}

struct RmsNorm {
    rows: usize,
    columns: usize,
}

impl Operation for RmsNorm {
    fn on<B: Backend>(&self, b: &B) -> Vec<f64> {
        let Self { rows, columns } = *self;
        let x = activation(b, rows, columns, &normals("x", rows * columns));
        let gain = b.prepare_vector(&flat(b, &normals("gain", columns)), 0, columns);
        let (y, stats) = b.rms_norm(&x, &gain, 1e-5);
        let dy = activation(b, rows, columns, &normals("dy", rows * columns));
        let mut dx = activation(b, rows, columns, &normals("dx", rows * columns));
        let mut grads = flat(b, &normals("grads", columns + 3));
        b.rms_norm_backward(&dy, &x, &stats, &gain, &mut dx, &mut grads, 3);
        [values(b, &y), values(b, &dx), numbers(&grads)].concat()
    }
}

/// RMS norm and its backward.
pub fn rms_norm(check: &mut impl Check) {
    for (rows, columns) in SHAPES {
        // One column is its own root mean square: gradients meet 1 / x.
        let tolerance = if columns == 1 { 1e-4 } else { 3e-6 };
        check.check(&format!("{rows} x {columns}"), tolerance, &RmsNorm { rows, columns });
    }
}
