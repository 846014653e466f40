//! The board: who has arrived where, which messages are under way, who waits for whom.

use super::call::{Call, Operand};
use crate::{CommError, Route, Signature, Wait};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// A rank that has published its operand and waits for the rest of its group.
pub(super) struct Arrival {
    pub signature: Signature,
    pub members: Arc<[usize]>,
    pub operand: Operand,
}

/// Where a rank stands towards collectives.
pub(super) enum Stage {
    Outside,
    /// May still withdraw.
    Arrived(Arrival),
    /// May not: all have arrived and its operand is in use.
    Started(Arc<Call>),
}

/// What the board says of a rank.
pub(super) struct Seat {
    pub stage: Stage,
    pub wait: Option<(Wait, Instant)>,
    pub has_finished: bool,
}

/// Messages of one route, in the order they were sent. A tag may be used again once both
/// ends are done with it, and the sender may be a step ahead.
pub(super) struct Letters<M> {
    under_way: VecDeque<M>,
    sent: u64,
    posted: u64,
    is_send_open: bool,
    is_receive_open: bool,
}

/// The first failure.
pub(super) struct Poison {
    pub culprit: usize,
    pub words: String,
    pub since: Instant,
}

pub(super) struct Board<M> {
    pub seats: Vec<Seat>,
    pub poison: Option<Poison>,
    mail: HashMap<Route, Letters<M>>,
}

impl<M> Board<M> {
    pub fn new(ranks: usize) -> Self {
        let seat = || Seat { stage: Stage::Outside, wait: None, has_finished: false };
        Self { seats: (0..ranks).map(|_| seat()).collect(), poison: None, mail: HashMap::new() }
    }

    pub fn check_poison(&self, rank: usize) -> Result<(), CommError> {
        match &self.poison {
            None => Ok(()),
            Some(Poison { culprit, words, .. }) => {
                Err(CommError::Poisoned { rank, culprit: *culprit, words: words.clone() })
            }
        }
    }

    // ---- collectives ----

    /// A rank that is in another collective which cannot go on without this one.
    pub fn clash(&self, rank: usize, signature: &Signature, members: &[usize]) -> Option<(usize, Signature)> {
        members.iter().find_map(|&other| match &self.seats[other].stage {
            Stage::Arrived(there) if there.signature != *signature && there.members.contains(&rank) => {
                Some((other, there.signature))
            }
            _ => None,
        })
    }

    /// Starts the call if all have arrived: from here on nobody withdraws.
    pub fn start(&mut self, signature: &Signature, members: &[usize]) -> Option<Arc<Call>> {
        let operands = members.iter().map(|&rank| self.arrived(rank, signature)).collect::<Option<Vec<_>>>()?;
        let call = Arc::new(Call::new(*signature, operands));
        for &rank in members {
            self.seats[rank].stage = Stage::Started(call.clone());
        }
        Some(call)
    }

    /// Equal signatures mean the same call: a rank has one group of each name.
    fn arrived(&self, rank: usize, signature: &Signature) -> Option<Operand> {
        match &self.seats[rank].stage {
            Stage::Arrived(there) if there.signature == *signature => Some(there.operand),
            _ => None,
        }
    }

    /// Takes the rank into its started call.
    pub fn take_started(&mut self, rank: usize) -> Option<Arc<Call>> {
        let stage = &mut self.seats[rank].stage;
        let Stage::Started(call) = stage else { return None };
        let call = call.clone();
        *stage = Stage::Outside;
        Some(call)
    }

    // ---- messages; `Err` says what the program did wrong ----

