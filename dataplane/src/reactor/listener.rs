//! The listening socket of one thread: open, closed, or paused.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::LISTENER;
use crate::sys::{self, Epoll};

/// Time for which no connection is accepted after descriptors or memory ran out.
const PAUSE_MS: u64 = 500;

/// A listening socket, and whether epoll watches it.
pub(super) struct Listener {
    socket: OwnedFd,
    is_open: bool,
    /// Time at which it opens again; 0 if it isn't paused.
    again_ms: u64,
}

impl Listener {
    /// Return a listener that isn't watched yet.
    pub(super) fn new(socket: OwnedFd) -> Listener {
        Listener { socket, is_open: false, again_ms: 0 }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(super) fn open(&mut self, epoll: &Epoll) {
        self.end_pause();
        if !self.is_open {
            self.is_open = epoll.add(self.fd(), sys::READ, LISTENER).is_ok();
        }
    }

    pub(super) fn close(&mut self, epoll: &Epoll) {
        if self.is_open {
            // Removing can only fail if the socket isn't watched.
            let _ = epoll.remove(self.fd());
            self.is_open = false;
        }
    }

    pub(super) fn pause(&mut self, epoll: &Epoll, now_ms: u64) {
        self.close(epoll);
        self.again_ms = now_ms + PAUSE_MS;
    }

    /// End a pause: the listener opens now or, in a drain, never.
    pub(super) fn end_pause(&mut self) {
        self.again_ms = 0;
    }

    /// Return the ms until a pause is over; `None` if there is none.
    pub(super) fn opens_in_ms(&self, now_ms: u64) -> Option<u64> {
        (self.again_ms > 0).then(|| self.again_ms.saturating_sub(now_ms))
    }
}
