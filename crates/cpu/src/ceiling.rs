//! What this processor could do at best, measured in the process that asks.
//!
//! A share of peak means something only beside a peak of the same moment: on shared
//! machines a core may lose half its speed for seconds.

use crate::rounding::Rounding;
use crate::simd::{Level, kernel};
use crate::team::{Parts, Team};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::tile::Unit as _;
use crate::tile::{self, Tiles};
use std::time::Instant;

/// Chains of multiply-adds in flight: enough for two ports of latency four.
const CHAINS: usize = 12;
/// Tiles of sums in flight.
const TILES_OF_SUMS: usize = 4;
/// Steps between looks at the clock.
const STEPS: usize = 20_000;

kernel! {
    /// Runs `steps` multiply-adds on each chain; returns something that depends on them.
    fn multiply_adds<S>(steps: usize, seed: f32) -> f32 {
        let factor = S::splat(1.0 - seed);
        let mut chains = [S::splat(seed); CHAINS];
        for _ in 0..steps {
            for chain in &mut chains {
                *chain = S::fma(*chain, factor, factor);
            }
        }
        let total = chains.into_iter().fold(S::splat(0.0), |sum, chain| S::add(sum, chain));
        S::sum(total)
    }
    fn lanes<S>() -> usize {
        S::LANES
    }
    /// Sum of the whole blocks of some numbers.
    fn sum_of<S>(numbers: &[f32]) -> f32 {
        let mut sums = [S::splat(0.0); CHAINS];
        for block in numbers.chunks_exact(CHAINS * S::LANES) {
            for (sum, lane) in sums.iter_mut().zip(block.chunks_exact(S::LANES)) {
                // SAFETY: a lane is cut from the slice whole.
                *sum = S::add(*sum, unsafe { S::load(lane.as_ptr()) });
            }
        }
        S::sum(sums.into_iter().fold(S::splat(0.0), |sum, lane| S::add(sum, lane)))
    }
}

/// Floating-point operations per second of all threads of the team in float32 vector
/// multiply-adds from registers (one multiply-add counts two), over `seconds`.
pub fn peak_flops(team: &Team, seconds: f64) -> f64 {
    let level = Level::detect();
    rate(team, seconds, &|| {
        std::hint::black_box(multiply_adds(level, STEPS, std::hint::black_box(1e-7)));
        2 * STEPS * CHAINS * lanes(level)
    })
}

/// Floating-point operations per second of all threads of the team in products of bf16
/// tiles from registers, over `seconds`; none where [`Tiles::detect`] finds no hardware.
pub fn tile_peak_flops(team: &Team, seconds: f64) -> Option<f64> {
    Tiles::detect()?;
    Some(rate(team, seconds, &|| {
        tile_products();
        2 * STEPS * TILES_OF_SUMS * (tile::ROWS * tile::ROWS * tile::TERMS)
    }))
}

/// The unit on which products of a precision could run at best: bf16 tiles where the precision
/// is bf16 and the processor has them, else float32 vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Multiply-adds of float32 vectors.
    Vectors,
    /// Products of bf16 tiles.
    Tiles,
}

impl Unit {
    /// Of this processor.
    pub fn of(precision: impl Into<Rounding>) -> Self {
        match precision.into() == Rounding::Bf16 && Tiles::detect().is_some() {
            true => Unit::Tiles,
            false => Unit::Vectors,
        }
    }

    /// What its peak is a peak of.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Vectors => "float32 multiply-adds",
            Unit::Tiles => "products of bf16 tiles",
        }
    }

    /// Floating-point operations per second of all threads of the team, from registers, over
    /// `seconds`.
    pub fn peak(self, team: &Team, seconds: f64) -> f64 {
        let tiles = if self == Unit::Tiles { tile_peak_flops(team, seconds) } else { None };
        tiles.unwrap_or_else(|| peak_flops(team, seconds))
    }
}

