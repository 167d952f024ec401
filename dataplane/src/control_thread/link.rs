//! A connected control socket: bytes in, messages and descriptors out.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Instant;

use crate::control::Event;
use crate::sys::{self, Errno};

/// Maximum number of sent bytes for which the rest of the buffer isn't moved.
const KEPT_BYTES: usize = 256 * 1024;

/// An end of the control protocol. It makes no decisions.
pub(super) struct ControlLink {
    socket: OwnedFd,
    /// Received bytes that weren't decoded yet.
    pub(super) incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Number of bytes of `outgoing` that were sent.
    sent: usize,
    /// Waiting descriptors, each with the position of its message in `outgoing`.
    descriptors: VecDeque<(usize, OwnedFd)>,
}

impl ControlLink {
    pub(super) fn new(socket: OwnedFd) -> ControlLink {
        ControlLink {
            socket,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            descriptors: VecDeque::new(),
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Receive the available bytes; the error is the reason why no more can arrive.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<(), String> {
        match sys::receive(self.fd(), buffer) {
            Ok(0) => Err("it hung up".to_owned()),
            Ok(count) => {
                self.incoming.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn queue(&mut self, event: &Event<'_>) {
        event.encode(&mut self.outgoing);
    }

    /// Queue an event with a descriptor.
    pub(super) fn queue_with_descriptor(&mut self, event: &Event<'_>, descriptor: OwnedFd) {
        self.descriptors.push_back((self.outgoing.len(), descriptor));
        self.queue(event);
    }

    pub(super) fn waiting(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    pub(super) fn waiting_descriptors(&self) -> impl ExactSizeIterator<Item = &OwnedFd> {
        self.descriptors.iter().map(|(_, descriptor)| descriptor)
    }

    /// Send as many bytes as the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.outgoing.len() {
            // A descriptor is sent with its message's first byte, so a write ends before the next.
            let mut waiting = self.descriptors.iter().peekable();
            let carried = waiting.next_if(|(at, _)| *at == self.sent);
            let end = waiting.peek().map_or(self.outgoing.len(), |(at, _)| *at);
            let bytes = &self.outgoing[self.sent..end];
            let sent = match carried {
                Some((_, passed)) => sys::send_descriptor(self.fd(), bytes, passed.as_raw_fd()),
                None => sys::send(self.fd(), bytes),
            };
            match sent {
                Ok(count) => {
                    if carried.is_some() {
                        self.descriptors.pop_front();
                    }
                    self.sent += count;
                }
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.compact();
        Ok(())
    }

    /// Send all bytes, and wait for room until `deadline`.
    pub(super) fn flush_until(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            self.flush()?;
            if self.waiting() == 0 {
                return Ok(());
            }
            sys::wait_until(deadline, self.fd(), true)?;
        }
    }

    fn compact(&mut self) {
        if self.sent == self.outgoing.len() || self.sent > KEPT_BYTES {
            self.outgoing.drain(..self.sent);
            for (at, _) in &mut self.descriptors {
                *at -= self.sent;
            }
            self.sent = 0;
        }
    }
}
