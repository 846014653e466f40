//! What the tests of the engine share.
#![allow(dead_code)] // each test file uses its part

pub mod collectives;

use henge_comm::threads::{Delivery, Options, Waiting};
use henge_comm::{Grid, Tag};
use henge_spec::Layout;
use henge_tensor::{Transfer, ViewMut};
use std::time::Duration;

/// A message of numbers.
#[derive(Debug, PartialEq)]
pub struct Message(pub Vec<f32>);

impl Transfer for Message {
    fn view_mut(&mut self) -> ViewMut<'_> {
        ViewMut::of(&mut self.0)
    }
}

pub fn blank() -> Box<dyn FnOnce() -> Message> {
    Box::new(|| Message(vec![]))
}

pub fn grid(tensor: usize, pipeline: usize, data: usize) -> Grid {
    Grid::new(&Layout { tensor, pipeline, data, ..Layout::ONE })
}

pub fn options(waiting: Waiting) -> Options {
    Options {
        timeout: Duration::from_secs(60),
        grace: Duration::from_secs(20),
        waiting,
        delivery: Delivery::Rendezvous,
    }
}

pub fn tag(direction: u8, microbatch: u64) -> Tag {
    Tag { direction, stage: 0, microbatch }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// In -1..1, with all bits of the fraction in use, so that order of summation shows.
    pub fn number(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// Mostly nothing; now and then long enough for others to park.
    pub fn delay(&mut self) {
        match self.below(16) {
            0 => std::thread::sleep(Duration::from_micros(self.next() % 200)),
            1..4 => std::thread::yield_now(),
            _ => {}
        }
    }
}