/// Runs `STEPS` products on each tile of sums; detection came before.
fn tile_products() {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        // SAFETY: the hardware was detected, and nothing else on this thread uses it meanwhile.
        let mut unit = unsafe { tile::Hardware::configured() };
        let zeros = [0u16; tile::NUMBERS];
        // SAFETY: a tile of dense rows.
        unsafe {
            unit.load::<4>(zeros.as_ptr(), 64);
            unit.load::<5>(zeros.as_ptr(), 64);
            unit.load::<6>(zeros.as_ptr(), 64);
            unit.load::<7>(zeros.as_ptr(), 64);
        }
        unit.zero::<0>();
        unit.zero::<1>();
        unit.zero::<2>();
        unit.zero::<3>();
        for _ in 0..STEPS {
            unit.multiply::<0, 4, 6>();
            unit.multiply::<1, 4, 7>();
            unit.multiply::<2, 5, 6>();
            unit.multiply::<3, 5, 7>();
        }
    }
}

/// Operations per second of all threads, each repeating `work`, which tells how many it did.
fn rate(team: &Team, seconds: f64, work: &(dyn Fn() -> usize + Sync)) -> f64 {
    let mut rates = vec![0.0f64; team.threads()];
    let parts = Parts::of(&mut rates);
    team.run(&|worker| {
        let (start, mut flop) = (Instant::now(), 0usize);
        while start.elapsed().as_secs_f64() < seconds {
            flop += work();
        }
        // SAFETY: each worker writes its own number.
        unsafe { parts.part(worker, 1)[0] = flop as f64 / start.elapsed().as_secs_f64() };
    });
    rates.iter().sum()
}

/// Bytes per second read plus written by all threads of the team, each copying
/// `bytes` (choose more than its caches hold), the best of some rounds within `seconds`.
pub fn copy_bandwidth(team: &Team, bytes: usize, seconds: f64) -> f64 {
    let threads = team.threads();
    let pool = henge_tensor::Pool::new();
    let from = pool.take_zeroed(bytes * threads, henge_tensor::Kind::Buffer);
    let mut to = pool.take_zeroed(bytes * threads, henge_tensor::Kind::Buffer);
    let parts = Parts::of(&mut to);
    let (begin, mut best) = (Instant::now(), 0.0f64);
    // The first round pays for first touch.
    for round in 0.. {
        let start = Instant::now();
        team.run(&|worker| {
            // SAFETY: each worker writes its own range.
            let to = unsafe { parts.part(worker * bytes, bytes) };
            to.copy_from_slice(&from[worker * bytes..][..bytes]);
            std::hint::black_box(to);
        });
        let rate = 2.0 * (bytes * threads) as f64 / start.elapsed().as_secs_f64();
        best = if round == 0 { best } else { best.max(rate) };
        if round > 0 && begin.elapsed().as_secs_f64() >= seconds {
            break;
        }
    }
    best
}

/// Bytes per second read by all threads of the team, each summing `bytes` of float32 (choose more
/// than its caches hold), the best of some rounds within `seconds`.
pub fn read_bandwidth(team: &Team, bytes: usize, seconds: f64) -> f64 {
    let (threads, numbers) = (team.threads(), bytes / size_of::<f32>());
    let pool = henge_tensor::Pool::new();
    let mut from = pool.take(numbers * threads * size_of::<f32>(), henge_tensor::Kind::Buffer);
    // Pages that nobody wrote are one page, read from a cache.
    from.as_mut_slice::<f32>().fill(1.0);
    let from = from.as_slice::<f32>();
    let (begin, level, mut best) = (Instant::now(), Level::detect(), 0.0f64);
    while best == 0.0 || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        team.run(&|worker| {
            std::hint::black_box(sum_of(level, &from[worker * numbers..][..numbers]));
        });
        best = best.max((threads * numbers * size_of::<f32>()) as f64 / start.elapsed().as_secs_f64());
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loose bounds that hold on any machine, to catch a loop that was optimised away or
    /// a count that is off by orders.
    #[test]
    fn ceilings_are_of_this_world() {
        let team = Team::new(1);
        let flops = peak_flops(&team, 0.02);
        assert!((1e8..1e13).contains(&flops), "{flops} FLOP/s on one thread");
        if let Some(tiles) = tile_peak_flops(&team, 0.02) {
            assert!(tiles > 2.0 * flops, "{tiles} FLOP/s in tiles, {flops} in vectors");
        }
        for bandwidth in [copy_bandwidth, read_bandwidth].map(|measure| measure(&team, 32 << 20, 0.02)) {
            assert!((1e8..1e13).contains(&bandwidth), "{bandwidth} B/s on one thread");
        }
    }
}
