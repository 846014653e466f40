//! The engine under the launcher: every rank is a process that runs [`rank`]. Without a launcher
//! around it this program starts itself under `mpirun`, once for each grid.
#![cfg_attr(not(feature = "mpi"), allow(dead_code, unused_imports))]

#[path = "../../comm/tests/support/mod.rs"]
mod support;

#[path = "support/mpirun.rs"]
mod mpirun;

#[cfg(feature = "mpi")]
use henge_comm::{Comm, CommError, Group, Reduce};
use std::time::Duration;
use support::{Message, Random, grid, tag};

/// Tensor, pipeline and data ranks.
const GRIDS: [[usize; 3]; 6] = [[2, 1, 1], [1, 3, 1], [1, 1, 4], [2, 2, 1], [1, 5, 1], [2, 2, 2]];
const CALLS: usize = 150;

#[cfg(feature = "mpi")]
fn main() {
    let axes: Vec<usize> = std::env::args().skip(1).filter_map(|axis| axis.parse().ok()).collect();
    match axes[..] {
        [t, p, d] => rank(grid(t, p, d)),
        _ => GRIDS.iter().for_each(launch),
    }
}

#[cfg(not(feature = "mpi"))]
fn main() {
    println!("skipped: the feature `mpi` is off");
}

#[cfg(feature = "mpi")]
fn launch(axes: &[usize; 3]) {
    let mut mpirun = mpirun::mpirun(axes.iter().product());
    mpirun.arg(std::env::current_exe().expect("this program")).args(axes.map(|axis| axis.to_string()));
    let output = mpirun.output().expect("mpirun starts (Debian: openmpi-bin)");
    assert!(output.status.success(), "grid {axes:?}: {}", mpirun::words(&output));
    println!("grid {axes:?}: ok");
}

#[cfg(feature = "mpi")]
fn rank(grid: henge_comm::Grid) {
    let world = henge_mpi::World::start(|_| {}).expect("MPI");
    assert_eq!((world.ranks(), world.ranks_of_this_host()), (grid.ranks(), grid.ranks()));
    let comm = world.comm::<Message>(grid, Duration::from_secs(60), 1).expect("communicators");
    let outcome = collectives(&comm).and_then(|()| ring(&comm)).and_then(|()| both_ways(&comm));
    outcome.unwrap_or_else(|error| panic!("{error}"));
    agreement(&world);
    drop(comm);
    world.finish();
}

/// To the bit of a sum in the order of ranks.
#[cfg(feature = "mpi")]
fn collectives(comm: &impl Comm<Message>) -> Result<(), CommError> {
    let mut draw = Random(comm.grid().ranks() as u64);
    for call in 0..CALLS {
        support::collectives::random_collective(comm, call, &mut draw)?;
    }
    // Several windows, the last of them of no even share.
    let len = (2 << 20) + 13;
    let mut data = support::collectives::input::<f32>(CALLS, comm.rank(), len);
    comm.all_reduce(Group::World, henge_tensor::ViewMut::of(&mut data), Reduce::Sum)?;
    let everyone: Vec<usize> = (0..comm.grid().ranks()).collect();
    assert!(data == support::collectives::reduced::<f32>(CALLS, &everyone, len, Reduce::Sum), "a large all-reduce");
    Ok(())
}

/// Each rank hands on what it got; small messages and large, some in flight at once.
#[cfg(feature = "mpi")]
fn ring(comm: &impl Comm<Message>) -> Result<(), CommError> {
    let (rank, ranks) = (comm.rank(), comm.grid().ranks());
    let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let len = |micro: u64| if micro.is_multiple_of(2) { 5 } else { 300_000 };
    for round in 0..3 {
        for micro in 0..4 {
            comm.post_receive(last, tag(0, micro), Box::new(move || Message(vec![0.0; len(micro)])))?;
        }
        for micro in (0..4).rev() {
            let value = (100 * rank) as f32 + micro as f32 + 0.25 * round as f32;
            comm.send(next, tag(0, micro), Message(vec![value; len(micro)]))?;
        }
        for micro in 0..4 {
            comm.at(micro as usize, "R");
            let want = (100 * last) as f32 + micro as f32 + 0.25 * round as f32;
            assert_eq!(comm.wait_receive(last, tag(0, micro))?, Message(vec![want; len(micro)]));
        }
        (0..4).try_for_each(|micro| comm.wait_send(next, tag(0, micro)))?;
    }
    Ok(())
}

/// Two ranks send to each other at once, under one tag but for the direction.
#[cfg(feature = "mpi")]
fn both_ways(comm: &impl Comm<Message>) -> Result<(), CommError> {
    let other = comm.rank() ^ 1;
    if other >= comm.grid().ranks() {
        return Ok(());
    }
    let (out, back) = (comm.rank() as u8 % 2, other as u8 % 2);
    comm.post_receive(other, tag(back, 7), Box::new(|| Message(vec![0.0; 100_000])))?;
    comm.send(other, tag(out, 7), Message(vec![comm.rank() as f32; 100_000]))?;
    comm.wait_send(other, tag(out, 7))?;
    assert_eq!(comm.wait_receive(other, tag(back, 7))?, Message(vec![other as f32; 100_000]));
    Ok(())
}

#[cfg(feature = "mpi")]
fn agreement(world: &henge_mpi::World) {
    assert_eq!(world.share(format!("from {}", world.rank()).into_bytes()), b"from 0");
    assert_eq!(world.first_objection(None), None);
    let objects = world.rank() > 0;
    let first = world.first_objection(objects.then(|| format!("no, says {}", world.rank()).into_bytes()));
    assert_eq!(first, Some((1, b"no, says 1".to_vec())));
    assert_eq!(world.sum(1.5), 1.5 * world.ranks() as f64);
}
