//! Weights coded in blocks of small integers with a shared scale, as llama.cpp stores them.
//!
//! `q` is the coded integer, `d` a block's scale, `m` its minimum. Bytes of a block in order:
//!
//! | code | elements | bytes | value |
//! |---|---|---|---|
//! | Q4_0 | 32 | d f16, 16 nibble pairs | `d (q - 8)` |
//! | Q4_1 | 32 | d f16, m f16, 16 nibble pairs | `d q + m` |
//! | Q5_0 | 32 | d f16, fifth bits u32, 16 nibble pairs | `d (q - 16)` |
//! | Q5_1 | 32 | d f16, m f16, fifth bits u32, 16 nibble pairs | `d q + m` |
//! | Q8_0 | 32 | d f16, 32 i8 | `d q` |
//! | Q4_K, Q5_K | 256 | d f16, m f16, 12 of scales, (32 of fifth bits,) 128 nibble pairs | `d s q - m t` |
//! | Q6_K | 256 | 128 of low nibbles, 64 of high bits, 16 i8 of scales, d f16 | `d s (q - 32)` |
//!
//! `s` and `t` are 6-bit scales of 32 elements each (8-bit of 16 in Q6_K).

use half::f16;

/// How a block is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantized {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

impl Quantized {
    /// Elements and bytes of a block.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }

    /// Bytes of `count` elements.
    ///
    /// # Panics
    /// If they are no whole blocks: rows are checked where a file is opened.
    pub fn bytes(self, count: usize) -> usize {
        let (elements, bytes) = self.block();
        assert!(count.is_multiple_of(elements), "{count} elements in blocks of {elements}");
        count / elements * bytes
    }

    /// Decodes whole blocks.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let (elements, size) = self.block();
        for (block, out) in bytes.chunks_exact(size).zip(out.chunks_exact_mut(elements)) {
            match self {
                Self::Q4_0 => nibbles(&block[2..], [0; 4], scale(block, 0), out, |q, d| d * (q - 8) as f32),
                Self::Q4_1 => {
                    let m = scale(block, 2);
                    nibbles(&block[4..], [0; 4], scale(block, 0), out, |q, d| d * q as f32 + m);
                }
                Self::Q5_0 => {
                    nibbles(&block[6..], fifth(block, 2), scale(block, 0), out, |q, d| d * (q - 16) as f32);
                }
                Self::Q5_1 => {
                    let m = scale(block, 2);
                    nibbles(&block[8..], fifth(block, 4), scale(block, 0), out, |q, d| d * q as f32 + m);
                }
                Self::Q8_0 => {
                    let d = scale(block, 0);
                    out.iter_mut().zip(&block[2..]).for_each(|(out, &q)| *out = d * f32::from(q as i8));
                }
                Self::Q4K => scaled(block, &[0; 32], &block[16..], out),
                Self::Q5K => scaled(block, &block[16..48], &block[48..], out),
                Self::Q6K => six_bits(block, out),
            }
        }
    }
}

fn scale(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn fifth(block: &[u8], at: usize) -> [u8; 4] {
    [block[at], block[at + 1], block[at + 2], block[at + 3]]
}

/// 32 elements: low nibbles are the first half, high ones the second; bit i of `fifth` belongs
/// to element i.
fn nibbles(pairs: &[u8], fifth: [u8; 4], d: f32, out: &mut [f32], value: impl Fn(i32, f32) -> f32) {
    let fifth = u32::from_le_bytes(fifth);
    let bit = |i: usize| ((fifth >> i & 1) << 4) as i32;
    for (i, &pair) in pairs[..16].iter().enumerate() {
        out[i] = value(i32::from(pair & 15) | bit(i), d);
        out[i + 16] = value(i32::from(pair >> 4) | bit(i + 16), d);
    }
}

/// Q4_K and Q5_K: eight groups of 32, of which two share 32 bytes of nibble pairs; bit g of
/// `fifth[i]` belongs to element i of group g.
fn scaled(block: &[u8], fifth: &[u8], pairs: &[u8], out: &mut [f32]) {
    let (d, minimum) = (scale(block, 0), scale(block, 2));
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (s, t) = six_bit_scales(&block[4..16], group);
        let (d, m) = (d * f32::from(s), minimum * f32::from(t));
        for (i, out) in out.iter_mut().enumerate() {
            let nibble = pairs[group / 2 * 32 + i] >> (4 * (group % 2)) & 15;
            let q = nibble | (fifth[i] >> group & 1) << 4;
            *out = d * f32::from(q) - m;
        }
    }
}

