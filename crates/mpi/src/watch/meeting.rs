//! How ranks find rank 0.

use super::guest::Guest;
use super::hub::Hub;
use super::wire::{Answer, Line, Word};
use super::{LOOK, Tell, Watch};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A host of a cluster answers within milliseconds; an address that leads nowhere, never.
const CONNECT: Duration = Duration::from_secs(3);
/// How often all addresses are tried: the first host may be too busy to answer.
const TRIES: usize = 3;

/// What a rank needs to know to find rank 0; it travels over MPI.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Invitation {
    key: String,
    port: u16,
    addresses: Vec<IpAddr>,
    host: String,
}

/// Rank 0, listening.
pub(crate) struct Meeting {
    listener: TcpListener,
    key: String,
}

impl Meeting {
    pub fn open(host: &str) -> io::Result<(Self, Invitation)> {
        let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
        let listener = TcpListener::bind(&any.map(|address| SocketAddr::new(address, 0))[..])?;
        listener.set_nonblocking(true)?;
        let key = key();
        let port = listener.local_addr()?.port();
        let invitation = Invitation { key: key.clone(), port, addresses: addresses(), host: host.to_owned() };
        Ok((Self { listener, key }, invitation))
    }

    /// Starts to watch the other ranks.
    pub fn start(self, ranks: usize, host: String, tell: Tell) -> io::Result<Arc<Watch>> {
        let watch = Watch::new();
        let hub = Hub::new(watch.clone(), self.listener, self.key, ranks, host);
        std::thread::Builder::new().name("henge-watch".to_owned()).spawn(move || hub.run(tell))?;
        Ok(watch)
    }
}

/// Joins rank 0; `tell` where this process speaks for its host when rank 0 cannot.
pub(crate) fn join(
    invitation: &Invitation,
    rank: usize,
    host: String,
    tell: Option<Tell>,
) -> Result<Arc<Watch>, String> {
    let Invitation { key, port, addresses, .. } = invitation;
    let mut refusals = vec![];
    for _ in 0..TRIES {
        refusals.clear();
        for &address in addresses {
            let hello = Word::Hello { key: key.clone(), rank, host: host.clone() };
            match greet(SocketAddr::new(address, *port), &hello, key) {
                Ok(line) => {
                    let watch = Watch::new();
                    let guest = Guest::new(watch.clone(), line, invitation.host.clone());
                    let thread = std::thread::Builder::new().name("henge-watch".to_owned());
                    thread.spawn(move || guest.run(tell)).map_err(|error| format!("no thread: {error}"))?;
                    return Ok(watch);
                }
                Err(error) => refusals.push(format!("{address}: {error}")),
            }
        }
    }
    Err(format!(
        "{host} finds no way to rank 0 on {} by TCP, by which ranks watch each other ({}); open the ports between the \
         hosts, or bring the interface up (`ip link set lo up` for ranks of one host)",
        invitation.host,
        refusals.join("; ")
    ))
}

/// Says hello and waits for the answer.
fn greet(address: SocketAddr, hello: &Word, key: &str) -> io::Result<Line> {
    let mut line = Line::new(TcpStream::connect_timeout(&address, CONNECT)?)?;
    line.say(hello);
    let begun = Instant::now();
    while begun.elapsed() < CONNECT && !line.is_closed() {
        line.flush();
        match line.hear::<Answer>().into_iter().next() {
            Some(Answer::Welcome { key: theirs }) if theirs == key => return Ok(line),
            Some(_) => return Err(io::Error::other("another program answers there")),
            None => {}
        }
        std::thread::sleep(LOOK / 10);
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"))
}

/// Where this host can be reached; the loopback last, which only its own ranks reach.
fn addresses() -> Vec<IpAddr> {
    let all = getifaddrs().into_iter().flatten().filter(|found| found.flags.contains(InterfaceFlags::IFF_UP));
    let mut addresses: Vec<IpAddr> = all.filter_map(|found| address_of(&found.address?)).collect();
    addresses.retain(|address| !address.is_loopback() && !is_link_local(address));
    addresses.push(Ipv4Addr::LOCALHOST.into());
    addresses
}

fn address_of(found: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let four = found.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
    four.or_else(|| found.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
}

/// Reachable only with the name of an interface of the caller's.
fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

/// Told apart from other jobs' and from strays: the seed is the system's.
fn key() -> String {
    let half = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", half(), half())
}
