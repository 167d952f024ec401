//! Readers' sockets in one epoll set, and sends that are made together.

use std::io;
use std::os::fd::RawFd;

use crate::slab::ReaderSlot;
use crate::sys::{self, Epoll, Errno, EventFlags, MOST_SENDS, Send, Sender};

/// The sockets of one I/O thread.
pub(crate) struct Sockets {
    pub(crate) epoll: Epoll,
    sender: Sender,
    /// Connections that could not be written, by slot and generation: they end after the turn, when
    /// no code uses them.
    pub(super) broken: Vec<(u32, u32)>,
}

impl Sockets {
    pub(super) fn new() -> io::Result<Sockets> {
        Ok(Sockets { epoll: Epoll::new()?, sender: Sender::default(), broken: Vec::new() })
    }

    /// Send in batches from now on, or return why this kernel can't. Call it on the sending thread.
    pub(crate) fn begin_batches(&mut self) -> Option<io::Error> {
        let (sender, why) = Sender::new();
        self.sender = sender;
        why
    }

    /// Watch this connection's socket: for reading, and for writing while it is blocked.
    pub(super) fn add(&self, slot: u32, connection: &ReaderSlot) -> Result<(), Errno> {
        self.epoll.add(connection.fd, interest(connection), token(slot, connection))
    }

    /// Watch for other events after `blocked` has changed.
    pub(super) fn update(&self, slot: u32, connection: &ReaderSlot) -> Result<(), Errno> {
        self.epoll.modify(connection.fd, interest(connection), token(slot, connection))
    }

    /// Send `bytes`; return the number that the kernel takes. `None` if the peer is gone, which the
    /// end of the turn handles.
    pub(super) fn send(
        &mut self,
        slot: u32,
        connection: &mut ReaderSlot,
        bytes: &[u8],
    ) -> Option<usize> {
        self.taken(slot, connection, sys::send(connection.fd, bytes))
    }

    /// Return the same for a send that was tried.
    pub(super) fn taken(
        &mut self,
        slot: u32,
        connection: &mut ReaderSlot,
        taken: Result<usize, Errno>,
    ) -> Option<usize> {
        match taken {
            Ok(sent) => Some(sent),
            // A lack of memory counts as a full socket: EPOLLOUT follows.
            Err(error) if error == Errno::AGAIN || sys::exhausted(error) => Some(0),
            Err(_) => {
                // Write no more, and end it later: the caller may be iterating over readers.
                connection.blocked = true;
                self.end_after_turn(slot, connection);
                None
            }
        }
    }

    /// End a connection after the turn: the caller may still use it.
    pub(super) fn end_after_turn(&mut self, slot: u32, connection: &ReaderSlot) {
        self.broken.push((slot, connection.generation));
    }

    /// Make all sends of `offers`; return each with its result.
    pub(super) fn make<'a>(
        &mut self,
        mut offers: Offers<'a>,
    ) -> impl Iterator<Item = Send<'a>> + use<'a> {
        self.sender.send(&mut offers.sends[..offers.count]);
        offers.sends.into_iter().take(offers.count)
    }
}

fn interest(connection: &ReaderSlot) -> EventFlags {
    if connection.blocked { sys::READ | sys::WRITE } else { sys::READ }
}

/// Return the token for epoll: the slot in the lower half, its generation in the upper.
fn token(slot: u32, connection: &ReaderSlot) -> u64 {
    u64::from(connection.generation) << 32 | u64::from(slot)
}

/// Bytes for up to [`MOST_SENDS`] readers, to be sent together.
pub(super) struct Offers<'a> {
    sends: [Send<'a>; MOST_SENDS],
    count: usize,
}

impl Default for Offers<'_> {
    fn default() -> Self {
        Offers { sends: [Send::new(-1, 0, &[]); MOST_SENDS], count: 0 }
    }
}

impl<'a> Offers<'a> {
    /// Add a send; there must be room.
    pub(super) fn add(&mut self, slot: u32, fd: RawFd, bytes: &'a [u8]) {
        self.sends[self.count] = Send::new(fd, slot, bytes);
        self.count += 1;
    }
}