/// Scale and minimum of a group from the 12 bytes that hold eight of each.
fn six_bit_scales(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let low = packed[group + 4];
    (low & 15 | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4)
}

/// Q6_K: two halves of 128, each four runs of 32.
fn six_bits(block: &[u8], out: &mut [f32]) {
    let (low, high, scales, d) = (&block[..128], &block[128..192], &block[192..208], scale(block, 208));
    for (i, out) in out.iter_mut().enumerate() {
        let (half, run, place) = (i / 128, i / 32 % 4, i % 32);
        let nibble = low[64 * half + 32 * (run % 2) + place] >> (4 * (run / 2)) & 15;
        let bits = high[32 * half + place] >> (2 * run) & 3;
        let q = i32::from(nibble | bits << 4) - 32;
        *out = d * f32::from(scales[i / 16] as i8) * q as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// By hand from the table above: d = 0.5, m = -1, every nibble pair 0x91 (q = 1 and 9).
    #[test]
    fn blocks_of_32_are_decoded_by_the_table() {
        let (d, m) = (f16::from_f32(0.5).to_le_bytes(), f16::from_f32(-1.0).to_le_bytes());
        let pairs = [0x91; 16];
        let check = |code: Quantized, parts: &[&[u8]], expected: (f32, f32)| {
            let mut out = [0.0; 32];
            code.decode(&parts.concat(), &mut out);
            assert_eq!((out[3], out[19]), expected, "{code:?}");
        };
        check(Quantized::Q4_0, &[&d, &pairs], (-3.5, 0.5));
        check(Quantized::Q4_1, &[&d, &m, &pairs], (-0.5, 3.5));
        let fifth = (1u32 << 19).to_le_bytes();
        check(Quantized::Q5_0, &[&d, &fifth, &pairs], (-7.5, 4.5));
        check(Quantized::Q5_1, &[&d, &m, &fifth, &pairs], (-0.5, 11.5));
        let mut bytes = [0u8; 32];
        (bytes[3], bytes[19]) = (-7i8 as u8, 100);
        check(Quantized::Q8_0, &[&d, &bytes], (-3.5, 50.0));
    }

    /// Random blocks and what the format's own package (PyPI `gguf` 0.17) decodes them to.
    #[test]
    fn random_blocks_are_decoded_as_by_the_formats_own_package() {
        let golden: BTreeMap<String, [String; 2]> =
            serde_json::from_str(include_str!("../tests/data/gguf_blocks.json")).unwrap();
        let codes = [
            ("Q4_0", Quantized::Q4_0),
            ("Q4_1", Quantized::Q4_1),
            ("Q5_0", Quantized::Q5_0),
            ("Q5_1", Quantized::Q5_1),
            ("Q8_0", Quantized::Q8_0),
            ("Q4_K", Quantized::Q4K),
            ("Q5_K", Quantized::Q5K),
            ("Q6_K", Quantized::Q6K),
        ];
        assert_eq!(golden.len(), codes.len());
        for (name, code) in codes {
            let [block, expected] = golden[name].each_ref().map(|hex| bytes(hex));
            let mut out = vec![0.0; code.block().0];
            code.decode(&block, &mut out);
            let out: Vec<u8> = out.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(out, expected, "{name}");
        }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }
}
