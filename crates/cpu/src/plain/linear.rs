//! Products and non-linearities, by the definition.
//!
//! `x [n, i]`, `w [o, i]`, `y = x w^T + b [n, o]`, all row-major. Sums run in double
//! precision whatever the element type.

use henge_tensor::{NonLinearity, Real};

/// `y[r][o] = sum_i x[r][i] w[o][i] + b[o]`.
pub fn forward<R: Real>(x: &[R], w: &[R], bias: Option<&[R]>, (inputs, outputs): (usize, usize), y: &mut [R]) {
    for r in 0..y.len() / outputs.max(1) {
        for o in 0..outputs {
            let start = bias.map_or(0.0, |bias| bias[o].wide());
            let sum = (0..inputs).map(|i| x[r * inputs + i].wide() * w[o * inputs + i].wide()).sum::<f64>();
            y[r * outputs + o] = R::of(start + sum);
        }
    }
}

/// `dx[r][i] = sum_o dy[r][o] w[o][i]`.
pub fn input_gradient<R: Real>(dy: &[R], w: &[R], (inputs, outputs): (usize, usize), dx: &mut [R]) {
    for (r, dx) in dx.chunks_mut(inputs.max(1)).enumerate() {
        for (i, dx) in dx.iter_mut().enumerate() {
            *dx = R::of((0..outputs).map(|o| dy[r * outputs + o].wide() * w[o * inputs + i].wide()).sum());
        }
    }
}

/// `dw[o][i] += sum_r dy[r][o] x[r][i]`.
pub fn weight_gradient<R: Real>(x: &[R], dy: &[R], (inputs, outputs): (usize, usize), dw: &mut [R]) {
    let rows = dy.len() / outputs.max(1);
    for o in 0..outputs {
        for i in 0..inputs {
            let sum: f64 = (0..rows).map(|r| dy[r * outputs + o].wide() * x[r * inputs + i].wide()).sum();
            dw[o * inputs + i] += R::of(sum);
        }
    }
}

/// `db[o] += sum_r dy[r][o]`.
pub fn bias_gradient<R: Real>(dy: &[R], db: &mut [R]) {
    let (outputs, rows) = (db.len(), dy.len() / db.len().max(1));
    for (o, db) in db.iter_mut().enumerate() {
        *db += R::of((0..rows).map(|r| dy[r * outputs + o].wide()).sum());
    }
}

/// Columns of `f(y)` where `y` has `columns`.
pub fn activated_columns(f: NonLinearity, columns: usize) -> usize {
    match f {
        NonLinearity::Gelu | NonLinearity::GeluTanh | NonLinearity::Tanh => columns,
        NonLinearity::SwiGlu => columns / 2,
    }
}

/// `f(pre)` of one row; a gated row is `[gate | up]`.
pub fn activate<R: Real>(pre: &[R], f: NonLinearity, out: &mut [R]) {
    let half = out.len();
    for (c, out) in out.iter_mut().enumerate() {
        *out = R::of(match f {
            NonLinearity::GeluTanh => gelu_tanh(pre[c].wide()).0,
            NonLinearity::Gelu => gelu(pre[c].wide()).0,
            NonLinearity::Tanh => pre[c].wide().tanh(),
            NonLinearity::SwiGlu => silu(pre[c].wide()).0 * pre[half + c].wide(),
        });
    }
}

/// `dy * f'(pre)` of one row.
pub fn activate_backward<R: Real>(dy: &[R], pre: &[R], f: NonLinearity, dpre: &mut [R]) {
    let half = dy.len();
    for (c, dy) in dy.iter().enumerate() {
        match f {
            NonLinearity::GeluTanh => dpre[c] = R::of(dy.wide() * gelu_tanh(pre[c].wide()).1),
            NonLinearity::Gelu => dpre[c] = R::of(dy.wide() * gelu(pre[c].wide()).1),
            NonLinearity::Tanh => dpre[c] = R::of(dy.wide() * (1.0 - pre[c].wide().tanh().powi(2))),
            NonLinearity::SwiGlu => {
                let (value, slope) = silu(pre[c].wide());
                dpre[c] = R::of(dy.wide() * pre[half + c].wide() * slope);
                dpre[half + c] = R::of(dy.wide() * value);
            }
        }
    }
}

/// GeLU in its tanh form and its derivative.
fn gelu_tanh(x: f64) -> (f64, f64) {
    let root = (2.0 / std::f64::consts::PI).sqrt();
    let t = (root * (x + 0.044715 * x.powi(3))).tanh();
    let slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
    (0.5 * x * (1.0 + t), slope)
}

/// GeLU, `x Phi(x)`, and its derivative.
fn gelu(x: f64) -> (f64, f64) {
    let phi = 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (x * phi, phi + x * density)
}

/// `x sigmoid(x)` and its derivative.
fn silu(x: f64) -> (f64, f64) {
    let sigmoid = 1.0 / (1.0 + (-x).exp());
    (x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid)))
}
