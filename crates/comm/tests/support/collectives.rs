//! Collectives that all ranks draw alike, held to a plain sequential reference.

use super::{Message, Random};
use henge_comm::{Comm, CommError, Group, Reduce};
use henge_tensor::{Real, View, ViewMut};

/// What `rank` gives to call `call`.
pub fn input<T: Real>(call: usize, rank: usize, len: usize) -> Vec<T> {
    let mut random = Random(((call as u64) << 8) + rank as u64);
    (0..len).map(|_| T::of(random.number())).collect()
}

pub fn reduced<T: Real>(call: usize, members: &[usize], len: usize, how: Reduce) -> Vec<T> {
    let mut parts = members.iter().map(|&rank| input::<T>(call, rank, len));
    let mut all = parts.next().expect("a group has members");
    for part in parts {
        for (sum, value) in all.iter_mut().zip(part) {
            *sum = match how {
                Reduce::Sum => *sum + value,
                Reduce::Max => sum.max(value),
            };
        }
    }
    all
}

/// One collective of a rank, of either type.
pub fn random_collective(comm: &impl Comm<Message>, call: usize, draw: &mut Random) -> Result<(), CommError> {
    match draw.below(2) {
        0 => random_call::<f32>(comm, call, draw),
        _ => random_call::<f64>(comm, call, draw),
    }
}

/// One collective of a rank, drawn from what all ranks draw alike.
fn random_call<T: Real>(comm: &impl Comm<Message>, call: usize, draw: &mut Random) -> Result<(), CommError> {
    let group = Group::ALL[draw.below(Group::ALL.len())];
    // Mostly small, some of many chunks, a few empty.
    let len = if draw.below(12) == 0 { draw.below(70_000) } else { draw.below(300) };
    let (kind, root) = (draw.below(5), draw.next() as usize);
    let rank = comm.rank();
    let members = comm.grid().members(group, rank);
    let mut data = input::<T>(call, rank, len);
    match kind {
        0 | 1 => {
            let how = if kind == 0 { Reduce::Sum } else { Reduce::Max };
            comm.all_reduce(group, ViewMut::of(&mut data), how)?;
            assert!(data == reduced(call, &members, len, how), "all-reduce {call} over {group} {members:?}");
        }
        2 => {
            let mut all = vec![T::zero(); len * members.len()];
            comm.all_gather(group, View::of(&data), ViewMut::of(&mut all))?;
            let parts: Vec<_> = members.iter().map(|&member| input::<T>(call, member, len)).collect();
            assert!(all == parts.concat(), "all-gather {call} over {group} {members:?}");
        }
        3 => {
            let root = root % members.len();
            comm.broadcast(group, root, ViewMut::of(&mut data))?;
            assert!(data == input(call, members[root], len), "broadcast {call} over {group} {members:?}");
        }
        _ => comm.barrier(group)?,
    }
    Ok(())
}
