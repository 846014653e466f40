//! Units that multiply tiles of bfloat16, and the one this processor has.
//!
//! ```text
//!   A tile  16 rows x 32 bf16       a row of the left operand, 64 bytes
//!   B tile  16 pairs x 16 columns   rows 2k and 2k+1 of the right operand side by side:
//!                                   (b[2k][j], b[2k+1][j]) are one 32-bit word
//!   C tile  16 x 16 f32             sums
//!
//!   C += A B over 32 terms: 16384 operations in 16 cycles
//! ```
//!
//! A kernel is written once over [`Unit`]; [`Tiles`] names the unit it runs on. The
//! [`Software`] unit does the hardware's arithmetic by its definition, so that kernels are
//! tested where there are no tiles, and the hardware is proved against it before its first use.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod hardware;
mod software;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use hardware::Hardware;
pub(crate) use software::Software;

use std::sync::OnceLock;

/// Rows of a tile; columns of a tile of sums.
pub const ROWS: usize = 16;
/// Terms that one multiplication sums over.
pub const TERMS: usize = 32;
/// bf16 numbers of a tile.
pub const NUMBERS: usize = ROWS * TERMS;

/// Which unit multiplies tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiles {
    /// Plain code with the hardware's arithmetic, for tests.
    Software,
    /// The processor's own (AMX).
    Hardware,
}

impl Tiles {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Tiles::Software => "bf16 tiles in plain code",
            Tiles::Hardware => "AMX bf16 tiles",
        }
    }

    /// The hardware's, where the processor has it, the system lets this process use it and
    /// it multiplies as the software does.
    pub fn detect() -> Option<Self> {
        static FOUND: OnceLock<bool> = OnceLock::new();
        FOUND.get_or_init(usable).then_some(Tiles::Hardware)
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn usable() -> bool {
    // SAFETY: a unit is configured only after the system granted its state.
    hardware::granted() && proof(&mut unsafe { Hardware::configured() }) == proof(&mut Software::default())
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn usable() -> bool {
    false
}

/// Eight tiles, numbered by constants, and what is done with them. One thread's, from its
/// configuration to its drop.
///
/// # Safety
/// A pointer must address 16 rows of 64 bytes, each `stride` bytes after the one before.
pub(crate) trait Unit {
    /// Sets a tile of sums to zero.
    fn zero<const C: usize>(&mut self);
    /// Loads a tile that will be loaded again soon.
    unsafe fn load<const T: usize>(&mut self, from: *const u16, stride: usize);
    /// Loads a tile that must not push others out of the first cache.
    unsafe fn stream<const T: usize>(&mut self, from: *const u16, stride: usize);
    /// `C += A B`.
    fn multiply<const C: usize, const A: usize, const B: usize>(&mut self);
    /// Stores a tile of sums.
    unsafe fn store<const C: usize>(&mut self, to: *mut f32, stride: usize);
}

/// Sums of a small product whose every element differs, rounding included.
fn proof(unit: &mut impl Unit) -> Vec<u32> {
    let numbers = |seed: u32| -> Vec<u16> {
        let of = |i: u32| (f32::from((i.wrapping_mul(2_654_435_761) >> 16) as i16) * 1e-3).to_bits() >> 16;
        (0..NUMBERS as u32).map(|i| of(i + seed) as u16).collect()
    };
    let (a, b, mut c) = (numbers(1), numbers(7777), [0.0f32; ROWS * ROWS]);
    // SAFETY: each buffer holds a tile of dense rows.
    unsafe {
        unit.zero::<0>();
        unit.load::<4>(a.as_ptr(), 64);
        unit.stream::<6>(b.as_ptr(), 64);
        unit.multiply::<0, 4, 6>();
        unit.multiply::<0, 4, 6>();
        unit.store::<0>(c.as_mut_ptr(), 64);
    }
    c.map(f32::to_bits).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition in double precision: rounding is all that differs.
    #[test]
    fn software_sums_pairs_of_products() {
        let bf16 = |i: usize| ((i as f32 - 200.0) / 64.0).to_bits() >> 16;
        let wide = |x: u16| f64::from(f32::from_bits(u32::from(x) << 16));
        let a: Vec<u16> = (0..NUMBERS).map(|i| bf16(i) as u16).collect();
        let b: Vec<u16> = (0..NUMBERS).map(|i| bf16(i * 37 % 401) as u16).collect();
        let mut c = [0.0f32; ROWS * ROWS];
        let mut unit = Software::default();
        // SAFETY: each buffer holds a tile of dense rows.
        unsafe {
            unit.zero::<3>();
            unit.load::<5>(a.as_ptr(), 64);
            unit.load::<7>(b.as_ptr(), 64);
            unit.multiply::<3, 5, 7>();
            unit.store::<3>(c.as_mut_ptr(), 64);
        }
        for (i, &found) in c.iter().enumerate() {
            let (row, column) = (i / ROWS, i % ROWS);
            let term = |k: usize| wide(a[row * TERMS + k]) * wide(b[k / 2 * TERMS + 2 * column + k % 2]);
            let (sum, size) = (0..TERMS).fold((0.0, 0.0), |(s, m), k| (s + term(k), m + term(k).abs()));
            assert!((f64::from(found) - sum).abs() <= 1e-6 * size, "{row}, {column}: {found}, truly {sum}");
        }
    }

    /// Bits of the hardware are those of the software, subnormal operands and results included.
    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn hardware_has_the_bits_of_the_software() {
        if Tiles::detect().is_none() {
            println!("skipped: no tiles here");
            return;
        }
        for (a, b) in [(0x3f81u16, 0x3f83u16), (0x0001, 0x4000), (0x0080, 0x3f00), (0x7f80, 0x3f80), (0xc2f7, 0x1e3c)] {
            let (a, b) = ([a; NUMBERS], [b; NUMBERS]);
            let product = |unit: &mut dyn FnMut(*const u16, *const u16, *mut f32)| {
                let mut c = [0.0f32; ROWS * ROWS];
                unit(a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
                c.map(f32::to_bits)
            };
            fn run(mut unit: impl Unit, a: *const u16, b: *const u16, c: *mut f32) {
                // SAFETY: each buffer holds a tile of dense rows.
                unsafe {
                    unit.zero::<1>();
                    unit.load::<4>(a, 64);
                    unit.load::<7>(b, 64);
                    unit.multiply::<1, 4, 7>();
                    unit.store::<1>(c, 64);
                }
            }
            let software = product(&mut |a, b, c| run(Software::default(), a, b, c));
            // SAFETY: detected above.
            let hardware = product(&mut |a, b, c| run(unsafe { Hardware::configured() }, a, b, c));
            assert_eq!(hardware, software, "{:#x} x {:#x}", a[0], b[0]);
        }
    }
}
