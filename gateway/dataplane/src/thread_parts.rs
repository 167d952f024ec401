//! What an I/O thread is made of, before it runs.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use crate::addresses::Addresses;
use crate::counters::Counters;
use crate::mailbox::Mailbox;
use crate::orders::{Order, Report};
use crate::ping::Pulse;

/// Its own ends of what it shares with the other threads.
pub struct ThreadParts {
    /// Its number.
    pub number: u16,
    /// Orders to it.
    pub orders: Arc<Mailbox<Order>>,
    /// Reports of all threads.
    pub reports: Arc<Mailbox<Report>>,
    /// Takes descriptors to the thread that talks to the control plane.
    pub handovers: OwnedFd,
    /// Its counters, and everybody else's.
    pub counters: Arc<Vec<Counters>>,
    /// When the control plane was last heard.
    pub pulse: Arc<Pulse>,
    /// Connections by address, of all threads.
    pub addresses: Arc<Addresses>,
    /// Whether connections begin with a PROXY header.
    pub proxied: bool,
    /// Whether messages are sent back instead of being verbs; for tests of the framing.
    pub echo: bool,
}

impl ThreadParts {
    /// The descriptors that it shares with the thread that talks to the control plane.
    pub fn shared_descriptors(&self) -> [RawFd; 2] {
        [self.orders.fd(), self.reports.fd()]
    }
}
