//! Peers that have connected to the control socket and haven't identified themselves yet.
//!
//! A connection alone displaces no control plane: a peer that sends nothing, or nonsense, is
//! dropped, and the attached control plane doesn't notice.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;

use rustix::net::accept_with;

use super::link::ControlLink;
use super::{ControlThread, LISTENER, UNIDENTIFIED};
use crate::control::{self, Command, Event, Malformed};
use crate::sys;

/// Maximum number of unidentified peers: one more, and the oldest is dropped.
const MOST: usize = 8;
const GREETING_MS: u64 = 5_000;
/// Maximum bytes of a greeting.
const GREETING_BYTES: usize = 64;

/// Unidentified peers, by the order of their arrival.
#[derive(Default)]
pub(super) struct UnidentifiedPeers {
    all: BTreeMap<u64, UnidentifiedPeer>,
    arrivals: u64,
}

struct UnidentifiedPeer {
    link: ControlLink,
    until_ms: u64,
}

/// The first message of a peer.
enum Greeting {
    /// Not received completely.
    Unfinished,
    /// `hello` in our version.
    ControlPlane,
    /// `take_over` by a data plane that reads states up to this format.
    DataPlane(u16),
}

impl UnidentifiedPeers {
    fn add(&mut self, link: ControlLink, now_ms: u64) -> u64 {
        if self.all.len() == MOST {
            self.all.pop_first();
        }
        self.arrivals += 1;
        let token = UNIDENTIFIED + self.arrivals;
        self.all.insert(token, UnidentifiedPeer { link, until_ms: now_ms + GREETING_MS });
        token
    }

    /// Drop peers that haven't identified themselves in time.
    pub(super) fn drop_expired(&mut self, now_ms: u64) {
        self.all.retain(|_, one| one.until_ms > now_ms);
    }
}

impl ControlThread {
    pub(super) fn accept(&mut self) {
        let socket = match accept_with(&self.listener, sys::NONBLOCKING) {
            Ok(socket) => socket,
            Err(error) if sys::exhausted(error) => {
                // Connections in the listener's backlog would wake us without end.
                self.listener_paused = self.epoll.remove(self.listener.as_raw_fd()).is_ok();
                return;
            }
            Err(_) => return,
        };
        let (fd, now_ms) = (socket.as_raw_fd(), self.now_ms());
        let token = self.unidentified.add(ControlLink::new(socket), now_ms);
        if self.epoll.add(fd, sys::READ, token).is_err() {
            self.unidentified.all.remove(&token);
        }
    }

    /// Watch the listener again, if it was paused.
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
                // `take_over_by` watches it in an epoll set of its own.
                let _ = self.epoll.remove(peer.link.fd());
                self.take_over_by(peer.link, format);
            }
            Err(malformed) => {
                peer.link.queue(&Event::Refused { why: &malformed.to_string() });
                // A peer that doesn't read doesn't need the reason.
                let _ = peer.link.flush();
            }
        }
    }
}

/// Read the first message of a peer. Later bytes stay in the link.
fn greeting(link: &mut ControlLink) -> Result<Greeting, Malformed> {
    let Some((kind, body, used)) = control::split(&link.incoming)? else {
        let too_long = link.incoming.len() > GREETING_BYTES;
        return if too_long { Err(Malformed::Length) } else { Ok(Greeting::Unfinished) };
    };
    let greeting = match Command::decode(kind, body)? {
        Command::Hello { version: control::VERSION, .. } => Greeting::ControlPlane,
        Command::TakeOver { version: control::TAKE_OVER_VERSION, format, .. } => {
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
