//! What happens when ranks fail, stall or disagree.

mod support;

use henge_comm::threads::{Cause, Options, RankFailure, ThreadComm, Waiting, run_ranks, world};
use henge_comm::{Comm, CommError, Fault, FaultKind, Faulty, Grid, Group, Reduce};
use henge_tensor::ViewMut;
use std::time::{Duration, Instant};
use support::{Message, Random, blank, grid, options, tag};

fn sum(comm: &dyn Comm<Message>, group: Group, len: usize) -> Result<(), CommError> {
    let mut data = vec![1.0_f32; len];
    comm.all_reduce(group, ViewMut::of(&mut data), Reduce::Sum)
}

/// Runs a program that must fail, well before the time-out of the test's options.
fn failure_of(
    grid: Grid,
    body: impl Fn(ThreadComm<Message>) -> Result<(), CommError> + Send + Sync + 'static,
) -> RankFailure<CommError> {
    let begun = Instant::now();
    let ends = world::<Message>(grid, options(Waiting::Park));
    let failure = run_ranks(ends, body).expect_err("the program fails");
    assert!(begun.elapsed() < Duration::from_secs(30), "ended by time-out only: {failure}");
    assert!(failure.left_behind.is_empty());
    failure
}

#[test]
fn a_panic_ends_the_run_with_its_own_words_and_place() {
    let failure = failure_of(grid(2, 2, 1), |comm| {
        if comm.rank() == 2 {
            let empty: Vec<u32> = vec![];
            assert!(std::thread::current().name() == Some("rank 2"));
            std::hint::black_box(empty.len().checked_sub(1)).expect("a first layer");
        }
        sum(&comm, Group::World, 10)
    });
    assert_eq!(failure.rank, 2);
    let Cause::Panic { text, location } = &failure.cause else { panic!("{failure}") };
    assert!(text == "a first layer" && location.contains("failures.rs"), "{failure}");
}

#[test]
fn an_error_ends_the_run_whatever_the_others_wait_in() {
    let failure = failure_of(grid(1, 4, 1), |comm| match comm.rank() {
        0 => sum(&comm, Group::Pipeline, 100_000),
        1 => {
            comm.post_receive(2, tag(1, 0), blank())?;
            comm.wait_receive(2, tag(1, 0)).map(drop)
        }
        2 => {
            std::thread::sleep(Duration::from_millis(100));
            Err(CommError::Injected { rank: 2, position: 7, operation: "forward".to_owned() })
        }
        _ => {
            comm.send(2, tag(1, 1), Message(vec![]))?;
            comm.wait_send(2, tag(1, 1))
        }
    });
    assert_eq!(failure.to_string(), "rank 2 failed: injected error of rank 2 at operation 7 (forward)");
}

#[test]
fn the_others_learn_whose_failure_it_was() {
    let ends = world::<Message>(grid(2, 1, 1), options(Waiting::Park));
    let words = run_ranks(ends, |comm| {
        if comm.rank() == 1 {
            comm.poison("loss is not finite");
            return Ok(String::new());
        }
        let error = comm.barrier(Group::World).expect_err("poisoned");
        Err::<String, _>(error)
    });
    let failure = words.unwrap_err();
    assert_eq!(failure.to_string(), "rank 1 stopped the run: loss is not finite");
    let ends = world::<Message>(grid(2, 1, 1), options(Waiting::Park));
    ends[1].poison("loss is not finite");
    ends[0].poison("later");
    let error = ends[0].barrier(Group::World).unwrap_err();
    assert_eq!(error.to_string(), "rank 0 stopped because rank 1 failed: loss is not finite");
}

#[test]
fn collectives_that_differ_are_named_with_both_calls() {
    type Call = fn(&dyn Comm<Message>) -> Result<(), CommError>;
    let calls: [(Call, &str); 6] = [
        (|comm| sum(comm, Group::Tensor, 8), "all-reduce (sum) of 8 f32 over the tensor group"),
        (|comm| sum(comm, Group::Tensor, 9), "all-reduce (sum) of 9 f32 over the tensor group"),
        (|comm| sum(comm, Group::World, 8), "all-reduce (sum) of 8 f32 over the world group"),
        (
            |comm| comm.all_reduce(Group::Tensor, ViewMut::of(&mut [0.0_f64; 8]), Reduce::Max),
            "all-reduce (max) of 8 f64 over the tensor group",
        ),
        (
            |comm| comm.broadcast(Group::Tensor, 1, ViewMut::of(&mut [0.0_f32; 8])),
            "broadcast of 8 f32 from member 1 over the tensor group",
        ),
        (|comm| comm.barrier(Group::Tensor), "barrier over the tensor group"),
    ];
    for (first, first_text) in calls {
        for (second, second_text) in calls.into_iter().filter(|(_, text)| *text != first_text) {
            let failure = failure_of(grid(2, 1, 1), move |comm| {
                comm.at(comm.rank() + 4, "forward");
                if comm.rank() == 0 { first(&comm) } else { second(&comm) }
            });
            let text = failure.to_string();
            for (rank, call) in [(0, first_text), (1, second_text)] {
                let place = format!("rank {rank} at operation {} (forward) calls {call}", rank + 4);
                assert!(text.contains(&place), "{text}");
            }
        }
    }
}

