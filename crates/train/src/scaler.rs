//! Dynamic loss scaling (1909.08053, section 4; the rule of its code).

use henge_spec::{LossScale, Precision};

/// The scale in force and the counts that change it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scaler {
    /// Scale 1; a number that is not finite ends the run.
    Off,
    /// Doubles after clean steps, halves after overflows.
    Dynamic(Dynamic),
}

/// State of a dynamic scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dynamic {
    rule: LossScale,
    /// Scale of the next step.
    pub scale: f64,
    /// Clean steps since the last overflow or growth.
    pub clean: u64,
    /// Overflows still tolerated before the scale halves.
    pub tolerance: u64,
}

impl Scaler {
    pub fn new(precision: Precision, rule: LossScale) -> Self {
        match precision {
            Precision::F16 => {
                Self::Dynamic(Dynamic { rule, scale: rule.initial, clean: 0, tolerance: rule.hysteresis })
            }
            Precision::F32 | Precision::BF16 => Self::Off,
        }
    }

    pub fn scale(&self) -> f64 {
        match self {
            Self::Off => 1.0,
            Self::Dynamic(state) => state.scale,
        }
    }

    /// Scale, clean steps and used-up tolerance of a dynamic scale.
    pub fn state(&self) -> Option<(f64, u64, u64)> {
        match self {
            Self::Off => None,
            Self::Dynamic(state) => Some((state.scale, state.clean, state.rule.hysteresis - state.tolerance)),
        }
    }

    /// Takes a state back; nothing to do where this run does not scale.
    pub fn restore(&mut self, scale: f64, clean: u64, used: u64) {
        if let Self::Dynamic(state) = self {
            state.scale = scale;
            state.clean = clean;
            state.tolerance = state.rule.hysteresis.saturating_sub(used);
        }
    }

    /// After a step whose gradients were finite.
    pub fn clean(&mut self) {
        let Self::Dynamic(state) = self else { return };
        state.clean += 1;
        if state.clean == state.rule.growth_interval {
            state.scale *= 2.0;
            state.clean = 0;
            state.tolerance = state.rule.hysteresis;
        }
    }

    /// After a step whose gradients were not; `false` where that ends the run.
    pub fn overflow(&mut self) -> bool {
        let Self::Dynamic(state) = self else { return false };
        state.clean = 0;
        state.tolerance = state.tolerance.saturating_sub(1);
        if state.tolerance == 0 {
            state.scale = (state.scale / 2.0).max(state.rule.min);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: LossScale = LossScale { initial: 65536.0, growth_interval: 3, hysteresis: 2, min: 1.0 };

    #[test]
    fn doubles_after_the_interval_and_halves_when_tolerance_is_used_up() {
        let mut scaler = Scaler::new(Precision::F16, RULE);
        (0..3).for_each(|_| scaler.clean());
        assert_eq!(scaler.scale(), 131072.0);
        assert!(scaler.overflow());
        assert_eq!(scaler.scale(), 131072.0, "the first overflow is tolerated");
        assert!(scaler.overflow());
        assert!(scaler.overflow());
        assert_eq!(scaler.scale(), 32768.0, "without growth in between every further overflow halves");
    }

    #[test]
    fn never_falls_below_its_floor() {
        let mut scaler = Scaler::new(Precision::F16, LossScale { initial: 2.0, hysteresis: 1, ..RULE });
        (0..10).for_each(|_| assert!(scaler.overflow()));
        assert_eq!(scaler.scale(), 1.0);
    }

    #[test]
    fn other_precisions_have_no_scale_and_do_not_forgive() {
        let mut scaler = Scaler::new(Precision::BF16, RULE);
        assert_eq!(scaler.scale(), 1.0);
        assert!(!scaler.overflow());
    }
}
