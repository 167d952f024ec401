//! The connections of one I/O thread, by slot.
//!
//! A slot is reused with a new generation, so that an answer for an ended connection never reaches
//! the next connection in its slot. A slot holds the small state that an idle reader needs; the
//! rest is in a box that exists only while it has content.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use serde::{Deserialize, Serialize};

use crate::bucket::Bucket;
use crate::closing::AfterGoodbye;
use crate::control::Settings;
use crate::deflate::Agreement;
use crate::frame::Decoder;
use crate::head::Framing;
use crate::outbox::{Limits, Outbox};

/// A connection's place in its life cycle: Head → Open → Closing; it can vanish in each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    Free,
    /// The head of its request is not complete yet.
    Head,
    /// A reader.
    Open,
    /// A goodbye is being sent: ours, or the answer to the reader's.
    Closing(AfterGoodbye),
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ReaderSlot {
    /// Socket of the connection; the slot owns it.
    #[serde(skip)]
    pub fd: RawFd,
    /// Number of earlier uses of the slot.
    pub generation: u32,
    pub phase: Phase,
    /// Format of the messages' content.
    pub framing: Framing,
    pub deflate: Option<Agreement>,
    /// True while bytes wait to be written: later bytes must queue behind them.
    #[serde(skip)]
    pub blocked: bool,
    /// True if the kernel is set to wake this thread later than at the first byte.
    pub low_water: bool,
    /// Time at which a byte was last received, in units of [`RECEIVED_UNIT_MS`] of the thread's
    /// clock.
    pub last_received: u32,
    pub bucket: Bucket,
    pub decoder: Decoder,
    /// State that an idle reader doesn't have.
    pub busy: Option<Box<BusyState>>,
}

impl ReaderSlot {
    pub fn outbox_bytes(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.outbox.pending_bytes())
    }

    /// Free the memory that an idle connection doesn't need.
    pub fn free_if_idle(&mut self) {
        if self.busy.as_ref().is_some_and(|busy| busy.is_empty()) {
            self.busy = None;
        }
    }
}

/// Milliseconds in one unit of [`ReaderSlot::last_received`].
pub const RECEIVED_UNIT_MS: u64 = 64;

/// An entry in a reader's queue behind a verb that isn't answered yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    Verb(Box<[u8]>),
    /// The answer to verbs that were beyond the reader's rate.
    Refusal,
    /// The end of a reader that went on after too many refusals.
    HangUp,
}

/// State of a connection that is busy.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BusyState {
    #[serde(skip)]
    pub outbox: Outbox,
    /// Time at which the reader last took a frame, or at which the first began to wait.
    #[serde(skip)]
    pub taken_ms: u64,
    /// Time at which the first waiting frame began to wait; 0 if unknown.
    #[serde(skip)]
    pub behind_since_ms: u64,
    /// The verb that the control plane has to answer.
    pub asked: Option<Box<[u8]>>,
    /// The entries behind that verb.
    pub waiting: VecDeque<Waiting>,
    /// Bytes of the waiting verbs.
    #[serde(skip)]
    pub waiting_bytes: usize,
    /// The newest unanswered ping: it alone needs an answer (RFC 6455 section 5.5.3).
    pub ping: Option<Box<[u8]>>,
    /// The reader's address according to the proxy in front.
    pub proxied: Option<SocketAddr>,
}

impl BusyState {
    /// Return whether this state can be dropped.
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
    connections: Vec<ReaderSlot>,
    free: Vec<u32>,
}

impl Slab {
    /// Return a slot for a new connection with this socket.
    pub fn insert(&mut self, fd: RawFd) -> u32 {
        let Some(slot) = self.free.pop() else {
            return self.append(fresh(fd, 0));
        };
        *self.at(slot) = fresh(fd, self.at(slot).generation);
        slot
    }

    /// Add a connection in a slot that never existed, as a take-over does slot by slot.
    pub fn append(&mut self, connection: ReaderSlot) -> u32 {
        self.connections.push(connection);
        (self.connections.len() - 1) as u32
    }

    /// Add a free slot with the generation for its next connection.
    pub fn append_free(&mut self, generation: u32) {
        let free = ReaderSlot { phase: Phase::Free, ..fresh(-1, generation) };
        let slot = self.append(free);
        self.free.push(slot);
    }

    /// Free a slot; the caller has closed or passed on its socket.
    pub fn remove(&mut self, slot: u32) {
        let generation = self.connections[slot as usize].generation;
        self.connections[slot as usize] =
            ReaderSlot { phase: Phase::Free, ..fresh(-1, generation.wrapping_add(1)) };
        self.free.push(slot);
    }

    /// Return the connection of a slot.
    ///
    /// # Panics
    /// Panics if there never was such a slot. For a slot named by others, use [`Slab::find`].
    pub fn at(&mut self, slot: u32) -> &mut ReaderSlot {
        &mut self.connections[slot as usize]
    }

    pub fn find(&mut self, slot: u32, generation: u32) -> Option<&mut ReaderSlot> {
        self.connections
            .get_mut(slot as usize)
            .filter(|one| one.generation == generation && one.phase != Phase::Free)
    }

    /// Return the busy state of a connection; an idle connection gets it by this call.
    pub fn busy_state(&mut self, slot: u32, settings: &Settings) -> &mut BusyState {
        let limits = Limits::of(settings);
        self.at(slot).busy.get_or_insert_with(|| {
            Box::new(BusyState { outbox: Outbox::new(limits), ..BusyState::default() })
        })
    }

    /// Return the number of slots, free ones included.
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

/// Return a connection whose request is awaited.
pub fn fresh(fd: RawFd, generation: u32) -> ReaderSlot {
    ReaderSlot {
        fd,
        generation,
        phase: Phase::Head,
        framing: Framing::Raw,
        deflate: None,
        blocked: false,
        low_water: false,
        last_received: 0,
        bucket: Bucket::full(&Settings::default(), 0),
        decoder: Decoder::default(),
        busy: None,
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
        assert!(size_of::<ReaderSlot>() <= 48, "{}", size_of::<ReaderSlot>());
    }
}