#[test]
fn ranks_that_wait_in_a_circle_are_stopped_at_once() {
    // Tensor pairs (0,1) and (2,3), data pairs (0,2) and (1,3): each rank waits for the next.
    let failure = failure_of(grid(2, 1, 2), |comm| {
        comm.at(0, "step");
        match comm.rank() {
            0 | 3 => sum(&comm, Group::Tensor, 5),
            _ => sum(&comm, Group::Data, 5),
        }
    });
    let text = failure.to_string();
    assert!(text.contains("wait for each other in a circle"), "{text}");
    assert_eq!(text.matches("all-reduce (sum) of 5 f32 over the").count(), 4, "{text}");

    // Two stages that both wait before they send, as a damaged schedule would have it.
    let failure = failure_of(grid(1, 2, 1), |comm| {
        let peer = 1 - comm.rank();
        comm.post_receive(peer, tag(0, 0), blank())?;
        comm.wait_receive(peer, tag(0, 0))?;
        comm.send(peer, tag(0, 0), Message(vec![]))
    });
    let text = failure.to_string();
    assert!(text.contains("activations of stage 0, microbatch 0 from rank 0, missing [0]"), "{text}");
    assert!(text.contains("activations of stage 0, microbatch 0 from rank 1, missing [1]"), "{text}");
}

#[test]
fn a_wait_for_a_finished_rank_ends() {
    let failure = failure_of(grid(3, 1, 1), |comm| match comm.rank() {
        1 => {
            std::thread::sleep(Duration::from_millis(100));
            Ok(())
        }
        _ => comm.barrier(Group::Tensor),
    });
    assert!(failure.to_string().contains("waits for rank 1, which has finished"), "{failure}");
}

#[test]
fn a_stall_is_reported_with_a_line_for_every_rank() {
    for waiting in [Waiting::Park, Waiting::Spin] {
        let limits = Options { timeout: Duration::from_secs(1), grace: Duration::from_millis(300), ..options(waiting) };
        let stall = Fault { rank: 1, operation: "backward".to_owned(), after: 2, kind: FaultKind::Stall };
        let begun = Instant::now();
        let failure = run_ranks(world::<Message>(grid(1, 2, 1), limits), move |comm| {
            let comm = Faulty::new(comm, std::slice::from_ref(&stall));
            for microbatch in 0..9 {
                comm.at(microbatch, &format!("backward {microbatch}"));
                comm.barrier(Group::World)?;
            }
            Ok::<_, CommError>(())
        })
        .unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!((failure.rank, &*failure.left_behind), (0, &[1][..]));
        let Cause::Error(CommError::TimedOut { rank: 0, what, from, report, .. }) = &failure.cause else {
            panic!("{failure}")
        };
        assert_eq!((what.as_str(), from.as_slice()), ("barrier over the world group", &[1][..]));
        let lines: Vec<_> = report.lines().collect();
        for (rank, state) in [(0, "has waited 1."), (1, "has been computing for 1.")] {
            let line = format!("rank {rank} at operation 2 (backward 2): {state}");
            assert!(lines[rank].starts_with(&line), "{report}");
        }
        assert!(lines[0].contains(" s for barrier over the world group, missing [1]"), "{report}");
        assert!(lines[1].contains("before: barrier over the world group"), "{report}");
        assert_eq!(lines.len(), 2);
    }
}

#[test]
fn injected_faults_come_at_their_operation() {
    let fault = |kind| Fault { rank: 1, operation: "forward".to_owned(), after: 3, kind };
    let run = |kind| {
        let fault = fault(kind);
        run_ranks(world::<Message>(grid(2, 1, 1), options(Waiting::Park)), move |comm| {
            let comm = Faulty::new(comm, std::slice::from_ref(&fault));
            let begun = Instant::now();
            for position in 0..6 {
                comm.at(2 * position, "forward");
                comm.at(2 * position + 1, "backward");
                comm.barrier(Group::World)?;
            }
            Ok::<_, CommError>(begun.elapsed())
        })
    };
    let panicked = run(FaultKind::Panic).unwrap_err();
    assert!(panicked.to_string().contains("injected panic of rank 1 at operation 6 (forward)"), "{panicked}");
    let failed = run(FaultKind::Error).unwrap_err();
    assert_eq!(failed.to_string(), "rank 1 failed: injected error of rank 1 at operation 6 (forward)");
    let slow = Duration::from_millis(150);
    let times = run(FaultKind::Slow(slow)).unwrap();
    assert!(times.iter().all(|time| *time >= slow), "all wait for the slow rank: {times:?}");
}

