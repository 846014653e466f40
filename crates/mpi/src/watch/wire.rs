//! What goes over a line: JSON, one message a line.

use super::{Failed, Standing, Verdict};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// What a rank says to rank 0.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// The first word; the key tells ranks of this job from anyone else.
    Hello {
        key: String,
        rank: usize,
        host: String,
    },
    Standing(Standing),
    Failed(Failed, Standing),
    Finishing,
}

/// What rank 0 says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// To the first word: this is the job's rank 0, and no other that listens there.
    Welcome {
        key: String,
    },
    /// Where rank 0 stands.
    Standing(Standing),
    Verdict(Verdict),
    /// All ranks are at their ends.
    Finished,
}

/// No message is longer; who sends more is no rank of ours.
const LONGEST: usize = 1 << 20;

/// A line to another process.
pub(super) struct Line {
    stream: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    is_closed: bool,
}

impl Line {
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, inbox: vec![], outbox: vec![], is_closed: false })
    }

    /// Whether the other end is gone and all that it said was heard.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What an end that no longer reads leaves unsent.
    pub fn is_behind(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Says a word, as far as the line takes it now; the rest goes with the next.
    pub fn say(&mut self, word: &impl Serialize) {
        let text = serde_json::to_vec(word).expect("words and numbers have a form in JSON");
        self.outbox.extend(text);
        self.outbox.push(b'\n');
        self.flush();
    }

    pub fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A broken line shows when it is read.
                Err(_) => return,
            }
        }
    }

    /// What has come, in its order.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Vec<T> {
        self.read();
        let mut words = vec![];
        while let Some(end) = self.inbox.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.inbox.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(word) => words.push(word),
                // No rank of this job says that.
                Err(_) => self.is_closed = true,
            }
        }
        words
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        while !self.is_closed {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.is_closed = true,
                Ok(count) => self.inbox.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_closed = true,
            }
            self.is_closed |= self.inbox.len() > LONGEST;
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
