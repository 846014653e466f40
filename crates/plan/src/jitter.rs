//! Operations that take a little longer than they should, repeatably.

/// Random stretching of every forward and backward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Draws repeat for the same seed.
    pub seed: u64,
    /// Standard deviation of an operation's time over its mean.
    pub deviation: f64,
}

impl Jitter {
    /// Every operation takes exactly its time.
    pub const NONE: Self = Self { seed: 0, deviation: 0.0 };

    /// What to multiply an operation's time by; a function of the seed and the place.
    pub fn factor(&self, rank: usize, position: usize) -> f64 {
        if self.deviation == 0.0 {
            return 1.0;
        }
        let place = self.seed ^ mixed(((rank as u64) << 40) | position as u64);
        let uniform = |draw: u64| ((mixed(place.wrapping_add(draw)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let normal = (-2.0 * uniform(1).ln()).sqrt() * (std::f64::consts::TAU * uniform(2)).cos();
        (1.0 + self.deviation * normal).max(0.1)
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
