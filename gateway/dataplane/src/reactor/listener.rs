//! Where readers come in on one thread: open, closed, or closed for a moment.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::LISTENER;
use crate::sys::{self, Epoll};

/// So long nobody is accepted when descriptors or memory ran out.
const PAUSE_MS: u64 = 500;

/// A listening socket, and whether epoll watches it.
pub(super) struct Listener {
    socket: OwnedFd,
    is_open: bool,
    /// When it is opened again; 0 if it isn't paused.
    again_ms: u64,
}

impl Listener {
    /// Not watched yet.
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
            // It can only fail when it isn't there.
            let _ = epoll.remove(self.fd());
            self.is_open = false;
        }
    }

    pub(super) fn pause(&mut self, epoll: &Epoll, now_ms: u64) {
        self.close(epoll);
        self.again_ms = now_ms + PAUSE_MS;
    }

    /// A pause is over, whether it opens now or, in a drain, never.
    pub(super) fn end_pause(&mut self) {
        self.again_ms = 0;
    }

    /// When a pause is over; `None` if there is none.
    pub(super) fn opens_in_ms(&self, now_ms: u64) -> Option<u64> {
        (self.again_ms > 0).then(|| self.again_ms.saturating_sub(now_ms))
    }
}
