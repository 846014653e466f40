//! Prints the rate of all-reduce beside that of a copy by the same threads:
//! `cargo run --release -p henge-comm --example all_reduce -- 2 32` for 2 ranks, 32 MiB.

use henge_comm::threads::measure_all_reduce;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers = std::env::args().skip(1).map(|text| text.parse::<f64>()).collect::<Result<Vec<_>, _>>()?;
    let ranks = numbers.first().map_or(2, |&ranks| ranks as usize);
    let mib = numbers.get(1).copied().unwrap_or(32.0);
    let rate = measure_all_reduce(ranks, (mib * f64::from(1 << 20)) as usize, 31)?;
    println!(
        "all-reduce of {mib} MiB over {ranks} ranks: {:.3} ms, {:.2} GB/s read and written; copy {:.2} GB/s; share {:.0}%",
        rate.seconds * 1e3,
        rate.bytes_per_second / 1e9,
        rate.copy_bytes_per_second / 1e9,
        rate.share_of_copy() * 1e2
    );
    Ok(())
}
