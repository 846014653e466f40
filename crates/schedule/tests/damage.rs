//! Damaged programs: the checker accepts exactly those that a plain executor with blocking sends carries to the same
//! result within the same buffers, and names the ranks at fault in all others.

mod support;

use std::collections::BTreeMap;

use henge_schedule::{CheckError, Detail, Direction, Message, Op, Program, Report, check};
use support::{Numbers, Outcome, execute, small_shapes};

const DAMAGES_PER_SHAPE: u64 = 1000;

#[test]
fn damaged_programs_are_rejected_unless_harmless() {
    let mut verdicts: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, shape) in small_shapes().into_iter().enumerate() {
        let sound = Program::generate(shape).unwrap();
        let result = execute(&sound).unwrap();
        for damage in 0..DAMAGES_PER_SHAPE {
            let seed = (index as u64) << 32 | damage;
            if let Some((program, touched)) = damaged(&sound, seed) {
                let verdict = assert_verdict(&program, &touched, &result, seed);
                *verdicts.entry(verdict).or_default() += 1;
            }
        }
    }
    println!("{verdicts:?}");
    for (name, times) in [
        ("Sound", 1000),
        ("NoSuchOperation", 1000),
        ("Misdirected", 1000),
        ("Repeated", 1000),
        ("Missing", 1000),
        ("TooEarly", 1000),
        ("AfterStep", 1000),
        ("BeyondWindow", 300),
        ("BeyondPeak", 300),
        ("Deadlock", 1000),
    ] {
        assert!(verdicts.get(name) >= Some(&times), "{name}: {verdicts:?}");
    }
}

/// One damage, at times two; none when they left the program as it was.
fn damaged(sound: &Program, seed: u64) -> Option<(Program, Vec<usize>)> {
    let mut numbers = Numbers(seed);
    let mut program = sound.clone();
    let mut touched = inflict(&mut program, &mut numbers);
    if numbers.below(8) == 0 {
        touched.extend(inflict(&mut program, &mut numbers));
    }
    (program != *sound).then_some((program, touched))
}

fn assert_verdict(program: &Program, touched: &[usize], result: &Outcome, seed: u64) -> &'static str {
    let executed = execute(program)
        .and_then(|outcome| if outcome == *result { Ok(()) } else { Err("another result".to_string()) });
    let checked = check(program);
    assert_eq!(
        checked.is_ok(),
        executed.is_ok(),
        "{:?}, seed {seed}: {checked:?} but {executed:?}\n{}",
        program.shape,
        program.text(Detail::Messages)
    );
    if let (Err(CheckError::Deadlock(deadlock)), Err(symptom)) = (&checked, &executed) {
        assert!(symptom.contains("never steps"), "{deadlock} but {symptom}");
    }
    if let Err(error) = &checked {
        assert_names_the_ranks(error, program, touched);
    }
    verdict(&checked)
}

fn assert_names_the_ranks(error: &CheckError, program: &Program, touched: &[usize]) {
    let (one, other) = error.ranks().expect("damage leaves the shape alone");
    let message = error.to_string();
    assert!(one != other || program.shape.pipeline == 1, "{message}");
    assert!(message.contains(&format!("rank {one}")) && message.contains(&format!("rank {other}")), "{message}");
    let named: Vec<usize> = match error {
        CheckError::Deadlock(deadlock) => deadlock.waiting.iter().map(|site| site.rank).collect(),
        _ => vec![one, other],
    };
    assert!(touched.iter().any(|rank| named.contains(rank)), "damage on {touched:?}, but {message}");
}

fn verdict(checked: &Result<Report, CheckError>) -> &'static str {
    match checked {
        Ok(_) => "Sound",
        Err(CheckError::Shape(_)) => "Shape",
        Err(CheckError::RankCount { .. }) => "RankCount",
        Err(CheckError::NoSuchOperation(_)) => "NoSuchOperation",
        Err(CheckError::Misdirected(_)) => "Misdirected",
        Err(CheckError::Repeated { .. }) => "Repeated",
        Err(CheckError::Missing(_)) => "Missing",
        Err(CheckError::TooEarly { .. }) => "TooEarly",
        Err(CheckError::AfterStep(_)) => "AfterStep",
        Err(CheckError::BeyondWindow { .. }) => "BeyondWindow",
        Err(CheckError::BeyondPeak { .. }) => "BeyondPeak",
        Err(CheckError::Deadlock(_)) => "Deadlock",
    }
}