    pub fn post(&mut self, route: Route) -> Result<(), &'static str> {
        let letters = self.mail.entry(route).or_insert_with(Letters::new);
        if std::mem::replace(&mut letters.is_receive_open, true) {
            return Err("the receive was posted twice");
        }
        letters.posted += 1;
        Ok(())
    }

    pub fn send(&mut self, route: Route, message: M) -> Result<(), &'static str> {
        let letters = self.mail.entry(route).or_insert_with(Letters::new);
        if std::mem::replace(&mut letters.is_send_open, true) {
            return Err("it was sent twice");
        }
        letters.sent += 1;
        letters.under_way.push_back(message);
        Ok(())
    }

    pub fn check_posted(&self, route: &Route) -> Result<(), &'static str> {
        let is_open = self.mail.get(route).is_some_and(|letters| letters.is_receive_open);
        if is_open { Ok(()) } else { Err("its receive is waited for but was not posted") }
    }

    pub fn check_sent(&self, route: &Route) -> Result<(), &'static str> {
        let is_open = self.mail.get(route).is_some_and(|letters| letters.is_send_open);
        if is_open { Ok(()) } else { Err("its send is waited for but was not started") }
    }

    /// The message, if it is there.
    pub fn take(&mut self, route: &Route) -> Option<M> {
        let letters = self.mail.get_mut(route)?;
        let message = letters.under_way.pop_front()?;
        letters.is_receive_open = false;
        self.forget_if_done(route);
        Some(message)
    }

    pub fn is_receive_posted(&self, route: &Route) -> bool {
        self.mail.get(route).is_some_and(|letters| letters.posted >= letters.sent)
    }

    pub fn close_send(&mut self, route: &Route) {
        if let Some(letters) = self.mail.get_mut(route) {
            letters.is_send_open = false;
        }
        self.forget_if_done(route);
    }

    fn forget_if_done(&mut self, route: &Route) {
        let is_done = |l: &Letters<M>| l.under_way.is_empty() && !l.is_send_open && !l.is_receive_open;
        if self.mail.get(route).is_some_and(is_done) {
            self.mail.remove(route);
        }
    }

    // ---- who waits for whom ----

    /// The ranks without whose doing this rank's wait cannot end; empty if it is about to.
    pub fn blockers(&self, rank: usize) -> Vec<usize> {
        match (&self.seats[rank].wait, &self.seats[rank].stage) {
            (Some((Wait::Collective(_), _)), Stage::Arrived(here)) => {
                let is_missing = |&other: &usize| self.arrived(other, &here.signature).is_none();
                here.members.iter().copied().filter(is_missing).collect()
            }
            (Some((Wait::Receive(route), _)), _) => {
                let is_here = self.mail.get(route).is_some_and(|letters| !letters.under_way.is_empty());
                if is_here { vec![] } else { vec![route.from] }
            }
            (Some((Wait::Send(route), _)), _) if !self.is_receive_posted(route) => vec![route.to],
            _ => vec![],
        }
    }

    /// Why this rank's wait can never end: ranks that wait for each other in a circle, or
    /// one that has finished. Exact, since nothing but its blockers ends a wait.
    pub fn dead_end(&self, rank: usize) -> Option<String> {
        let blockers = self.blockers(rank);
        if let Some(gone) = blockers.iter().find(|&&other| self.seats[other].has_finished) {
            return Some(format!("rank {rank} waits for rank {gone}, which has finished"));
        }
        let mut circle = vec![rank];
        let mut seen = vec![false; self.seats.len()];
        let is_closed = blockers.iter().any(|&next| self.leads_to(next, rank, &mut seen, &mut circle));
        is_closed.then(|| format!("ranks {circle:?} wait for each other in a circle"))
    }

    fn leads_to(&self, from: usize, goal: usize, seen: &mut [bool], path: &mut Vec<usize>) -> bool {
        if from == goal {
            return true;
        }
        if std::mem::replace(&mut seen[from], true) {
            return false;
        }
        path.push(from);
        if self.blockers(from).iter().any(|&next| self.leads_to(next, goal, seen, path)) {
            return true;
        }
        path.pop();
        false
    }
}

impl<M> Letters<M> {
    fn new() -> Self {
        Self { under_way: VecDeque::new(), sent: 0, posted: 0, is_send_open: false, is_receive_open: false }
    }
}
