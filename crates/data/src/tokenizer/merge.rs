//! Byte-pair merging of one word: the pair of lowest rank first, the leftmost of equals, until none is
//! left. A heap of candidates keeps long words (a line of a thousand dashes) from going quadratic.

use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What two neighbours become, and how early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge {
    pub(super) rank: u32,
    pub(super) id: u32,
}

/// The merges of a vocabulary by the ids of the pair.
pub(super) type MergeTable = HashMap<(u32, u32), Merge>;

/// No symbol before the first or after the last.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    previous: u32,
    next: u32,
}

/// Buffers of [`Merger::merge`], kept between words.
#[derive(Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    /// Rank, place of the left symbol, and the pair as it was when pushed: a pair that has changed since
    /// is stale and skipped.
    candidates: BinaryHeap<Reverse<(u32, u32, u32, u32)>>,
}

impl Merger {
    /// Appends to `out` what the symbols `ids` merge to.
    pub(super) fn merge(&mut self, ids: impl Iterator<Item = u32>, table: &MergeTable, out: &mut Vec<u32>) {
        self.start(ids);
        for left in 0..self.symbols.len().saturating_sub(1) {
            self.propose(left as u32, table);
        }
        while let Some(Reverse((_, left, left_id, right_id))) = self.candidates.pop() {
            self.join(left, left_id, right_id, table);
        }
        let mut at = if self.symbols.is_empty() { NONE } else { 0 };
        while at != NONE {
            let symbol = self.symbols[at as usize];
            out.push(symbol.id);
            at = symbol.next;
        }
    }

    fn start(&mut self, ids: impl Iterator<Item = u32>) {
        self.symbols.clear();
        self.candidates.clear();
        for (at, id) in ids.enumerate() {
            let at = at as u32;
            self.symbols.push(Symbol { id, previous: at.wrapping_sub(1), next: at + 1 });
        }
        if let Some(last) = self.symbols.last_mut() {
            last.next = NONE;
        }
    }

    fn propose(&mut self, left: u32, table: &MergeTable) {
        let symbol = self.symbols[left as usize];
        if symbol.next == NONE {
            return;
        }
        let right_id = self.symbols[symbol.next as usize].id;
        if let Some(merge) = table.get(&(symbol.id, right_id)) {
            self.candidates.push(Reverse((merge.rank, left, symbol.id, right_id)));
        }
    }

    fn join(&mut self, left: u32, left_id: u32, right_id: u32, table: &MergeTable) {
        let Symbol { id, previous, next } = self.symbols[left as usize];
        // A symbol that was swallowed by its left neighbour keeps the id NONE and matches no candidate.
        if id != left_id || next == NONE || self.symbols[next as usize].id != right_id {
            return;
        }
        let Some(merge) = table.get(&(left_id, right_id)) else { return };
        let after = self.symbols[next as usize].next;
        self.symbols[next as usize].id = NONE;
        self.symbols[left as usize] = Symbol { id: merge.id, previous, next: after };
        if after != NONE {
            self.symbols[after as usize].previous = left;
            self.propose(left, table);
        }
        if previous != NONE {
            self.propose(previous, table);
        }
    }
}
