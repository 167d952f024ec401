//! Readers' sockets in one epoll set, and the sends that go out together.

use std::io;
use std::os::fd::RawFd;

use crate::slab::Connection;
use crate::sys::{self, Epoll, Errno, EventFlags, MOST_SENDS, Send, Sender};

/// The sockets of one I/O thread.
pub(crate) struct Sockets {
    pub(crate) epoll: Epoll,
    sender: Sender,
    /// Those that could not be written, by slot and generation: they end after the turn, when nobody is using them.
    pub(super) broken: Vec<(u32, u32)>,
}

impl Sockets {
    pub(super) fn new() -> io::Result<Sockets> {
        Ok(Sockets { epoll: Epoll::new()?, sender: Sender::default(), broken: Vec::new() })
    }

    /// Send in batches from now on if this kernel can; why it can't. On the thread that will send.
    pub(crate) fn begin_batches(&mut self) -> Option<io::Error> {
        let (sender, why) = Sender::new();
        self.sender = sender;
        why
    }

    /// Be woken by this connection's socket: to read, and to write while it is blocked.
    pub(super) fn add(&self, slot: u32, connection: &Connection) -> Result<(), Errno> {
        self.epoll.add(connection.fd, interest(connection), token(slot, connection))
    }

    /// The same after `blocked` has changed.
    pub(super) fn update(&self, slot: u32, connection: &Connection) -> Result<(), Errno> {
        self.epoll.modify(connection.fd, interest(connection), token(slot, connection))
    }

    /// How much the kernel takes of `bytes`; `None` if the peer is gone, which the end of the turn
    /// deals with.
    pub(super) fn send(
        &mut self,
        slot: u32,
        connection: &mut Connection,
        bytes: &[u8],
    ) -> Option<usize> {
        self.taken(slot, connection, sys::send(connection.fd, bytes))
    }

    /// The same, of a send that was tried.
    pub(super) fn taken(
        &mut self,
        slot: u32,
        connection: &mut Connection,
        taken: Result<usize, Errno>,
    ) -> Option<usize> {
        match taken {
            Ok(sent) => Some(sent),
            // Out of memory for now is as good as full: EPOLLOUT comes back.
            Err(error) if error == Errno::AGAIN || sys::exhausted(error) => Some(0),
            Err(_) => {
                // No more is written; whoever is iterating over readers isn't disturbed.
                connection.blocked = true;
                self.end_after_turn(slot, connection);
                None
            }
        }
    }

    /// Not now: whoever called may still be looking at the connection.
    pub(super) fn end_after_turn(&mut self, slot: u32, connection: &Connection) {
        self.broken.push((slot, connection.generation));
    }

    /// Make all `offers`: each with what came of it.
    pub(super) fn make<'a>(
        &mut self,
        mut offers: Offers<'a>,
    ) -> impl Iterator<Item = Send<'a>> + use<'a> {
        self.sender.send(&mut offers.sends[..offers.count]);
        offers.sends.into_iter().take(offers.count)
    }
}

fn interest(connection: &Connection) -> EventFlags {
    if connection.blocked { sys::READ | sys::WRITE } else { sys::READ }
}

/// What epoll gives back: the slot in the lower half, its generation in the upper.
fn token(slot: u32, connection: &Connection) -> u64 {
    u64::from(connection.generation) << 32 | u64::from(slot)
}

/// What up to [`MOST_SENDS`] readers are to be sent at once.
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
    /// One more; there must be room.
    pub(super) fn add(&mut self, slot: u32, fd: RawFd, bytes: &'a [u8]) {
        self.sends[self.count] = Send::new(fd, slot, bytes);
        self.count += 1;
    }
}
