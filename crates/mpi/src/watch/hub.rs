//! Rank 0's thread.

use super::judge::{Evidence, Seen};
use super::wire::{Answer, Line, Word};
use super::{LOOK, Rounds, Tell, Verdict, Watch};
use nix::poll::{PollFd, PollFlags, poll};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who says nothing for so long after connecting is no rank.
const HELLO: Duration = Duration::from_secs(10);
/// Who was stopped knows for so long after that its view of the others is of no worth.
const AWAY: Duration = Duration::from_secs(5);
/// Time for a verdict to leave this process.
const FAREWELL: Duration = Duration::from_millis(500);

/// A rank that has said hello.
struct Guest {
    line: Line,
    seen: Seen,
    is_finishing: bool,
}

pub(super) struct Hub {
    watch: Arc<Watch>,
    listener: TcpListener,
    key: String,
    /// By rank; there is none at 0.
    guests: Vec<Option<Guest>>,
    strangers: Vec<(Line, Instant)>,
    evidence: Evidence,
    host: String,
    /// When this process went on after it had been stopped.
    was_away: Option<Instant>,
}

impl Hub {
    pub fn new(watch: Arc<Watch>, listener: TcpListener, key: String, ranks: usize, host: String) -> Self {
        let guests = (0..ranks).map(|_| None).collect();
        Self { watch, listener, key, guests, strangers: vec![], evidence: Evidence::default(), host, was_away: None }
    }

    pub fn run(mut self, tell: Tell) {
        let mut rounds = Rounds::new();
        loop {
            self.rest();
            let held_up = rounds.held_up();
            if held_up * 2 > self.watch.silence() {
                self.was_away = Some(Instant::now());
            }
            self.guests_mut().for_each(|(_, guest)| guest.seen.heard += held_up);
            self.welcome();
            self.listen();
            if let Some(verdict) = self.judge() {
                self.send_out(&verdict);
                self.watch.rule(verdict, (!self.is_given_up()).then_some(tell));
            }
            if self.is_finished() {
                break;
            }
            if rounds.is_beat() {
                self.beat();
            }
        }
        self.guests_mut().for_each(|(_, guest)| guest.line.say(&Answer::Finished));
        self.watch.finished();
        self.watch.end_if_it_lingers();
    }

    fn guests_mut(&mut self) -> impl Iterator<Item = (usize, &mut Guest)> {
        self.guests.iter_mut().enumerate().filter_map(|(rank, guest)| Some((rank, guest.as_mut()?)))
    }

    /// Until there is something to hear.
    fn rest(&self) {
        let lines = self.guests.iter().flatten().map(|guest| &guest.line);
        let lines = lines.chain(self.strangers.iter().map(|(line, _)| line)).filter(|line| !line.is_closed());
        let on = |line| PollFd::new(line, PollFlags::POLLIN);
        let mut all: Vec<PollFd<'_>> = lines.map(|line| on(line.as_fd())).collect();
        all.push(on(self.listener.as_fd()));
        // Whatever it says, all lines are looked at next.
        if poll(&mut all, LOOK.as_millis() as u16).is_err() {
            std::thread::sleep(LOOK);
        }
    }

    /// Takes those in who know the key.
    fn welcome(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            self.strangers.extend(Line::new(stream).ok().map(|line| (line, Instant::now())));
        }
        for (mut line, since) in std::mem::take(&mut self.strangers) {
            match line.hear::<Word>().into_iter().next() {
                Some(Word::Hello { key, rank, host }) if key == self.key && self.guests.get(rank).is_some() => {
                    line.say(&Answer::Welcome { key });
                    self.guests[rank] = Some(Guest { line, seen: Seen::new(host), is_finishing: false });
                }
                None if !line.is_closed() && since.elapsed() < HELLO => self.strangers.push((line, since)),
                _ => {}
            }
        }
    }

    fn listen(&mut self) {
        let Self { guests, evidence, watch, host, .. } = self;
        let failed = watch.state().failed.clone();
        if let Some(failed) = failed {
            evidence.failed(0, failed, &Seen { standing: watch.standing(), ..Seen::new(host.clone()) });
        }
        for (rank, guest) in guests.iter_mut().enumerate() {
            let Some(guest) = guest else { continue };
            for word in guest.line.hear() {
                guest.seen.heard = Instant::now();
                match word {
                    Word::Standing(standing) => guest.seen.standing = standing,
                    Word::Failed(failed, standing) => {
                        guest.seen.standing = standing;
                        evidence.failed(rank, failed, &guest.seen);
                    }
                    Word::Finishing => guest.is_finishing = true,
                    Word::Hello { .. } => {}
                }
            }
            if guest.line.is_closed() {
                evidence.died(rank, &guest.seen);
            } else if guest.seen.heard.elapsed() > watch.silence() {
                evidence.silent(rank, &guest.seen, watch.silence());
            }
        }
    }

    fn judge(&self) -> Option<Verdict> {
        let here = Seen { standing: self.watch.standing(), ..Seen::new(self.host.clone()) };
        let others = self.guests.iter().skip(1).map(|guest| guest.as_ref().map(|guest| &guest.seen));
        let all: Vec<Option<&Seen>> = std::iter::once(Some(&here)).chain(others).collect();
        self.evidence.verdict(&all)
    }

    /// A process that was stopped finds the others gone, who have said why.
    fn is_given_up(&self) -> bool {
        self.was_away.is_some_and(|since| since.elapsed() < AWAY)
    }

    fn is_finished(&self) -> bool {
        let others = self.guests.iter().skip(1);
        self.watch.state().finishing && others.into_iter().all(|guest| guest.as_ref().is_some_and(|g| g.is_finishing))
    }

    fn beat(&mut self) {
        let standing = self.watch.standing();
        // One who reads nothing is not sent more and more.
        let reading = self.guests_mut().filter(|(_, guest)| !guest.line.is_behind());
        reading.for_each(|(_, guest)| guest.line.say(&Answer::Standing(standing.clone())));
        self.guests_mut().for_each(|(_, guest)| guest.line.flush());
    }

    fn send_out(&mut self, verdict: &Verdict) {
        let begun = Instant::now();
        self.guests_mut().for_each(|(_, guest)| guest.line.say(&Answer::Verdict(verdict.clone())));
        while begun.elapsed() < FAREWELL && self.guests_mut().any(|(_, guest)| guest.line.is_behind()) {
            std::thread::sleep(LOOK / 10);
            self.guests_mut().for_each(|(_, guest)| guest.line.flush());
        }
    }
}
