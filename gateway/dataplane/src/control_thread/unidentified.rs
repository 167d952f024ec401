//! Those that have connected and not said yet what they are.
//!
//! Nobody is displaced by a connection alone: whoever opens the socket and says nothing, or
//! nonsense, is forgotten without a word to the control plane that is attached.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;

use rustix::net::accept_with;

use super::link::Link;
use super::{ControlThread, LISTENER, UNIDENTIFIED};
use crate::control::{self, Command, Event, Malformed};
use crate::sys;

/// More at once are not waited for: the first of them goes.
const MOST: usize = 8;
const GREETING_MS: u64 = 5_000;
/// No greeting is longer.
const GREETING_BYTES: usize = 64;

/// Who isn't anybody yet, by the number of its arrival.
#[derive(Default)]
pub(super) struct UnidentifiedPeers {
    all: BTreeMap<u64, Peer>,
    came: u64,
}

struct Peer {
    link: Link,
    until_ms: u64,
}

/// What a peer has turned out to be.
enum Greeting {
    /// It hasn't said all of it.
    Unfinished,
    /// It speaks our version.
    ControlPlane,
    /// It reads states up to this format.
    DataPlane(u16),
}

impl UnidentifiedPeers {
    fn add(&mut self, link: Link, now_ms: u64) -> u64 {
        if self.all.len() == MOST {
            self.all.pop_first();
        }
        self.came += 1;
        let token = UNIDENTIFIED + self.came;
        self.all.insert(token, Peer { link, until_ms: now_ms + GREETING_MS });
        token
    }

    /// Those that have said nothing for too long go.
    pub(super) fn forget_silent(&mut self, now_ms: u64) {
        self.all.retain(|_, one| one.until_ms > now_ms);
    }
}

impl ControlThread {
    pub(super) fn accept(&mut self) {
        let socket = match accept_with(&self.listener, sys::NONBLOCKING) {
            Ok(socket) => socket,
            Err(error) if sys::exhausted(error) => {
                // Who stands before the listener would wake us without end.
                self.listener_paused = self.epoll.remove(self.listener.as_raw_fd()).is_ok();
                return;
            }
            Err(_) => return,
        };
        let (fd, now_ms) = (socket.as_raw_fd(), self.now_ms());
        let token = self.unidentified.add(Link::new(socket), now_ms);
        if self.epoll.add(fd, sys::READ, token).is_err() {
            self.unidentified.all.remove(&token);
        }
    }

    /// Try again, if it was shut.
    pub(super) fn resume_listener(&mut self) {
        if self.listener_paused {
            self.listener_paused =
                self.epoll.add(self.listener.as_raw_fd(), sys::READ, LISTENER).is_err();
        }
    }

    pub(super) fn on_unidentified(&mut self, token: u64, buffer: &mut [u8]) {
        let Some(mut peer) = self.unidentified.all.remove(&token) else {
            return;
        };
        if peer.link.receive(buffer).is_err() {
            return;
        }
        match greeting(&mut peer.link) {
            Ok(Greeting::Unfinished) => _ = self.unidentified.all.insert(token, peer),
            Ok(Greeting::ControlPlane) => self.attach(peer.link),
            Ok(Greeting::DataPlane(format)) => {
                // It has an epoll set of its own while it lasts.
                let _ = self.epoll.remove(peer.link.fd());
                self.give_to(peer.link, format);
            }
            Err(malformed) => {
                peer.link.say(&Event::Refused(&malformed.to_string()));
                // One that doesn't read has no use for it.
                let _ = peer.link.flush();
            }
        }
    }
}

/// Who it is. What follows the greeting stays.
fn greeting(link: &mut Link) -> Result<Greeting, Malformed> {
    let Some((kind, body, used)) = control::split(&link.incoming)? else {
        let too_long = link.incoming.len() > GREETING_BYTES;
        return if too_long { Err(Malformed::Length) } else { Ok(Greeting::Unfinished) };
    };
    let greeting = match Command::decode(kind, body)? {
        Command::Hello { version: control::VERSION } => Greeting::ControlPlane,
        Command::TakeOver { version: control::TAKE_OVER_VERSION, format } => {
            Greeting::DataPlane(format)
        }
        Command::Hello { .. } | Command::TakeOver { .. } => {
            return Err(Malformed::Value("version"));
        }
        _ => return Err(Malformed::Value("hello, which comes first and once")),
    };
    link.incoming.drain(..used);
    Ok(greeting)
}
