//! The loss over a shard of the vocabulary, by the definition.
//!
//! `logits [n, v]` of `n` tokens over the shard's `v` rows, which are the global rows
//! `first_row..first_row + v`. After the group's reductions `max`, `sum` and `target` are
//! those of the whole vocabulary, and
//!
//! ```text
//!   loss      = log(sum) + max - target
//!   dlogit_j  = scale * (exp(logit_j - max) / sum - [j is the target])
//! ```

use henge_tensor::Real;

/// The shard's part of one token's statistics: `(max, sum, target)`.
pub fn statistics<R: Real>(logits: &[R], first_row: usize, target: i64) -> (R, R, R) {
    let max = logits.iter().copied().fold(R::neg_infinity(), R::max);
    let sum: f64 = logits.iter().map(|logit| (logit.wide() - max.wide()).exp()).sum();
    (max, R::of(sum), local(first_row, logits.len(), target).map_or(R::zero(), |at| logits[at]))
}

/// `sum` times `exp(local - max)`; nothing stays nothing.
pub fn rescale<R: Real>(sum: &mut [R], local: &[R], max: &[R]) {
    for ((sum, local), max) in sum.iter_mut().zip(local).zip(max) {
        let empty = *local == R::neg_infinity();
        let factor = if empty { 0.0 } else { (local.wide() - max.wide()).exp() };
        *sum = R::of(sum.wide() * factor);
    }
}

/// Each scored token's loss, 0 for the rest.
pub fn losses<R: Real>((max, sum, target): (&[R], &[R], &[R]), targets: &[i64]) -> Vec<f64> {
    let loss = |i: usize| sum[i].wide().ln() + max[i].wide() - target[i].wide();
    (0..targets.len()).map(|i| if targets[i] < 0 { 0.0 } else { loss(i) }).collect()
}

/// One token's logits to their gradient, in place.
pub fn gradient<R: Real>(logits: &mut [R], first_row: usize, target: i64, (max, sum): (R, R), scale: f64) {
    if target < 0 {
        return logits.fill(R::zero());
    }
    let hit = local(first_row, logits.len(), target);
    for (j, logit) in logits.iter_mut().enumerate() {
        let p = (logit.wide() - max.wide()).exp() / sum.wide();
        *logit = R::of(scale * (p - if hit == Some(j) { 1.0 } else { 0.0 }));
    }
}

/// The target's place in the shard, if it is there.
pub fn local(first_row: usize, rows: usize, target: i64) -> Option<usize> {
    let target = usize::try_from(target).ok()?;
    target.checked_sub(first_row).filter(|&at| at < rows)
}
