//! The I/O threads, seen from the thread that talks to the control plane.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::addresses::Addresses;
use crate::counters::Counters;
use crate::mailbox::Mailbox;
use crate::orders::{Order, Report};
use crate::ping::Pulse;

/// The I/O threads, seen from here.
pub struct Threads {
    /// What each is told.
    pub orders: Vec<Arc<Mailbox<Order>>>,
    /// What all tell.
    pub reports: Arc<Mailbox<Report>>,
    /// Descriptors come out here.
    pub handovers: Vec<OwnedFd>,
    /// What they count.
    pub counters: Arc<Vec<Counters>>,
    /// When the control plane was last heard.
    pub pulse: Arc<Pulse>,
    /// Connections by address.
    pub addresses: Arc<Addresses>,
    /// Ports of the listeners.
    pub ports: Vec<u16>,
    /// Whether connections begin with a PROXY header.
    pub proxied: bool,
    /// Whether messages are sent back.
    pub echo: bool,
    /// Orders of this turn, by thread: a thread that gets several at once can coalesce them.
    pub pending: Vec<Vec<Order>>,
}

impl Threads {
    pub(super) fn tell(&mut self, order: &Order) {
        for pending in &mut self.pending {
            pending.push(order.clone());
        }
    }

    pub(super) fn deliver(&mut self) {
        for (mailbox, pending) in self.orders.iter().zip(&mut self.pending) {
            mailbox.put_all(pending);
        }
    }

    /// How many readers they have.
    pub fn readers(&self) -> u32 {
        self.counters.iter().map(|one| one.readers()).sum::<u64>() as u32
    }
}
