//! `henge bench comm`: how fast ranks of one process sum a buffer.

use super::positive;
use crate::failure::{Failure, print, print_json};
use henge_comm::threads::measure_all_reduce;
use indicatif::{DecimalBytes, HumanBytes};

#[derive(clap::Args)]
pub struct Args {
    /// Ranks, each of one thread
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// MiB of each rank's buffer
    #[arg(long, default_value_t = 32)]
    mebibytes: usize,
    /// Rounds; the median is reported
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let ranks = positive("--ranks", args.ranks)?;
    let rounds = positive("--rounds", args.rounds)?;
    let mebibytes = positive("--mebibytes", args.mebibytes)?;
    let bytes = mebibytes.checked_mul(1 << 20).filter(|&bytes| bytes / 4 >= ranks).ok_or_else(|| {
        Failure::request(format!("--mebibytes {mebibytes} over --ranks {ranks}: choose a size that memory holds"))
    })?;
    let rate = measure_all_reduce(ranks, bytes, rounds).map_err(Failure::run)?;
    if args.json {
        return print_json(&serde_json::json!({
            "operation": "all_reduce",
            "ranks": rate.ranks,
            "bytes": rate.bytes,
            "seconds": rate.seconds,
            "bytes_per_second": rate.bytes_per_second,
            "copy_bytes_per_second": rate.copy_bytes_per_second,
            "share_of_copy": rate.share_of_copy(),
        }));
    }
    let per_second = |rate: f64| DecimalBytes(rate as u64);
    print(&format!(
        "all-reduce of {} over {ranks} ranks: {:.2} ms, {}/s read plus written\n\
         copy by the same threads:  {}/s read plus written\n\
         share of the copy:         {:.1}%\n",
        HumanBytes(bytes as u64),
        rate.seconds * 1e3,
        per_second(rate.bytes_per_second),
        per_second(rate.copy_bytes_per_second),
        100.0 * rate.share_of_copy(),
    ))
}
