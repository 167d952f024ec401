//! The connections of one I/O thread, by slot.
//!
//! A slot is used again, with another generation, so that an answer for a connection that is gone
//! never reaches the next one in its place. What an idle reader needs is small and lies in the slot;
//! the rest is in a box that exists only while there is something in it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use serde::{Deserialize, Serialize};

use crate::bucket::Bucket;
use crate::closing::Ending;
use crate::control::Settings;
use crate::deflate::Agreement;
use crate::frame::Decoder;
use crate::head::Framing;
use crate::outbox::{Limits, Outbox};

/// Where a connection is in its life: Head → Open → Closing, and from each of them it can vanish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    Free,
    /// A request's head is awaited.
    Head,
    /// A reader.
    Open,
    /// A goodbye is on its way, ours or the answer to the reader's.
    Closing(Ending),
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Its socket; the slot owns it.
    #[serde(skip)]
    pub fd: RawFd,
    /// How often the slot was used before.
    pub generation: u32,
    pub phase: Phase,
    /// What is inside the messages.
    pub framing: Framing,
    pub deflate: Option<Agreement>,
    /// Whether something waits to be written, so that nothing may be written past it.
    #[serde(skip)]
    pub blocked: bool,
    /// Whether the kernel was told to wake us later than at the first byte.
    pub low_water: bool,
    /// When something was last heard, in [`HEARD_MS`] since the thread started.
    pub heard: u32,
    pub bucket: Bucket,
    pub decoder: Decoder,
    /// What an idle reader doesn't have.
    pub extra: Option<Box<Extra>>,
}

impl Connection {
    pub fn outbox_bytes(&self) -> usize {
        self.extra.as_ref().map_or(0, |extra| extra.outbox.pending_bytes())
    }

    /// Give back what an idle connection doesn't need.
    pub fn shrink(&mut self) {
        if self.extra.as_ref().is_some_and(|extra| extra.is_empty()) {
            self.extra = None;
        }
    }
}

/// The unit of [`Connection::heard`].
pub const HEARD_MS: u64 = 64;

/// What stands in a reader's line while an earlier verb isn't answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    Verb(Box<[u8]>),
    /// The answer to verbs that came too soon after others.
    Refusal,
    /// The end of a reader who went on nevertheless.
    HangUp,
}

/// What a connection has while it is busy.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Extra {
    #[serde(skip)]
    pub outbox: Outbox,
    /// When the reader last took some of them, or the first began to wait.
    #[serde(skip)]
    pub taken_ms: u64,
    /// When the first of those that wait began to; 0 if that isn't known.
    #[serde(skip)]
    pub behind_since_ms: u64,
    /// The verb that the control plane is to answer.
    pub asked: Option<Box<[u8]>>,
    /// The verbs after it.
    pub waiting: VecDeque<Waiting>,
    /// Their bytes.
    #[serde(skip)]
    pub waiting_bytes: usize,
    /// RFC 6455 section 5.5.3: of the pings that wait, the most recent is the one to answer.
    pub ping: Option<Box<[u8]>>,
    /// Who the proxy in front says it is.
    pub proxied: Option<SocketAddr>,
}

impl Extra {
    /// Whether it may be thrown away.
    pub fn is_empty(&self) -> bool {
        self.outbox.is_empty()
            && self.asked.is_none()
            && self.waiting.is_empty()
            && self.ping.is_none()
            && self.proxied.is_none()
    }
}

#[derive(Debug, Default)]
pub struct Slab {
    connections: Vec<Connection>,
    free: Vec<u32>,
}

impl Slab {
    /// A slot for a new connection with this socket.
    pub fn insert(&mut self, fd: RawFd) -> u32 {
        let Some(slot) = self.free.pop() else {
            return self.append(fresh(fd, 0));
        };
        *self.at(slot) = fresh(fd, self.at(slot).generation);
        slot
    }

    /// Put a connection into the next slot that never was one, as a take-over does slot by slot.
    pub fn append(&mut self, connection: Connection) -> u32 {
        self.connections.push(connection);
        (self.connections.len() - 1) as u32
    }

    /// A slot that is free, and how often it was used.
    pub fn append_free(&mut self, generation: u32) {
        let free = Connection { phase: Phase::Free, ..fresh(-1, generation) };
        let slot = self.append(free);
        self.free.push(slot);
    }

    /// Free a slot; the caller has closed or passed on the socket.
    pub fn remove(&mut self, slot: u32) {
        let generation = self.connections[slot as usize].generation;
        self.connections[slot as usize] =
            Connection { phase: Phase::Free, ..fresh(-1, generation.wrapping_add(1)) };
        self.free.push(slot);
    }

    /// The slot's connection.
    ///
    /// # Panics
    /// There never was such a slot. Ask [`Slab::find`] about slots that others name.
    pub fn at(&mut self, slot: u32) -> &mut Connection {
        &mut self.connections[slot as usize]
    }

    pub fn find(&mut self, slot: u32, generation: u32) -> Option<&mut Connection> {
        self.connections
            .get_mut(slot as usize)
            .filter(|one| one.generation == generation && one.phase != Phase::Free)
    }

    /// What an idle reader doesn't have; from now on this one has it.
    pub fn extra(&mut self, slot: u32, settings: &Settings) -> &mut Extra {
        let limits = Limits::of(settings);
        self.at(slot).extra.get_or_insert_with(|| {
            Box::new(Extra { outbox: Outbox::new(limits), ..Extra::default() })
        })
    }

    /// How many slots there are, free ones included.
    pub fn slots(&self) -> u32 {
        self.connections.len() as u32
    }

    pub fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A connection whose request is awaited.
pub fn fresh(fd: RawFd, generation: u32) -> Connection {
    Connection {
        fd,
        generation,
        phase: Phase::Head,
        framing: Framing::Raw,
        deflate: None,
        blocked: false,
        low_water: false,
        heard: 0,
        bucket: Bucket::full(&Settings::default(), 0),
        decoder: Decoder::default(),
        extra: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_used_again_is_not_found_by_its_old_name() {
        let mut slab = Slab::default();
        let first = slab.insert(3);
        let generation = slab.at(first).generation;
        slab.remove(first);
        let second = slab.insert(4);
        assert_eq!(first, second);
        assert!(slab.find(first, generation).is_none());
        assert_eq!(slab.find(first, generation + 1).map(|one| one.fd), Some(4));
    }

    #[test]
    fn an_idle_reader_is_small() {
        assert!(size_of::<Connection>() <= 48, "{}", size_of::<Connection>());
    }
}
