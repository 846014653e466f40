//! What ranks wait for, in words.

use crate::{Signature, Tag};
use std::fmt;

/// Whose message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Sender.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// Name.
    pub tag: Tag,
}

/// What a rank waits for.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// For the rest of a group.
    Collective(Signature),
    /// For the message.
    Receive(Route),
    /// For its receive to be posted.
    Send(Route),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collective(signature) => write!(f, "{signature}"),
            Self::Receive(Route { from, tag, .. }) => write!(f, "{tag} from rank {from}"),
            Self::Send(Route { to, tag, .. }) => write!(f, "rank {to} to post its receive of {tag}"),
        }
    }
}
