//! What this processor could do at best, measured in the process that asks.
//!
//! A share of peak means something only beside a peak of the same moment: on shared
//! machines a core may lose half its speed for seconds.

use crate::simd::{Level, kernel};
use crate::team::{Parts, Team};
use std::time::Instant;

/// Chains of multiply-adds in flight: enough for two ports of latency four.
const CHAINS: usize = 12;
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
}

/// Floating-point operations per second of all threads of the team in float32 vector
/// multiply-adds from registers (one multiply-add counts two), over `seconds`.
pub fn peak_flops(team: &Team, seconds: f64) -> f64 {
    let level = Level::detect();
    let mut rates = vec![0.0f64; team.threads()];
    let parts = Parts::of(&mut rates);
    team.run(&|worker| {
        let (start, mut rounds) = (Instant::now(), 0usize);
        while start.elapsed().as_secs_f64() < seconds {
            std::hint::black_box(multiply_adds(level, STEPS, std::hint::black_box(1e-7)));
            rounds += 1;
        }
        let flop = 2 * rounds * STEPS * CHAINS * lanes(level);
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
        let bandwidth = copy_bandwidth(&team, 32 << 20, 0.02);
        assert!((1e8..1e13).contains(&bandwidth), "{bandwidth} B/s on one thread");
    }
}
