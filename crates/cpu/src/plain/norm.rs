//! Layer norm and RMS norm, by the definition.
//!
//! `z = (x - mean) * rstd`, `y = z * gain + bias`, with `mean` and the variance over the
//! columns of one row and `rstd = 1 / sqrt(variance + eps)`. RMS norm: the same about a
//! mean of zero, without bias.

use henge_tensor::Real;

/// Mean and reciprocal standard deviation of one row.
pub fn statistics<R: Real>(x: &[R], eps: f64) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().map(|x| x.wide()).sum::<f64>() / n;
    let variance = x.iter().map(|x| (x.wide() - mean).powi(2)).sum::<f64>() / n;
    (mean, 1.0 / (variance + eps).sqrt())
}

/// One row of the output.
pub fn forward<R: Real>(x: &[R], (mean, rstd): (f64, f64), gain: &[R], bias: &[R], y: &mut [R]) {
    for (c, y) in y.iter_mut().enumerate() {
        *y = R::of((x[c].wide() - mean) * rstd * gain[c].wide() + bias[c].wide());
    }
}

/// One row: adds to `dx`, and to the sums over rows of the gain's and bias's gradients.
///
/// With `g = dy * gain`: `dx += rstd * (g - mean(g) - z * mean(g * z))`.
pub fn backward<R: Real>(
    dy: &[R],
    x: &[R],
    (mean, rstd): (f64, f64),
    gain: &[R],
    dx: &mut [R],
    sums: &mut [(f64, f64)],
) {
    let n = x.len() as f64;
    let z = |c: usize| (x[c].wide() - mean) * rstd;
    let g = |c: usize| dy[c].wide() * gain[c].wide();
    let mean_g = (0..x.len()).map(g).sum::<f64>() / n;
    let mean_gz = (0..x.len()).map(|c| g(c) * z(c)).sum::<f64>() / n;
    for c in 0..x.len() {
        dx[c] += R::of(rstd * (g(c) - mean_g - z(c) * mean_gz));
        sums[c].0 += dy[c].wide() * z(c);
        sums[c].1 += dy[c].wide();
    }
}

/// Zero and the reciprocal root mean square of one row.
pub fn rms_statistics<R: Real>(x: &[R], eps: f64) -> (f64, f64) {
    let squares = x.iter().map(|x| x.wide().powi(2)).sum::<f64>();
    (0.0, 1.0 / (squares / x.len() as f64 + eps).sqrt())
}

/// One row of RMS norm's output.
pub fn rms_forward<R: Real>(x: &[R], rrms: f64, gain: &[R], y: &mut [R]) {
    for (c, y) in y.iter_mut().enumerate() {
        *y = R::of(x[c].wide() * rrms * gain[c].wide());
    }
}

/// One row of RMS norm: adds to `dx`, and to the sums over rows of the gain's gradient.
///
/// With `z = x * rrms` and `g = dy * gain`: `dx += rrms * (g - z * mean(g * z))`.
pub fn rms_backward<R: Real>(dy: &[R], x: &[R], rrms: f64, gain: &[R], dx: &mut [R], sums: &mut [f64]) {
    let z = |c: usize| x[c].wide() * rrms;
    let g = |c: usize| dy[c].wide() * gain[c].wide();
    let mean_gz = (0..x.len()).map(|c| g(c) * z(c)).sum::<f64>() / x.len() as f64;
    for c in 0..x.len() {
        dx[c] += R::of(rrms * (g(c) - z(c) * mean_gz));
        sums[c] += dy[c].wide() * z(c);
    }
}
