//! MinHash signatures over shingles, cut into bands.
//!
//! Two sets of Jaccard index `J` agree in one minimum with probability `J`, in a whole band of `r` rows with
//! `J^r`, and in at least one of `b` bands with `1 - (1 - J^r)^b` (Broder 1997; Leskovec, Rajaraman and
//! Ullman, Mining of Massive Datasets, section 3.4).

use henge_random::{key, mix};
use xxhash_rust::xxh3::xxh3_64;

/// Characters of a shingle.
pub const SHINGLE_CHARACTERS: usize = 5;

/// The hashes of all runs of five characters, sorted, each once; of a shorter text its own hash.
pub fn shingles(text: &str) -> Vec<u64> {
    let ends = text.char_indices().map(|(at, _)| at).skip(SHINGLE_CHARACTERS).chain([text.len()]);
    let starts = text.char_indices().map(|(at, _)| at);
    let mut hashes: Vec<u64> = starts.zip(ends).map(|(from, to)| xxh3_64(&text.as_bytes()[from..to])).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Common shingles by all shingles of two sorted sets; 0 for two empty ones.
pub fn jaccard(a: &[u64], b: &[u64]) -> f64 {
    let (mut i, mut j, mut common) = (0, 0, 0usize);
    while i < a.len() && j < b.len() {
        common += usize::from(a[i] == b[j]);
        let (left, right) = (a[i], b[j]);
        i += usize::from(left <= right);
        j += usize::from(right <= left);
    }
    common as f64 / (a.len() + b.len() - common).max(1) as f64
}

/// The hash functions of a signature.
#[derive(Clone, Debug)]
pub struct MinHash {
    rows: usize,
    /// Odd factor and summand of each function.
    functions: Vec<(u64, u64)>,
}

impl MinHash {
    /// `bands * rows` functions, always the same.
    pub fn new(bands: usize, rows: usize) -> Self {
        assert!(bands > 0 && rows > 0, "{bands} bands of {rows} rows");
        let stream = key(1234, "data.clean.minhash");
        let function = |i: u64| (mix(stream, 2 * i) | 1, mix(stream, 2 * i + 1));
        MinHash { rows, functions: (0..(bands * rows) as u64).map(function).collect() }
    }

    pub fn bands(&self) -> usize {
        self.functions.len() / self.rows
    }

    /// The minimum of each function over a set of hashes, by multiply-add-shift.
    pub fn signature(&self, shingles: &[u64]) -> Vec<u32> {
        let mut minima = vec![u32::MAX; self.functions.len()];
        for &shingle in shingles {
            for (minimum, &(factor, summand)) in minima.iter_mut().zip(&self.functions) {
                let hash = (shingle.wrapping_mul(factor).wrapping_add(summand) >> 32) as u32;
                *minimum = (*minimum).min(hash);
            }
        }
        minima
    }

    /// One hash a band; two sets that agree in a band have the same there.
    pub fn bands_of(&self, shingles: &[u64]) -> Vec<u64> {
        let signature = self.signature(shingles);
        let band = |rows: &[u32]| rows.iter().fold(rows.len() as u64, |hash, &row| mix(hash, u64::from(row)));
        signature.chunks(self.rows).map(band).collect()
    }

    /// The probability that two sets of Jaccard index `jaccard` agree in a band.
    pub fn detection(&self, jaccard: f64) -> f64 {
        1.0 - (1.0 - jaccard.powi(self.rows as i32)).powi(self.bands() as i32)
    }
}
