//! Dropout masks as a function of where an element stands in the run.
//!
//! Sixteen bits decide each element, so one Philox block decides eight consecutive columns of a row:
//!
//! - counter: `[column / 8, row, layer << 16 | head, low 32 bits of sample]`
//! - key: [`key`]`(seed, site's name)`, plus the high 32 bits of `sample` times an odd constant
//! - column `8c + j` takes the low (`j` even) or high (`j` odd) half of word `j / 2`
//! - the element is kept when its 16 bits are at least the threshold `round(rate * 65536)`
//!
//! `sample` is the position of the sequence in the run's order of consumption, `head` the global
//! attention head (0 for residual and embedding sites), `row` the query position or the token's
//! position, `column` the key position or the channel. None of them depends on the layout.

use crate::key::key;
use crate::philox::Philox;

/// Columns decided by one Philox block.
const COLUMNS: usize = 8;
/// Blocks computed side by side by [`Dropout::fill_row`].
const LANES: usize = 8;
/// Spreads the high half of the sample number over the key; odd, so that no two halves collide.
const SAMPLE_STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Where in the transformer a mask is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// After the sum of token and position embeddings.
    Embedding,
    /// On the attention probabilities, after the softmax.
    AttentionProbability,
    /// On the attention block's output, before the residual sum.
    AttentionResidual,
    /// On the MLP's output, before the residual sum.
    MlpResidual,
    /// On the pooled first token, before a fine-tuning task's layer.
    TaskPooled,
}

impl Site {
    /// The name the site's key is made of; frozen like the key itself.
    pub const fn name(self) -> &'static str {
        match self {
            Site::Embedding => "dropout.embedding",
            Site::AttentionProbability => "dropout.attention_probability",
            Site::AttentionResidual => "dropout.attention_residual",
            Site::MlpResidual => "dropout.mlp_residual",
            Site::TaskPooled => "dropout.task_pooled",
        }
    }
}

/// The masks of one site of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    key: u64,
    threshold: u16,
}

impl Dropout {
    /// The masks of `site` under `seed`, dropping a share `rate` of the elements.
    ///
    /// The rate is rounded to a multiple of 1/65536; [`Dropout::scale`] is exact for the rounded rate.
    ///
    /// # Panics
    /// When `rate` is not in `[0, 1)`; whoever reads a rate from a person checks it before.
    pub fn new(seed: u64, site: Site, rate: f32) -> Self {
        assert!((0.0..1.0).contains(&rate), "dropout rate {rate} is not in [0, 1)");
        let threshold = (f64::from(rate) * 65536.0).round().min(65535.0) as u16;
        Dropout { key: key(seed, site.name()), threshold }
    }

    /// Whether this site drops nothing, so that callers can skip it.
    #[inline(always)]
    pub const fn is_identity(&self) -> bool {
        self.threshold == 0
    }

    /// The share of elements dropped, after rounding.
    #[inline]
    pub fn rate(&self) -> f64 {
        f64::from(self.threshold) / 65536.0
    }

    /// What a kept element is multiplied by: `1 / (1 - rate)` of the rounded rate.
    #[inline(always)]
    pub fn scale(&self) -> f32 {
        (65536.0 / (65536.0 - f64::from(self.threshold))) as f32
    }

    /// Which of columns `8 * column_block .. 8 * column_block + 8` are kept: bit `j` for column `j`.
    ///
    /// # Panics
    /// When `layer` or `head` is 65536 or more.
    #[inline(always)]
    pub fn keep_block(&self, sample: u64, layer: u32, head: u32, row: u32, column_block: u32) -> u8 {
        let words = self.philox(sample).block([column_block, row, place(layer, head), sample as u32]);
        let mut kept = 0;
        for (j, word) in words.into_iter().enumerate() {
            kept |= u8::from(word as u16 >= self.threshold) << (2 * j);
            kept |= u8::from((word >> 16) as u16 >= self.threshold) << (2 * j + 1);
        }
        kept
    }

    /// Whether one element is kept: the definition that the faster forms are tested against.
    #[inline]
    pub fn keep(&self, sample: u64, layer: u32, head: u32, row: u32, column: u32) -> bool {
        self.keep_block(sample, layer, head, row, column / 8) >> (column % 8) & 1 == 1
    }

    /// Writes the multipliers (0 or [`Dropout::scale`]) of columns `first_column..` of one row.
    ///
    /// # Panics
    /// When `layer` or `head` is 65536 or more.
    #[inline]
    pub fn fill_row(&self, sample: u64, layer: u32, head: u32, row: u32, first_column: u32, out: &mut [f32]) {
        let skip = first_column as usize % COLUMNS;
        let lead = if skip == 0 { 0 } else { (COLUMNS - skip).min(out.len()) };
        let (head_columns, body) = out.split_at_mut(lead);
        let scale = self.scale();
        for (i, value) in head_columns.iter_mut().enumerate() {
            let kept = self.keep(sample, layer, head, row, first_column + i as u32);
            *value = if kept { scale } else { 0.0 };
        }
        let first_block = (first_column as usize + lead) / COLUMNS;
        self.fill_blocks(sample, [row, place(layer, head), sample as u32], first_block as u32, body);
    }

