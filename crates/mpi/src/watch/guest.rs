//! The thread of every other rank.

use super::judge::{Seen, death, silence};
use super::wire::{Answer, Line, Word};
use super::{LOOK, Rounds, Standing, Tell, Verdict, Watch};
use nix::poll::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Guest {
    watch: Arc<Watch>,
    line: Line,
    /// Rank 0.
    first: Seen,
    has_said_failed: bool,
    has_said_finishing: bool,
}

/// What ends the watch.
enum End {
    Finished,
    Verdict(Verdict),
    /// Rank 0 is lost: nobody else tells.
    Alone(Verdict),
}

impl Guest {
    pub fn new(watch: Arc<Watch>, line: Line, host: String) -> Self {
        Self { watch, line, first: Seen::new(host), has_said_failed: false, has_said_finishing: false }
    }

    pub fn run(mut self, tell: Option<Tell>) {
        let mut rounds = Rounds::new();
        let end = loop {
            self.rest();
            self.first.heard += rounds.held_up();
            if let Some(end) = self.listen() {
                break end;
            }
            self.speak(rounds.is_beat());
        };
        match end {
            End::Finished => {
                self.watch.finished();
                self.watch.end_if_it_lingers();
            }
            End::Verdict(verdict) => self.watch.rule(verdict, None),
            End::Alone(verdict) => self.watch.rule(verdict, tell),
        }
    }

    fn rest(&self) {
        let mut one = [PollFd::new(self.line.as_fd(), PollFlags::POLLIN)];
        if poll(&mut one, LOOK.as_millis() as u16).is_err() {
            std::thread::sleep(LOOK);
        }
    }

    fn listen(&mut self) -> Option<End> {
        for answer in self.line.hear() {
            self.first.heard = Instant::now();
            match answer {
                Answer::Standing(standing) => self.first.standing = standing,
                Answer::Verdict(verdict) => return Some(End::Verdict(verdict)),
                Answer::Finished => return Some(End::Finished),
                Answer::Welcome { .. } => {}
            }
        }
        let limit = self.watch.silence();
        let words = match () {
            () if self.line.is_closed() => death(0, &self.first),
            () if self.first.heard.elapsed() > limit => silence(0, &self.first, limit),
            () => return None,
        };
        Some(End::Alone(Verdict { culprits: vec![0], status: 1, words }))
    }

    fn speak(&mut self, is_beat: bool) {
        let standing: Standing = self.watch.standing();
        let failed = self.watch.state().failed.clone().filter(|_| !self.has_said_failed);
        if let Some(failed) = failed {
            self.has_said_failed = true;
            self.line.say(&Word::Failed(failed, standing));
        } else if is_beat && !self.line.is_behind() {
            self.line.say(&Word::Standing(standing));
        }
        if !self.has_said_finishing && self.watch.state().finishing {
            self.has_said_finishing = true;
            self.line.say(&Word::Finishing);
        }
        self.line.flush();
    }
}