/// Does one damage and says which ranks it touched.
fn inflict(program: &mut Program, numbers: &mut Numbers) -> Vec<usize> {
    let (rank, other) = (numbers.below(program.ranks.len()), numbers.below(program.ranks.len()));
    let ops = &mut program.ranks[rank];
    let length = ops.len();
    let place = numbers.below(length);
    match numbers.below(9) {
        0 => ops.swap(place, (place + 1) % length),
        1 => ops.swap(place, (place + numbers.below(12)) % length),
        2 => drop(ops.remove(place)),
        3 => ops.insert(numbers.below(length + 1), ops[place]),
        4 => {
            let moved = ops.remove(place);
            ops.insert(numbers.below(length), moved);
        }
        5 => post_late(ops, place),
        6 => swap_blocks(ops, numbers),
        7 => misdirect(program, rank, place, numbers),
        _ => {
            let other_place = numbers.below(program.ranks[other].len());
            let (here, there) = (program.ranks[rank][place], program.ranks[other][other_place]);
            program.ranks[rank][place] = there;
            program.ranks[other][other_place] = here;
            return vec![rank, other];
        }
    }
    vec![rank]
}

/// Moves the first receive posted from `place` on to just before it is waited for.
fn post_late(ops: &mut [Op], place: usize) {
    let Some(posted) = (place..ops.len()).find(|&at| matches!(ops[at], Op::PostRecv { .. })) else { return };
    let Op::PostRecv { message, from } = ops[posted] else { return };
    if let Some(waited) = ops.iter().position(|&op| op == Op::WaitRecv { message, from })
        && posted < waited
    {
        ops[posted..waited].rotate_left(1);
    }
}

/// Swaps a forward or backward, with the messages around it, and the one after.
fn swap_blocks(ops: &mut [Op], numbers: &mut Numbers) {
    let receives = |op: &Op| matches!(op, Op::PostRecv { .. } | Op::WaitRecv { .. });
    let computes = |op: &Op| matches!(op, Op::Forward { .. } | Op::Backward { .. });
    let starts: Vec<usize> = (0..ops.len())
        .filter(|&at| (receives(&ops[at]) || computes(&ops[at])) && (at == 0 || !receives(&ops[at - 1])))
        .collect();
    if starts.len() > 2 {
        let first = numbers.below(starts.len() - 2);
        ops[starts[first]..starts[first + 2]].rotate_left(starts[first + 1] - starts[first]);
    }
}

/// Changes one number of an operation, at times to one out of range.
fn misdirect(program: &mut Program, rank: usize, place: usize, numbers: &mut Numbers) {
    let shape = program.shape;
    let new_rank = numbers.below(shape.pipeline + 1);
    let new_microbatch = numbers.below(shape.microbatches + 1);
    let new_chunk = numbers.below(shape.chunks + 1);
    let new_stage = numbers.below(shape.stages() + 1);
    let choice = numbers.below(4);
    let peer = |old: usize| if choice == 0 { new_rank } else { old };
    let tag = |old: Message| match choice {
        1 => Message { microbatch: new_microbatch, ..old },
        2 => Message { stage: new_stage, ..old },
        3 => Message { direction: opposite(old.direction), ..old },
        _ => old,
    };
    let work = |chunk: usize, microbatch: usize| {
        if choice < 2 { (chunk, new_microbatch) } else { (new_chunk, microbatch) }
    };
    let op = &mut program.ranks[rank][place];
    *op = match *op {
        Op::Forward { chunk, microbatch } => {
            let (chunk, microbatch) = work(chunk, microbatch);
            Op::Forward { chunk, microbatch }
        }
        Op::Backward { chunk, microbatch } => {
            let (chunk, microbatch) = work(chunk, microbatch);
            Op::Backward { chunk, microbatch }
        }
        Op::PostRecv { message, from } => Op::PostRecv { message: tag(message), from: peer(from) },
        Op::WaitRecv { message, from } => Op::WaitRecv { message: tag(message), from: peer(from) },
        Op::Send { message, to } => Op::Send { message: tag(message), to: peer(to) },
        Op::WaitSend { message, to } => Op::WaitSend { message: tag(message), to: peer(to) },
        Op::ReduceGradients { .. } => Op::ReduceGradients { chunk: new_chunk },
        Op::SyncEmbedding => Op::Step,
        Op::Step => Op::SyncEmbedding,
    };
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Activation => Direction::Gradient,
        Direction::Gradient => Direction::Activation,
    }
}

/// The text form loses nothing, whatever the damage.
#[test]
fn damaged_programs_read_back_from_their_text() {
    for (index, shape) in small_shapes().into_iter().enumerate() {
        let sound = Program::generate(shape).unwrap();
        for damage in 0..50 {
            let mut program = sound.clone();
            inflict(&mut program, &mut Numbers((index as u64) << 40 | damage));
            let text = program.text(Detail::Messages);
            assert_eq!(Program::parse(shape, &text).unwrap().ranks, program.ranks, "{text}");
        }
    }
}
