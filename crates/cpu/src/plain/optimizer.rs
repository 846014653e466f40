//! AdamW, by the definition (Loshchilov and Hutter, 2019, algorithm 2, with the
//! learning rate on the decay as in PyTorch).

use henge_tensor::{AdamStep, Real};

/// One update of `w` and its moments `m`, `v` from the gradient `g`.
pub fn adam<R: Real>(w: &mut [R], g: &[R], m: &mut [R], v: &mut [R], step: &AdamStep) {
    let correction1 = 1.0 - step.beta1.powf(step.update as f64);
    let correction2 = 1.0 - step.beta2.powf(step.update as f64);
    for i in 0..w.len() {
        let g = g[i].wide() * step.gradient_scale;
        let first = step.beta1 * m[i].wide() + (1.0 - step.beta1) * g;
        let second = step.beta2 * v[i].wide() + (1.0 - step.beta2) * g * g;
        let decayed = w[i].wide() * (1.0 - step.lr * step.weight_decay);
        let denominator = (second / correction2).sqrt() + step.eps;
        w[i] = R::of(decayed - step.lr * (first / correction1) / denominator);
        m[i] = R::of(first);
        v[i] = R::of(second);
    }
}
