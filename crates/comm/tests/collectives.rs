//! Collectives against a plain sequential reference, to the bit.

mod support;

use henge_comm::threads::{Waiting, run_ranks, world};
use henge_comm::{Comm, CommError, Grid, Group, Reduce};
use henge_spec::DType;
use henge_tensor::{Device, View, ViewMut};
use support::collectives::{input, random_collective, reduced};
use support::{Message, Random, grid, options};

fn stress(grid: Grid, waiting: Waiting, seed: u64, calls: usize) {
    let ends = world::<Message>(grid, options(waiting));
    let done = run_ranks(ends, move |comm| {
        let mut draw = Random(seed);
        let mut own = Random(seed ^ (comm.rank() as u64 + 1) << 32);
        for call in 0..calls {
            own.delay();
            random_collective(&comm, call, &mut draw)?;
        }
        Ok::<_, CommError>(())
    });
    if let Err(failure) = done {
        panic!("{failure}");
    }
}

#[test]
fn random_collectives_equal_the_reference_to_the_bit() {
    let layouts = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 3), (2, 2, 1), (1, 5, 1), (3, 1, 2), (1, 1, 7), (2, 2, 2)];
    for (seed, (t, p, d)) in layouts.into_iter().enumerate() {
        for waiting in [Waiting::Park, Waiting::Spin] {
            stress(grid(t, p, d), waiting, seed as u64, 400);
        }
    }
}

#[test]
fn a_large_all_reduce_repeats_to_the_bit() {
    let run = || {
        let ends = world::<Message>(grid(4, 1, 1), options(Waiting::Park));
        run_ranks(ends, |comm| {
            let mut data = input::<f32>(7, comm.rank(), (1 << 20) + 13);
            comm.all_reduce(Group::Tensor, ViewMut::of(&mut data), Reduce::Sum)?;
            Ok::<_, CommError>(data)
        })
        .unwrap()
    };
    let first = run();
    assert!(first.iter().all(|data| *data == first[0]), "ranks differ");
    assert!(first[0] == reduced(7, &[0, 1, 2, 3], (1 << 20) + 13, Reduce::Sum));
    assert!(run() == first, "two runs differ");
}

#[test]
fn a_buffer_may_begin_anywhere() {
    let ends = world::<Message>(grid(3, 1, 1), options(Waiting::Park));
    let results = run_ranks(ends, |comm| {
        let (rank, len) = (comm.rank(), 50_001);
        let mut data = vec![0.0; rank];
        data.extend(input::<f32>(1, rank, len));
        data.push(9.0);
        comm.all_reduce(Group::Tensor, ViewMut::of(&mut data[rank..rank + len]), Reduce::Sum)?;
        assert_eq!((data[..rank].iter().sum::<f32>(), data[rank + len]), (0.0, 9.0), "neighbours stay");
        Ok::<_, CommError>(data[rank..rank + len].to_vec())
    })
    .unwrap();
    assert!(results.iter().all(|data| *data == reduced::<f32>(1, &[0, 1, 2], 50_001, Reduce::Sum)));
}

#[test]
fn the_maximum_keeps_a_nan_of_any_rank() {
    for culprit in 0..3 {
        let ends = world::<Message>(grid(3, 1, 1), options(Waiting::Park));
        let results = run_ranks(ends, move |comm| {
            let mut data = [comm.rank() as f64, f64::NEG_INFINITY, 1.0];
            if comm.rank() == culprit {
                data[2] = f64::NAN;
            }
            comm.all_reduce(Group::Tensor, ViewMut::of(&mut data), Reduce::Max)?;
            Ok::<_, CommError>(data)
        });
        for [largest, least, unknown] in results.unwrap() {
            assert_eq!((largest, least), (2.0, f64::NEG_INFINITY));
            assert!(unknown.is_nan(), "rank {culprit}'s NaN was lost");
        }
    }
}

#[test]
fn two_byte_elements_are_gathered_and_broadcast() {
    let ends = world::<Message>(grid(2, 1, 1), options(Waiting::Park));
    let results = run_ranks(ends, |comm| {
        let mine = [comm.rank() as u16 + 1; 3];
        let (mut all, mut copy) = ([0_u16; 6], mine);
        // SAFETY: both address live elements of two bytes, the latter exclusively.
        let (from, to, data) = unsafe {
            (
                View::from_parts(mine.as_ptr().cast(), 3, DType::BF16, Device::Cpu),
                ViewMut::from_parts(all.as_mut_ptr().cast(), 6, DType::BF16, Device::Cpu),
                ViewMut::from_parts(copy.as_mut_ptr().cast(), 3, DType::F16, Device::Cpu),
            )
        };
        comm.all_gather(Group::Tensor, from, to)?;
        comm.broadcast(Group::Tensor, 1, data)?;
        Ok::<_, CommError>((all, copy))
    });
    assert_eq!(results.unwrap(), [([1, 1, 1, 2, 2, 2], [2; 3]); 2]);
}

#[test]
fn the_measurement_counts_what_it_says() {
    let rate = henge_comm::threads::measure_all_reduce(2, 1 << 20, 5).unwrap();
    let moved = rate.seconds * rate.bytes_per_second;
    assert!((moved - f64::from(4 << 20)).abs() < 1.0, "two ranks read and write 1 MiB each: {moved}");
    assert!(rate.copy_bytes_per_second > 0.0 && rate.share_of_copy() > 0.0);
}
