//! The simulator against closed forms and against the zero-bubble paper's columns.

use henge_plan::published::bubble_rows;
use henge_plan::report::{chrome_trace, gantt};
use henge_plan::simulate::{Durations, Outcome, Span, simulate};
use henge_plan::{Jitter, Overlap};
use henge_schedule::{Kind, Program, Shape};
use henge_spec::formulas::bubble_fraction;

fn shape(kind: Kind, pipeline: usize, chunks: usize, microbatches: usize) -> Shape {
    Shape { kind, pipeline, chunks, microbatches }
}

/// A step without communication: every rank's chunks together take `forward` and `backward`.
fn silent(shape: Shape, forward: f64, backward: f64) -> Outcome {
    let program = Program::generate(shape).unwrap();
    let share = shape.chunks as f64;
    let durations =
        Durations::uniform(shape.stages(), shape.pipeline, forward / share, backward / share, 0.0, Overlap::NONE);
    simulate(&program, &durations, &Jitter::NONE, &mut ())
}

#[test]
fn bubbles_are_the_formula_exactly() {
    let plain = [Kind::GPipe, Kind::OneForwardOneBackward];
    let mut shapes: Vec<Shape> = Vec::new();
    for (p, m) in [(1, 4), (2, 2), (4, 8), (8, 8), (12, 24), (64, 512)] {
        shapes.extend(plain.map(|kind| shape(kind, p, 1, m)));
    }
    shapes.extend([(4, 8, 2), (4, 16, 2), (8, 16, 4), (12, 12, 4)].map(|(p, m, v)| shape(Kind::Interleaved, p, v, m)));
    for shape in shapes {
        for (forward, backward) in [(1.0, 2.0), (0.7, 1.9)] {
            let found = silent(shape, forward, backward).bubble_fraction();
            let formula = bubble_fraction(shape.pipeline, shape.chunks, shape.microbatches);
            assert!((found - formula).abs() < 1e-9, "{shape:?}: {found} against {formula}");
        }
    }
}

#[test]
fn total_times_of_the_digest() {
    // p = 4, m = 8, t_f = 1, t_b = 2: 33 plain and 28.5 with two chunks.
    assert!((silent(shape(Kind::OneForwardOneBackward, 4, 1, 8), 1.0, 2.0).seconds - 33.0).abs() < 1e-9);
    assert!((silent(shape(Kind::Interleaved, 4, 2, 8), 1.0, 2.0).seconds - 28.5).abs() < 1e-9);
}

#[test]
fn given_times_reproduce_the_zero_bubble_paper() {
    let rows = bubble_rows();
    assert_eq!(rows.len(), 24);
    for row in rows {
        let error = row.time_error().abs();
        let allowed = if row.schedule == "1f1b" { 0.001 } else { 0.05 };
        assert!(error <= allowed, "{row:?}");
    }
}

#[test]
fn a_slow_last_stage_sets_the_pace() {
    let shape = shape(Kind::OneForwardOneBackward, 4, 1, 40);
    let mut durations = Durations::uniform(4, 4, 1.0, 2.0, 0.0, Overlap::NONE);
    durations.forward[3] = 2.0;
    let outcome = simulate(&Program::generate(shape).unwrap(), &durations, &Jitter::NONE, &mut ());
    // Every microbatch but the first passes the last stage at its pace; the rest is filling.
    assert!((outcome.seconds - (40.0 * 4.0 + 3.0 * 3.0)).abs() < 1e-9, "{}", outcome.seconds);
    assert_eq!(outcome.busiest(), 3);
}

#[test]
fn reductions_hide_behind_the_last_backward_only_when_asked() {
    let shape = shape(Kind::OneForwardOneBackward, 2, 1, 4);
    let program = Program::generate(shape).unwrap();
    let mut durations = Durations::uniform(2, 2, 1.0, 2.0, 0.0, Overlap::NONE);
    durations.reduce = vec![1.5; 2];
    durations.reduce_tail = vec![0.1; 2];
    let exposed = simulate(&program, &durations, &Jitter::NONE, &mut ()).seconds;
    durations.overlap = Overlap { data: true, ..Overlap::NONE };
    let hidden = simulate(&program, &durations, &Jitter::NONE, &mut ()).seconds;
    assert!((exposed - 16.5).abs() < 1e-9 && (hidden - 15.15).abs() < 1e-9, "{exposed} {hidden}");
}

#[test]
fn jitter_repeats_by_seed_and_costs_time() {
    let shape = shape(Kind::OneForwardOneBackward, 8, 1, 32);
    let program = Program::generate(shape).unwrap();
    let durations = Durations::uniform(8, 8, 1.0, 2.0, 0.0, Overlap::NONE);
    let with = |seed| simulate(&program, &durations, &Jitter { seed, deviation: 0.05 }, &mut ()).seconds;
    assert_eq!(with(7), with(7));
    assert_ne!(with(7), with(8));
    assert!(with(7) > silent(shape, 1.0, 2.0).seconds);
}

#[test]
fn drawings_of_a_small_step() {
    let program = Program::generate(shape(Kind::OneForwardOneBackward, 2, 1, 2)).unwrap();
    let durations = Durations::uniform(2, 2, 1.0, 2.0, 0.0, Overlap::NONE);
    let mut spans: Vec<Span> = Vec::new();
    let outcome = simulate(&program, &durations, &Jitter::NONE, &mut spans);
    let text = gantt(&spans, 2, outcome.seconds, 9);
    assert_eq!(text.lines().take(2).collect::<Vec<_>>(), ["r0 01..aa.bb", "r1 .0aa1bb.."]);
    let trace = chrome_trace(&spans, 2);
    let events = trace["traceEvents"].as_array().unwrap();
    let forwards = events.iter().filter(|event| event["cat"] == "forward").count();
    assert_eq!(forwards, 4);
    assert!(events.iter().all(|event| event["tid"].as_u64().unwrap() < 2));
}
