//! Overlapping windows over a long text, in which each target is scored once.

use crate::{EvalError, Passage};

/// Windows of `length` targets that begin `stride` apart over `tokens` tokens
/// (1909.08053, section 5.3 and its code): the first scores all its targets, later ones
/// only the `stride` last, so that each target but the first ones is given at least
/// `length - stride` tokens before it. The last window is as long as the text lasts.
///
/// # Errors
/// A stride of 0 or above `length`, which would score no target or miss some.
pub fn windows(tokens: usize, length: usize, stride: usize) -> Result<Vec<Passage>, EvalError> {
    if stride == 0 || stride > length {
        let expected = "it must be between 1 and the model's length";
        return Err(EvalError::Setting { setting: "stride", value: stride.to_string(), expected });
    }
    let targets = tokens.saturating_sub(1);
    let (mut windows, mut done, mut start) = (Vec::new(), 0, 0);
    while done < targets {
        let end = (start + length).min(targets);
        windows.push(Passage { tokens: start..end + 1, scored: end - done });
        (done, start) = (end, start + stride);
    }
    Ok(windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts of the paper's protocol over 270,329 tokens.
    #[test]
    fn wikitext103_has_8417_windows_that_hold_270328_targets() {
        let windows = windows(270_329, 1024, 32).unwrap();
        assert_eq!(windows.len(), 8_417);
        assert_eq!(windows.iter().map(|window| window.scored).sum::<usize>(), 270_328);
        assert_eq!(windows[0], Passage { tokens: 0..1025, scored: 1024 });
        assert_eq!(windows[1], Passage { tokens: 32..1057, scored: 32 });
    }

    #[test]
    fn every_target_is_scored_once_with_enough_before_it() {
        for (tokens, length, stride) in [(1, 8, 8), (2, 8, 3), (9, 8, 8), (10, 8, 8), (100, 8, 3), (57, 8, 1)] {
            let mut seen = vec![0; tokens];
            for (index, window) in windows(tokens, length, stride).unwrap().iter().enumerate() {
                assert!(window.tokens.len() - 1 <= length);
                let targets = window.tokens.clone().skip(window.tokens.len() - window.scored);
                for target in targets {
                    seen[target] += 1;
                    let before = target - window.tokens.start;
                    assert!(before >= length - stride || index == 0, "target {target} of {window:?}");
                }
            }
            assert_eq!(seen[0], 0);
            assert!(seen[1..].iter().all(|&count| count == 1), "{tokens}, {length}, {stride}: {seen:?}");
        }
    }

    #[test]
    fn strides_that_miss_targets_are_refused() {
        assert!(windows(100, 8, 0).is_err());
        assert!(windows(100, 8, 9).is_err());
    }
}
