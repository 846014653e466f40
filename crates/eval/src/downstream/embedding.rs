//! One vector for a text, from an encoder's last hidden state.

/// The mean of the rows whose mask is set.
///
/// `hidden` is `[s, h]`, row after row, `mask` `[s]`; the result is `[h]`. Padding must not count
/// [Reimers and Gurevych 2019, mean pooling]. Sums are taken in double precision.
///
/// # Panics
/// When `hidden` has not the mask's number of rows, or no row counts: a sequence always has its `[CLS]`.
pub fn mean_pool(hidden: &[f32], mask: &[bool]) -> Vec<f32> {
    let rows = mask.iter().filter(|&&counts| counts).count();
    assert!(rows > 0 && hidden.len().is_multiple_of(mask.len()), "{} numbers in {} rows", hidden.len(), mask.len());
    let width = hidden.len() / mask.len();
    let mut sums = vec![0f64; width];
    for (row, _) in hidden.chunks(width.max(1)).zip(mask).filter(|(_, counts)| **counts) {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum += f64::from(value);
        }
    }
    sums.into_iter().map(|sum| (sum / rows as f64) as f32).collect()
}

/// The cosine of the angle between two vectors; 0 where one of them has no length.
///
/// # Panics
/// When they are not of one size.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "vectors of one size");
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths == 0.0 { 0.0 } else { dot(a, b) / lengths }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_does_not_count() {
        let hidden = [1.0, 2.0, 3.0, 6.0, 100.0, f32::NAN];
        assert_eq!(mean_pool(&hidden, &[true, true, false]), [2.0, 4.0]);
    }

    #[test]
    fn cosine_of_known_angles() {
        assert!((cosine(&[1.0, 0.0], &[3.0, 3.0]) - 0.5f64.sqrt()).abs() < 1e-15);
        assert!((cosine(&[1.0, 2.0], &[-2.0, -4.0]) + 1.0).abs() < 1e-15);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 1.0]), 0.0);
    }
}
