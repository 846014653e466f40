//! Rotary positions (2104.09864) and the ways in which they are stretched past the length
//! that a model was first trained on.

use crate::model::named;
use std::f64::consts::PI;
use toml::Value;

/// Rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the geometric series of wavelengths.
    pub theta: f64,
    /// How wavelengths are stretched.
    pub scaling: RopeScaling,
}

/// How the wavelengths of rotary positions are stretched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All alike (2306.15595).
    Linear {
        /// Factor on every wavelength.
        factor: f64,
    },
    /// By a base that grows with the sequence, once it is longer than the first training (dynamic
    /// NTK: 2309.00071, section 3.3). Sequences up to `original` turn as unscaled ones; longer ones
    /// are not built, so a model with this scaling has `seq_len <= original`.
    Dynamic {
        /// Factor of the length by which the base grows.
        factor: f64,
        /// Length of the first training, tokens.
        original: usize,
    },
    /// Long wavelengths only, with a ramp between (Llama 3.1).
    Llama3 {
        /// Factor on long wavelengths.
        factor: f64,
        /// Wavelengths above `original / low` are stretched whole.
        low: f64,
        /// Wavelengths below `original / high` stay.
        high: f64,
        /// Length of the first training, tokens.
        original: usize,
    },
    /// Channels that turn seldom, with a ramp between, and hotter scores (2309.00071).
    Yarn {
        /// Factor on the wavelengths of channels that turn seldom.
        factor: f64,
        /// Channels that turn more often than this within `original` stay.
        fast: f64,
        /// Channels that turn less often than this are stretched whole.
        slow: f64,
        /// Length of the first training, tokens.
        original: usize,
    },
}

/// The name of a [`RopeScaling`] in a run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RopeScalingKind {
    None,
    Linear,
    Dynamic,
    Llama3,
    Yarn,
}

named!(RopeScalingKind, "a scaling of rotary positions",
    "none" => None, "linear" => Linear, "dynamic" => Dynamic, "llama3" => Llama3, "yarn" => Yarn);

impl Rope {
    /// Rotary positions of base `theta`, not stretched.
    pub fn plain(theta: f64) -> Self {
        Self { theta, scaling: RopeScaling::None }
    }

    /// The positions as keys of a run file.
    pub(crate) fn facts(&self) -> Vec<(String, Value)> {
        let mut facts = vec![("theta", Value::Float(self.theta))];
        if self.scaling != RopeScaling::None {
            facts.push(("scaling", Value::String(self.scaling.kind().to_string())));
        }
        facts.extend(self.scaling.numbers());
        facts.into_iter().map(|(key, value)| (format!("model.rope.{key}"), value)).collect()
    }

    /// Angle per position of each pair of channels, `[head_dim / 2]`, radians.
    pub fn frequencies(&self, head_dim: usize) -> Vec<f64> {
        let pairs = head_dim / 2;
        let plain = |pair: usize| self.theta.powf(-2.0 * pair as f64 / head_dim as f64);
        (0..pairs).map(|pair| self.stretched(plain(pair), pair, head_dim)).collect()
    }

    /// Factor on rotated queries and keys.
    pub fn amplitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { factor, .. } if factor > 1.0 => 0.1 * factor.ln() + 1.0,
            _ => 1.0,
        }
    }

    fn stretched(&self, frequency: f64, pair: usize, head_dim: usize) -> f64 {
        match self.scaling {
            RopeScaling::None | RopeScaling::Dynamic { .. } => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 { factor, low, high, original } => {
                let turns = original as f64 * frequency / (2.0 * PI);
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (kept + (1.0 - kept) / factor)
            }
            RopeScaling::Yarn { factor, fast, slow, original } => {
                let pair_of = |turns: f64| {
                    head_dim as f64 * (original as f64 / (turns * 2.0 * PI)).ln() / (2.0 * self.theta.ln())
                };
                let first = pair_of(fast).floor().max(0.0);
                let last = pair_of(slow).ceil().min(head_dim as f64 - 1.0);
                // Where the ramp has no width it is a step, as in the published code.
                let width = if last == first { 1e-3 } else { last - first };
                let stretched = ((pair as f64 - first) / width).clamp(0.0, 1.0);
                frequency * (1.0 - stretched + stretched / factor)
            }
        }
    }
}

impl RopeScaling {
    fn kind(&self) -> RopeScalingKind {
        match self {
            Self::None => RopeScalingKind::None,
            Self::Linear { .. } => RopeScalingKind::Linear,
            Self::Dynamic { .. } => RopeScalingKind::Dynamic,
            Self::Llama3 { .. } => RopeScalingKind::Llama3,
            Self::Yarn { .. } => RopeScalingKind::Yarn,
        }
    }

    fn numbers(&self) -> Vec<(&'static str, Value)> {
        let number = Value::Float;
        let tokens = |n: usize| Value::Integer(n as i64);
        match *self {
            Self::None => vec![],
            Self::Linear { factor } => vec![("factor", number(factor))],
            Self::Dynamic { factor, original } => {
                vec![("factor", number(factor)), ("original_len", tokens(original))]
            }
            Self::Llama3 { factor, low, high, original } => vec![
                ("factor", number(factor)),
                ("low_freq_factor", number(low)),
                ("high_freq_factor", number(high)),
                ("original_len", tokens(original)),
            ],
            Self::Yarn { factor, fast, slow, original } => vec![
                ("factor", number(factor)),
                ("beta_fast", number(fast)),
                ("beta_slow", number(slow)),
                ("original_len", tokens(original)),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with `transformers` 5: `ROPE_INIT_FUNCTIONS[kind]` for a head of 16 channels.
    #[test]
    fn scalings_are_those_of_the_published_code() {
        let plain = Rope::plain(10_000.0);
        let with = |scaling| Rope { scaling, ..plain };
        let cases = [
            (plain, [1.0, 0.316_227_766, 0.1, 0.031_622_776_6, 0.01, 3.162_277_66e-3, 1e-3, 3.162_277_66e-4]),
            (
                with(RopeScaling::Linear { factor: 4.0 }),
                [0.25, 0.079_056_941, 0.025, 7.905_694_66e-3, 2.5e-3, 7.905_694_66e-4, 2.5e-4, 7.905_694_66e-5],
            ),
            (
                with(RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 512 }),
                [1.0, 0.316_227_764, 0.1, 0.018_496_677_3, 1.25e-3, 3.952_847_33e-4, 1.25e-4, 3.952_847_33e-5],
            ),
            (
                with(RopeScaling::Yarn { factor: 4.0, fast: 32.0, slow: 1.0, original: 512 }),
                [1.0, 0.256_935_06, 0.0625, 0.013_834_965_4, 2.5e-3, 7.905_694_66e-4, 2.5e-4, 7.905_694_66e-5],
            ),
            (
                with(RopeScaling::Yarn { factor: 4.0, fast: 8.0, slow: 2.0, original: 512 }),
                [1.0, 0.316_227_764, 0.1, 0.019_764_237_1, 2.5e-3, 7.905_694_66e-4, 2.5e-4, 7.905_694_66e-5],
            ),
        ];
        for (rope, expected) in cases {
            for (found, expected) in rope.frequencies(16).into_iter().zip(expected) {
                assert!((found / expected - 1.0).abs() < 1e-6, "{rope:?}: {found} against {expected}");
            }
        }
        let amplitude = cases[3].0.amplitude();
        assert!((amplitude - 1.138_629_436_111_989).abs() < 1e-12, "{amplitude}");
    }
}
