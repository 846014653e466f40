//! Layer norm, by the definition.
//!
//! `z = (x - mean) * rstd`, `y = z * gain + bias`, with `mean` and the variance over the
//! columns of one row and `rstd = 1 / sqrt(variance + eps)`.

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