/// One random collective or exchange; buffers are fresh, so that one freed too early is
/// another's memory.
fn random_call(comm: &dyn Comm<Message>, draw: &mut Random, call: u64) -> Result<(), CommError> {
    let group = [Group::Tensor, Group::Data, Group::Pipeline, Group::Model, Group::World][draw.below(5)];
    let len = if draw.below(4) == 0 { 40_000 } else { 100 } + draw.below(3);
    match draw.below(3) {
        0 => sum(comm, group, len),
        1 => comm.broadcast(group, 0, ViewMut::of(&mut vec![0.5_f64; len])),
        _ => {
            let ranks = comm.grid().ranks();
            let (to, from) = ((comm.rank() + 1) % ranks, (comm.rank() + ranks - 1) % ranks);
            comm.post_receive(from, tag(0, call), blank())?;
            comm.send(to, tag(0, call), Message(vec![0.25; len]))?;
            assert_eq!(comm.wait_receive(from, tag(0, call))?.0.len(), len);
            comm.wait_send(to, tag(0, call))
        }
    }
}

const LAYOUTS: [(usize, usize, usize); 5] = [(2, 1, 1), (1, 3, 1), (2, 2, 1), (2, 1, 3), (2, 2, 2)];

#[test]
fn a_failure_at_any_moment_ends_every_rank() {
    let begun = Instant::now();
    for seed in 0..300 {
        let mut plan = Random(seed);
        let (t, p, d) = LAYOUTS[plan.below(LAYOUTS.len())];
        let grid = grid(t, p, d);
        let (culprit, moment, way) = (plan.below(grid.ranks()), plan.below(20), plan.below(3));
        let waiting = if plan.below(2) == 0 { Waiting::Spin } else { Waiting::Park };
        let failure = run_ranks(world::<Message>(grid, options(waiting)), move |comm| {
            let mut draw = Random(seed + 1000);
            let mut own = Random(seed ^ (comm.rank() as u64 + 1) << 32);
            for call in 0..20 {
                own.delay();
                if (comm.rank(), call) == (culprit, moment) {
                    match way {
                        0 => panic!("on purpose"),
                        1 => return Err("on purpose".to_owned()),
                        _ => comm.poison("on purpose"),
                    }
                }
                random_call(&comm, &mut draw, call as u64).map_err(|error| error.to_string())?;
            }
            Ok(())
        })
        .expect_err("one rank fails");
        assert_eq!(failure.rank, culprit, "seed {seed}: {failure}");
        assert!(failure.to_string().contains("on purpose") && failure.left_behind.is_empty(), "seed {seed}: {failure}");
    }
    assert!(begun.elapsed() < Duration::from_secs(50), "no run waited for its time-out");
}

/// One rank skips, repeats or alters one call: found by comparison, never by time-out.
#[test]
fn a_damaged_program_is_found_at_once() {
    let mut found = 0;
    for seed in 0..200 {
        let mut plan = Random(seed);
        let (t, p, d) = LAYOUTS[plan.below(LAYOUTS.len())];
        let grid = grid(t, p, d);
        let (culprit, moment, way) = (plan.below(grid.ranks()), plan.below(20), plan.below(3));
        let begun = Instant::now();
        let outcome = run_ranks(world::<Message>(grid, options(Waiting::Park)), move |comm| {
            let mut draw = Random(seed + 1000);
            for call in 0..20 {
                let is_damaged = (comm.rank(), call) == (culprit, moment);
                let mut this = Random(draw.next());
                match way {
                    0 if is_damaged => continue,
                    1 if is_damaged => random_call(&comm, &mut Random(this.0), call as u64)?,
                    2 if is_damaged => this = Random(this.0 + 1),
                    _ => {}
                }
                random_call(&comm, &mut this, call as u64)?;
            }
            Ok::<_, CommError>(())
        });
        assert!(begun.elapsed() < Duration::from_secs(30), "seed {seed} ran into the time-out");
        if let Err(failure) = outcome {
            assert!(matches!(failure.cause, Cause::Panic { .. }), "seed {seed}: {failure}");
            found += 1;
        }
    }
    // The rest altered nothing that another rank could see.
    assert!(found > 150, "{found} of 200");
}
