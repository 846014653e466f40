//! The arithmetic of tiles by its definition (Intel's manual, TDPBF16PS).

use super::{NUMBERS, ROWS, TERMS, Unit};

/// Eight tiles in memory.
pub(crate) struct Software {
    tiles: [[u32; NUMBERS / 2]; 8],
}

impl Default for Software {
    fn default() -> Self {
        Self { tiles: [[0; NUMBERS / 2]; 8] }
    }
}

impl Unit for Software {
    fn zero<const C: usize>(&mut self) {
        self.tiles[C].fill(0);
    }

    unsafe fn load<const T: usize>(&mut self, from: *const u16, stride: usize) {
        for (row, tile) in self.tiles[T].chunks_exact_mut(ROWS).enumerate() {
            let from = from.cast::<u8>().wrapping_add(row * stride);
            // SAFETY: the caller's rows of 64 bytes; a tile's row is as long.
            unsafe { std::ptr::copy_nonoverlapping(from, tile.as_mut_ptr().cast(), 64) };
        }
    }

    unsafe fn stream<const T: usize>(&mut self, from: *const u16, stride: usize) {
        // SAFETY: the caller's.
        unsafe { self.load::<T>(from, stride) };
    }

    fn multiply<const C: usize, const A: usize, const B: usize>(&mut self) {
        for row in 0..ROWS {
            for column in 0..ROWS {
                let (mut even, mut odd) = (0.0f32, 0.0f32);
                for k in 0..TERMS / 2 {
                    let (a, b) = (self.tiles[A][row * ROWS + k], self.tiles[B][k * ROWS + column]);
                    even = flushed(low(a).mul_add(low(b), even));
                    odd = flushed(high(a).mul_add(high(b), odd));
                }
                let sum = &mut self.tiles[C][row * ROWS + column];
                *sum = flushed(flushed(f32::from_bits(*sum)) + flushed(even + odd)).to_bits();
            }
        }
    }

    unsafe fn store<const C: usize>(&mut self, to: *mut f32, stride: usize) {
        for (row, tile) in self.tiles[C].chunks_exact(ROWS).enumerate() {
            let to = to.cast::<u8>().wrapping_add(row * stride);
            // SAFETY: the caller's rows of 64 bytes; a tile's row is as long.
            unsafe { std::ptr::copy_nonoverlapping(tile.as_ptr().cast(), to, 64) };
        }
    }
}

/// The first of a pair of bf16 numbers.
fn low(pair: u32) -> f32 {
    flushed(f32::from_bits(pair << 16))
}

/// The second of a pair of bf16 numbers.
fn high(pair: u32) -> f32 {
    flushed(f32::from_bits(pair & 0xffff_0000))
}

/// Subnormal numbers count as zero, operands and results alike.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}