    /// As [`Dropout::fill_row`] for a row that starts at a block's first column.
    #[inline(always)]
    fn fill_blocks(&self, sample: u64, rest: [u32; 3], first_block: u32, out: &mut [f32]) {
        let (philox, scale) = (self.philox(sample), self.scale());
        for (i, chunk) in out.chunks_mut(LANES * COLUMNS).enumerate() {
            let words = philox.lanes::<LANES>(first_block + (i * LANES) as u32, rest);
            let mut multipliers = [0f32; LANES * COLUMNS];
            for lane in 0..LANES {
                for j in 0..COLUMNS {
                    let bits = (words[j / 2][lane] >> (16 * (j % 2))) as u16;
                    multipliers[lane * COLUMNS + j] = if bits >= self.threshold { scale } else { 0.0 };
                }
            }
            chunk.copy_from_slice(&multipliers[..chunk.len()]);
        }
    }

    #[inline(always)]
    fn philox(&self, sample: u64) -> Philox {
        Philox::new(self.key.wrapping_add((sample >> 32).wrapping_mul(SAMPLE_STRIDE)))
    }
}

#[inline(always)]
fn place(layer: u32, head: u32) -> u32 {
    assert!(layer < 65536 && head < 65536, "layer {layer} and head {head} must lie below 65536");
    layer << 16 | head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_equal_single_elements_from_any_column() {
        let dropout = Dropout::new(3, Site::AttentionProbability, 0.3);
        for first in [0, 1, 7, 8, 13] {
            for len in [0, 1, 5, 8, 64, 100, 131] {
                let mut row = vec![-1f32; len];
                dropout.fill_row(1 << 33 | 5, 11, 3, 17, first, &mut row);
                for (i, &value) in row.iter().enumerate() {
                    let kept = dropout.keep(1 << 33 | 5, 11, 3, 17, first + i as u32);
                    assert_eq!(value, if kept { dropout.scale() } else { 0.0 });
                }
            }
        }
    }

    #[test]
    fn rate_and_scale_are_those_of_the_rounded_threshold() {
        let half = Dropout::new(0, Site::Embedding, 0.5);
        assert_eq!((half.rate(), half.scale()), (0.5, 2.0));
        let none = Dropout::new(0, Site::Embedding, 0.0);
        assert!(none.is_identity());
        assert_eq!((none.scale(), none.keep_block(0, 0, 0, 0, 0)), (1.0, 0xff));
        let tenth = Dropout::new(0, Site::Embedding, 0.1);
        assert_eq!(tenth.rate(), 6554.0 / 65536.0);
        assert_eq!(tenth.scale(), (65536.0f64 / (65536.0 - 6554.0)) as f32);
    }

    /// The share kept lies within five standard errors, over all of the counter's coordinates.
    #[test]
    fn share_kept_is_the_rate_along_each_coordinate() {
        let dropout = Dropout::new(1234, Site::MlpResidual, 0.1);
        let n = 20_000u32;
        let along: [&dyn Fn(u32) -> u8; 5] = [
            &|i| dropout.keep_block(u64::from(i), 1, 1, 1, 1),
            &|i| dropout.keep_block(1, i, 1, 1, 1),
            &|i| dropout.keep_block(1, 1, i, 1, 1),
            &|i| dropout.keep_block(1, 1, 1, i, 1),
            &|i| dropout.keep_block(1, 1, 1, 1, i),
        ];
        for (coordinate, keep) in along.iter().enumerate() {
            let kept: u32 = (0..n).map(|i| keep(i).count_ones()).sum();
            let draws = f64::from(n) * 8.0;
            let expected = draws * (1.0 - dropout.rate());
            let error = 5.0 * (draws * dropout.rate() * (1.0 - dropout.rate())).sqrt();
            assert!((f64::from(kept) - expected).abs() < error, "coordinate {coordinate}: {kept}");
        }
    }

    #[test]
    fn sites_seeds_and_high_sample_bits_give_other_masks() {
        let masks =
            |dropout: Dropout, sample| (0..32).map(|c| dropout.keep_block(sample, 0, 0, 0, c)).collect::<Vec<_>>();
        let base = masks(Dropout::new(1, Site::Embedding, 0.5), 0);
        assert_ne!(base, masks(Dropout::new(2, Site::Embedding, 0.5), 0));
        assert_ne!(base, masks(Dropout::new(1, Site::MlpResidual, 0.5), 0));
        assert_ne!(base, masks(Dropout::new(1, Site::Embedding, 0.5), 1 << 32));
    }

    #[test]
    #[should_panic(expected = "must lie below 65536")]
    fn a_head_beyond_its_field_is_refused() {
        Dropout::new(0, Site::AttentionProbability, 0.1).keep_block(0, 0, 65536, 0, 0);
    }
}
