//! `henge doctor`: what this machine has, and what Henge makes of it.

mod libraries;
pub mod memory;
mod mpi;
mod processor;
pub mod tools;

use crate::failure::{Failure, print, print_json};
use henge_cpu::{Fast, Rounding, Team, ceiling};
use henge_tensor::Backend;
use indicatif::{DecimalBytes, HumanBytes};
use libraries::Libraries;
use memory::Memory;
use mpi::Mpi;
use processor::Processor;
use serde::Serialize;
use tools::{Gpu, Tool};

/// Seconds that each ceiling is measured for.
const SECONDS: f64 = 0.5;
/// Bytes that each thread copies: more than its caches hold.
const COPY_BYTES: usize = 64 << 20;

#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    processor: Processor,
    memory: Memory,
    /// What a run of one rank would compute with.
    backend: String,
    /// The same in bf16.
    backend_bf16: String,
    /// Float32 multiply-adds from registers on all cores, two operations each.
    peak_gflops_per_second: f64,
    /// Products of bf16 tiles from registers on all cores; none where it has no tiles.
    tile_peak_gflops_per_second: Option<f64>,
    /// Read plus written, all cores copying.
    copy_bytes_per_second: f64,
    mpi: Mpi,
    cuda: Option<Tool>,
    libraries: Libraries,
    gpus: Vec<Gpu>,
    /// What ranks are in this build.
    engines: &'static [&'static str],
}

/// What ranks are.
#[cfg(feature = "mpi")]
const ENGINES: &[&str] = &["threads", "processes"];
#[cfg(not(feature = "mpi"))]
const ENGINES: &[&str] = &["threads"];

pub fn run(args: Args) -> Result<(), Failure> {
    let processor = Processor::look();
    let team = Team::new(processor.cores);
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        backend: Fast::new(processor.cores, Rounding::Exact).describe(),
        backend_bf16: Fast::new(processor.cores, Rounding::Bf16).describe(),
        peak_gflops_per_second: ceiling::peak_flops(&team, SECONDS) / 1e9,
        tile_peak_gflops_per_second: ceiling::tile_peak_flops(&team, SECONDS).map(|peak| peak / 1e9),
        copy_bytes_per_second: ceiling::copy_bandwidth(&team, COPY_BYTES, SECONDS),
        memory: Memory::look(),
        mpi: Mpi::look(),
        cuda: Tool::find("nvcc"),
        libraries: Libraries::look(),
        gpus: tools::gpus(),
        engines: ENGINES,
        processor,
    };
    if args.json { print_json(&report) } else { print(&text(&report)) }
}

fn text(report: &Report) -> String {
    let Report { processor, memory, .. } = report;
    let list = |names: &[String]| if names.is_empty() { "none".to_string() } else { names.join(" ") };
    let tool = |tool: &Option<Tool>| tool.as_ref().map_or("no nvcc (not needed to run)".to_string(), Tool::to_string);
    let rows = [
        ("henge", report.version.to_string()),
        ("processor", processor.to_string()),
        ("vectors", list(&processor.vectors)),
        ("tiles", list(&processor.tiles)),
        ("memory", memory.to_string()),
        ("huge pages", memory.huge_pages.to_string()),
        ("compute", report.backend.clone()),
        ("in bf16", report.backend_bf16.clone()),
        ("f32 peak", format!("{:.1} GFLOP/s, measured on all cores", report.peak_gflops_per_second)),
        ("bf16 peak", tile_peak(report.tile_peak_gflops_per_second)),
        ("copy", format!("{}/s read plus written, measured", DecimalBytes(report.copy_bytes_per_second as u64))),
        ("ranks", ranks(report.engines)),
        ("MPI", report.mpi.to_string()),
        ("CUDA", tool(&report.cuda)),
        ("driver", report.libraries.cuda_driver.to_string()),
        ("NCCL", report.libraries.nccl.to_string()),
        ("libtorch", report.libraries.libtorch.to_string()),
        ("GPUs", gpus(&report.gpus)),
    ];
    rows.map(|(name, value)| format!("{name:<11} {value}\n")).concat()
}

fn ranks(engines: &[&str]) -> String {
    match engines {
        [only] => format!("{only} of one process"),
        _ => "threads of one process, or processes under mpirun or srun".to_string(),
    }
}

fn tile_peak(peak: Option<f64>) -> String {
    match peak {
        Some(peak) => format!("{peak:.1} GFLOP/s in tiles, measured on all cores"),
        None => "no tiles that this process may use".to_string(),
    }
}

fn gpus(found: &[Gpu]) -> String {
    if found.is_empty() {
        return "none found".to_string();
    }
    let one = |gpu: &Gpu| format!("{}, {}", gpu.name, HumanBytes(gpu.memory_bytes));
    let list = found.iter().map(one).collect::<Vec<_>>().join("; ");
    format!("{list} (not used: this build computes on the processor)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_and_said_to_be_unused() {
        assert_eq!(gpus(&[]), "none found");
        let gpu = Gpu { name: "H200".to_string(), memory_bytes: 2 << 30 };
        assert_eq!(gpus(&[gpu]), "H200, 2.00 GiB (not used: this build computes on the processor)");
    }
}
