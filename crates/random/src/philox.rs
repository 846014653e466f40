//! Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
//! numbers: as easy as 1, 2, 3" (SC 2011), as the Random123 library defines it.

const MULTIPLIER_0: u32 = 0xD251_1F53;
const MULTIPLIER_1: u32 = 0xCD9E_8D57;
const WEYL_0: u32 = 0x9E37_79B9;
const WEYL_1: u32 = 0xBB67_AE85;
const ROUNDS: u32 = 10;

/// A keyed bijection of 128-bit counters onto 128-bit random blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
}

impl Philox {
    /// The generator of one stream. The low half of `key` is Random123's first key word.
    #[inline(always)]
    pub const fn new(key: u64) -> Self {
        Philox { key: [key as u32, (key >> 32) as u32] }
    }

    /// The four random words at `counter`.
    #[inline(always)]
    pub const fn block(&self, counter: [u32; 4]) -> [u32; 4] {
        let [mut c0, mut c1, mut c2, mut c3] = counter;
        let [mut k0, mut k1] = self.key;
        let mut round = 0;
        while round < ROUNDS {
            let p0 = MULTIPLIER_0 as u64 * c0 as u64;
            let p1 = MULTIPLIER_1 as u64 * c2 as u64;
            c0 = (p1 >> 32) as u32 ^ c1 ^ k0;
            c1 = p1 as u32;
            c2 = (p0 >> 32) as u32 ^ c3 ^ k1;
            c3 = p0 as u32;
            k0 = k0.wrapping_add(WEYL_0);
            k1 = k1.wrapping_add(WEYL_1);
            round += 1;
        }
        [c0, c1, c2, c3]
    }

    /// The blocks of `LANES` consecutive first counter words, `[word][lane]`.
    ///
    /// Lane `l` equals `block([first + l, rest[0], rest[1], rest[2]])`. The words lie apart so that the
    /// compiler turns the rounds into vector instructions, which the scalar form does not allow.
    #[inline(always)]
    pub fn lanes<const LANES: usize>(&self, first: u32, rest: [u32; 3]) -> [[u32; LANES]; 4] {
        let mut c0 = [0u32; LANES];
        for (lane, word) in c0.iter_mut().enumerate() {
            *word = first.wrapping_add(lane as u32);
        }
        let (mut c1, mut c2, mut c3) = ([rest[0]; LANES], [rest[1]; LANES], [rest[2]; LANES]);
        let [mut k0, mut k1] = self.key;
        for _ in 0..ROUNDS {
            for lane in 0..LANES {
                let p0 = MULTIPLIER_0 as u64 * c0[lane] as u64;
                let p1 = MULTIPLIER_1 as u64 * c2[lane] as u64;
                c0[lane] = (p1 >> 32) as u32 ^ c1[lane] ^ k0;
                c1[lane] = p1 as u32;
                c2[lane] = (p0 >> 32) as u32 ^ c3[lane] ^ k1;
                c3[lane] = p0 as u32;
            }
            k0 = k0.wrapping_add(WEYL_0);
            k1 = k1.wrapping_add(WEYL_1);
        }
        [c0, c1, c2, c3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of Random123's `kat_vectors` for `philox4x32 10`.
    #[test]
    fn meets_the_published_vectors() {
        let vectors = [
            (0, [0; 4], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            (u64::MAX, [u32::MAX; 4], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                0x299f_31d0_a409_3822,
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (key, counter, expected) in vectors {
            assert_eq!(Philox::new(key).block(counter), expected, "key {key:#x}");
        }
    }

    #[test]
    fn lanes_are_the_blocks_of_consecutive_counters() {
        let philox = Philox::new(0x0123_4567_89ab_cdef);
        let words = philox.lanes::<8>(u32::MAX - 3, [5, 6, 7]);
        for lane in 0..8u32 {
            let block = philox.block([(u32::MAX - 3).wrapping_add(lane), 5, 6, 7]);
            assert_eq!([0, 1, 2, 3].map(|w: usize| words[w][lane as usize]), block);
        }
    }
}
