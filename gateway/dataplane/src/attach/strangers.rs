//! Those that have connected and not said yet what they are.
//!
//! Nobody is displaced by a connection alone: whoever opens the socket and says nothing, or
//! nonsense, is forgotten without a word to the control plane that is attached.

use std::os::fd::AsRawFd;

use super::link::Link;
use super::{Attachment, DOOR, STRANGERS};
use crate::control::{self, Command, Event, Malformed};
use crate::sys;

/// More at once are not waited for: the first of them goes.
const MOST: usize = 8;
const PATIENCE_MS: u64 = 5_000;
/// No greeting is longer.
const GREETING_BYTES: usize = 64;

/// Who isn't anybody yet, the one that came first in front.
#[derive(Default)]
pub(super) struct Strangers {
    all: Vec<Stranger>,
    came: u64,
}

struct Stranger {
    token: u64,
    link: Link,
    until_ms: u64,
}

/// What a stranger has turned out to be.
enum Greeting {
    /// It hasn't said all of it.
    Unfinished,
    /// It speaks this version.
    ControlPlane(u16),
    /// It reads states up to this format.
    DataPlane(u16),
}

impl Strangers {
    fn add(&mut self, link: Link, now_ms: u64) -> u64 {
        if self.all.len() == MOST {
            self.all.remove(0);
        }
        self.came += 1;
        let token = STRANGERS + self.came;
        self.all.push(Stranger { token, link, until_ms: now_ms + PATIENCE_MS });
        token
    }

    fn take(&mut self, token: u64) -> Option<Stranger> {
        let at = self.all.iter().position(|one| one.token == token)?;
        Some(self.all.remove(at))
    }

    /// Those that have said nothing for too long go.
    pub(super) fn forget_silent(&mut self, now_ms: u64) {
        self.all.retain(|one| one.until_ms > now_ms);
    }
}

impl Attachment {
    /// Somebody has connected.
    pub(super) fn welcome(&mut self) {
        let socket = match sys::accept_unix(self.door.as_raw_fd()) {
            Ok(socket) => socket,
            Err(error) if sys::exhausted(&error) => return self.shut_door(),
            Err(_) => return,
        };
        let (fd, now_ms) = (socket.as_raw_fd(), self.now_ms());
        let token = self.strangers.add(Link::new(socket), now_ms);
        if self.epoll.add(fd, sys::READ, token).is_err() {
            self.strangers.take(token);
        }
    }

    /// Descriptors ran out: who stands before the door would wake us without end.
    fn shut_door(&mut self) {
        self.door_shut = self.epoll.remove(self.door.as_raw_fd()).is_ok();
    }

    /// Try again, if it was shut.
    pub(super) fn open_door(&mut self) {
        if self.door_shut {
            self.door_shut = self.epoll.add(self.door.as_raw_fd(), sys::READ, DOOR).is_err();
        }
    }

    /// A stranger has said something.
    pub(super) fn on_stranger(&mut self, token: u64, buffer: &mut [u8]) {
        let Some(mut stranger) = self.strangers.take(token) else {
            return;
        };
        if stranger.link.receive(buffer).is_err() {
            return;
        }
        match greeting(&mut stranger.link) {
            Ok(Greeting::Unfinished) => self.strangers.all.push(stranger),
            Ok(Greeting::ControlPlane(version)) => self.attach(stranger.link, version),
            Ok(Greeting::DataPlane(format)) => {
                // It has an epoll set of its own while it lasts.
                let _ = self.epoll.remove(stranger.link.fd());
                self.yield_to(stranger.link, format);
            }
            Err(malformed) => {
                stranger.link.say(&Event::Refused(&malformed.to_string()));
                // One that doesn't read has no use for it.
                let _ = stranger.link.flush();
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
        Command::Hello { version: version @ 1..=control::VERSION } => {
            Greeting::ControlPlane(version)
        }
        Command::TakeOver { version: control::PARLEY, format } => Greeting::DataPlane(format),
        Command::Hello { .. } | Command::TakeOver { .. } => {
            return Err(Malformed::Value("version"));
        }
        _ => return Err(Malformed::Value("hello, which comes first and once")),
    };
    link.incoming.drain(..used);
    Ok(greeting)
}
