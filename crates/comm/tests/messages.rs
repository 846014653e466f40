//! Messages between two ranks.

mod support;

use henge_comm::threads::{Delivery, Options, Waiting, run_ranks, world};
use henge_comm::{Comm, CommError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Message, Random, blank, grid, options, tag};

#[test]
fn a_message_is_handed_over_without_a_copy() {
    let ends = world::<Message>(grid(1, 2, 1), options(Waiting::Park));
    let addresses = run_ranks(ends, |comm| {
        if comm.rank() == 0 {
            let message = Message(vec![1.0, 2.0]);
            let address = message.0.as_ptr().addr();
            comm.send(1, tag(0, 0), message)?;
            comm.wait_send(1, tag(0, 0))?;
            return Ok::<_, CommError>(address);
        }
        comm.post_receive(0, tag(0, 0), blank())?;
        let message = comm.wait_receive(0, tag(0, 0))?;
        assert_eq!(message, Message(vec![1.0, 2.0]));
        Ok(message.0.as_ptr().addr())
    });
    let addresses = addresses.unwrap();
    assert_eq!(addresses[0], addresses[1]);
}

/// Where a pipeline has two stages, both neighbours of a rank are the same rank.
#[test]
fn tags_keep_messages_of_one_pair_apart() {
    let ends = world::<Message>(grid(1, 2, 1), options(Waiting::Spin));
    let done = run_ranks(ends, |comm| {
        let (rank, peer) = (comm.rank(), 1 - comm.rank());
        let name = |direction: usize, microbatch: u64| Message(vec![(direction * 100) as f32 + microbatch as f32]);
        for microbatch in 0..4 {
            comm.post_receive(peer, tag(peer as u8, microbatch), blank())?;
        }
        for microbatch in 0..4 {
            comm.send(peer, tag(rank as u8, microbatch), name(rank, microbatch))?;
        }
        for microbatch in [2, 0, 3, 1] {
            assert_eq!(comm.wait_receive(peer, tag(peer as u8, microbatch))?, name(peer, microbatch));
            comm.wait_send(peer, tag(rank as u8, microbatch))?;
        }
        Ok::<_, CommError>(())
    });
    done.unwrap();
}

/// Forward-only programs use each tag once a step, and the sender may be a step ahead.
#[test]
fn a_tag_is_used_again_in_the_next_step() {
    for delivery in [Delivery::Eager, Delivery::Rendezvous] {
        let ends = world::<Message>(grid(1, 3, 1), Options { delivery, ..options(Waiting::Park) });
        let done = run_ranks(ends, |comm| {
            let (rank, mut random) = (comm.rank(), Random(comm.rank() as u64));
            for step in 0..2000 {
                let mut value = step as f32;
                if rank > 0 {
                    comm.post_receive(rank - 1, tag(0, 0), blank())?;
                    let message = comm.wait_receive(rank - 1, tag(0, 0))?;
                    assert_eq!(message.0, [value + rank as f32 - 1.0]);
                }
                value += rank as f32;
                random.delay();
                if rank < 2 {
                    comm.send(rank + 1, tag(0, 0), Message(vec![value]))?;
                    comm.wait_send(rank + 1, tag(0, 0))?;
                }
            }
            Ok::<_, CommError>(())
        });
        done.unwrap();
    }
}

/// Whether rank 0 was done with its message before rank 1 posted the receive.
fn sender_runs_ahead(delivery: Delivery) -> bool {
    let ends = world::<Message>(grid(1, 2, 1), Options { delivery, ..options(Waiting::Park) });
    let is_sent = Arc::new(AtomicBool::new(false));
    let ahead = run_ranks(ends, move |comm| {
        if comm.rank() == 0 {
            comm.send(1, tag(0, 0), Message(vec![]))?;
            comm.wait_send(1, tag(0, 0))?;
            is_sent.store(true, Ordering::SeqCst);
            return Ok::<_, CommError>(false);
        }
        std::thread::sleep(Duration::from_millis(200));
        let is_ahead = is_sent.load(Ordering::SeqCst);
        comm.post_receive(0, tag(0, 0), blank())?;
        comm.wait_receive(0, tag(0, 0))?;
        Ok(is_ahead)
    });
    ahead.unwrap()[1]
}

#[test]
fn a_send_completes_at_once_or_at_its_receive() {
    assert!(sender_runs_ahead(Delivery::Eager));
    assert!(!sender_runs_ahead(Delivery::Rendezvous));
}

type Program = fn(&dyn Comm<Message>) -> Result<(), CommError>;

#[test]
fn wrong_use_of_messages_is_named() {
    let twice: Program = |comm| {
        comm.send(1, tag(0, 3), Message(vec![]))?;
        comm.send(1, tag(0, 3), Message(vec![]))
    };
    let posted_twice: Program = |comm| {
        comm.post_receive(1, tag(1, 3), blank())?;
        comm.post_receive(1, tag(1, 3), blank())
    };
    let not_posted: Program = |comm| comm.wait_receive(1, tag(1, 3)).map(drop);
    let not_sent: Program = |comm| comm.wait_send(1, tag(0, 3));
    let cases = [
        (twice, "activations of stage 0, microbatch 3 from rank 0 to rank 1: it was sent twice"),
        (posted_twice, "gradients of stage 0, microbatch 3 from rank 1 to rank 0: the receive was posted twice"),
        (not_posted, "from rank 1 to rank 0: its receive is waited for but was not posted"),
        (not_sent, "from rank 0 to rank 1: its send is waited for but was not started"),
    ];
    for (program, words) in cases {
        let ends = world::<Message>(grid(1, 2, 1), options(Waiting::Park));
        let failure = run_ranks(ends, move |comm| match comm.rank() {
            0 => {
                comm.at(5, "send");
                program(&comm)
            }
            _ => comm.barrier(henge_comm::Group::World),
        })
        .unwrap_err();
        let text = failure.to_string();
        assert!(failure.rank == 0 && text.contains(words) && text.contains("operation 5 (send)"), "{text}");
    }
}
