//! Keys of random streams: stable for all time, since a run that goes on after an upgrade must draw the
//! numbers it would have drawn.

/// The key of the stream called `name` under `seed`.
///
/// FNV-1a (64 bits) over the bytes of `name`, then [`mix`] with the seed. The definition is frozen: a
/// change would silently train another model from the same run file.
#[inline]
pub const fn key(seed: u64, name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    mix(seed, hash)
}

/// Two words into one key, without the symmetry `mix(a, b) == mix(b, a)` of a plain sum or xor.
///
/// The finaliser of SplitMix64 applied to `a`, joined with `b`, and applied again.
#[inline]
pub const fn mix(a: u64, b: u64) -> u64 {
    finalise(finalise(a.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ b)
}

/// The output function of SplitMix64 (Steele, Lea and Flood 2014, with Stafford's constants).
#[inline]
const fn finalise(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// First outputs of SplitMix64 seeded with 0 and 1234567, as published with the algorithm.
    #[test]
    fn finaliser_is_splitmix64() {
        assert_eq!(finalise(0x9E37_79B9_7F4A_7C15), 0xE220_A839_7B1D_CDAF);
        assert_eq!(finalise(1_234_567u64.wrapping_add(0x9E37_79B9_7F4A_7C15)), 6_457_827_717_110_365_317);
    }

    #[test]
    fn keys_of_near_names_and_seeds_differ() {
        let mut seen = HashSet::new();
        for seed in 0..50 {
            for layer in 0..50 {
                assert!(seen.insert(key(seed, &format!("h.{layer}.weight"))));
                assert!(seen.insert(key(seed, &format!("h.{layer}.bias"))));
            }
        }
        assert_ne!(mix(1, 2), mix(2, 1));
    }

    /// Frozen values: they may never move (see [`key`]).
    #[test]
    fn keys_do_not_move() {
        assert_eq!(key(0, ""), mix(0, 0xcbf2_9ce4_8422_2325));
        assert_eq!(key(1234, "wte.weight"), FROZEN);
    }

    /// Computed apart, in arbitrary precision, from the definitions of FNV-1a and SplitMix64.
    const FROZEN: u64 = 11_476_556_671_748_992_619;
}
