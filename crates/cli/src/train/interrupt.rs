//! Signals that ask a run to save and stop: Ctrl-C, and what schedulers and launchers send.

use crate::failure::{Failure, INTERRUPTED};
use crate::ranks::Ranks;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A launcher that ends its processes after a failure asks each first; the failure's own words
/// come within this time, and stopping is then no news.
const FAILURE: Duration = Duration::from_millis(500);

/// Set by the first signal: the run saves after the step in progress and stops. SIGTERM is what
/// schedulers send before they take a machine away, SIGUSR1 what `mpirun` hands on and
/// `sbatch --signal` sends in time. A second Ctrl-C ends the process at once.
pub fn heed(ranks: &Ranks) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let (flag, tells, waits) = (stop.clone(), ranks.is_first(), !matches!(ranks, Ranks::Threads));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1]).map_err(Failure::run)?;
    let listen = move || {
        for signal in signals.forever() {
            if flag.swap(true, Ordering::Relaxed) {
                if signal == SIGINT {
                    std::process::exit(i32::from(INTERRUPTED));
                }
            } else if tells {
                thread::sleep(if waits { FAILURE } else { Duration::ZERO });
                eprintln!("stopping after this step; press Ctrl-C again to stop at once");
            }
        }
    };
    thread::Builder::new().name("henge-signals".to_string()).spawn(listen).map_err(Failure::run)?;
    Ok(stop)
}
