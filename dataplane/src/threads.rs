//! The I/O threads and the control thread: the messages between them, and the state that they
//! share.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::addresses::{Addresses, ProbeRounds};
use crate::control::{ConnectionId, Settings, Text, ThreadOptions};
use crate::counters::Counters;
use crate::mailbox::Mailbox;
use crate::ping::ControlLiveness;
use crate::publication::Publication;
use crate::sys;
use crate::take_over::Attempt;

/// An order to an I/O thread. A thread carries out its orders one after the other.
#[derive(Debug, Clone)]
pub enum Order {
    Settings(Arc<Settings>),
    /// A control plane has attached, with this number: unanswered verbs are sent again.
    Attached(u32),
    Detached,
    Publish(u64, Arc<Publication>),
    /// Messages under a number, for `subscribe` commands to many readers.
    Batch(u64, Batch),
    /// A command to connections, some of them of this thread: its type, and its body, which is well
    /// formed.
    Command(u8, Arc<[u8]>),
    Evict(Arc<Eviction>),
    /// Send readers away, evenly over so many ms, but at most so many per second.
    Drain(u32, u32),
    /// Send so many readers away for this reason; they retry within so many ms.
    Shed(Arc<str>, u32, u32),
    SendState(Arc<Attempt>),
}

/// Messages of one topic, oldest first, shared by all threads.
pub type Batch = Arc<[Arc<Publication>]>;

/// A command `evict`: the users whose connections are closed.
#[derive(Debug)]
pub struct Eviction {
    pub reason: String,
    /// Latest time of issue of the logins to close, by user; in ms since the epoch.
    pub users: HashMap<String, u64>,
}

/// A report of an I/O thread.
#[derive(Debug)]
pub enum Report {
    /// A verb in this attachment: connection, blob of the auth state (or empty), text.
    Verb(u32, ConnectionId, Text, Text),
    /// Fan-outs up to a number of an attachment are over: attachment, thread, number.
    Published(u32, u16, u64),
    /// This address has no room; its connections are asked for a sign of life.
    Full(IpAddr),
    /// True if all was given in this attempt of a take-over; false after a failure.
    StateSent(u32, bool),
    Ended,
}

/// Data sent with the socket of a connection that is handed over to the control thread.
#[derive(Serialize, Deserialize)]
pub struct Handover {
    pub address: IpAddr,
    /// True if the connection is counted under its address as open here.
    pub counted: bool,
}

/// State that all threads share.
#[derive(Clone)]
pub struct Common {
    pub reports: Arc<Mailbox<Report>>,
    /// Counters of each I/O thread.
    pub counters: Arc<[Arc<Counters>]>,
    /// Time at which the control plane was last heard from.
    pub liveness: Arc<ControlLiveness>,
    pub addresses: Arc<Addresses>,
    pub rounds: Arc<ProbeRounds>,
    pub options: ThreadOptions,
}

/// The parts from which one I/O thread is built.
pub struct ThreadParts {
    pub number: u16,
    pub orders: Arc<Mailbox<Order>>,
    /// The end into which the thread writes sockets for the control thread.
    pub handovers: OwnedFd,
    pub common: Common,
}

/// The I/O threads, seen from the control thread.
pub struct Threads {
    pub orders: Vec<Arc<Mailbox<Order>>>,
    /// Orders of this turn, by thread: a thread that gets several at once can coalesce them.
    pub pending: Vec<Vec<Order>>,
    /// The ends from which the control thread reads those sockets.
    pub handovers: Vec<OwnedFd>,
    pub common: Common,
    /// Ports of the listeners.
    pub ports: Vec<u16>,
}

impl Threads {
    /// Return the threads for listeners on `ports`, not yet running, and the parts of each.
    pub fn new(options: ThreadOptions, ports: Vec<u16>) -> io::Result<(Threads, Vec<ThreadParts>)> {
        let common = Common {
            reports: Arc::new(Mailbox::new()?),
            counters: (0..options.threads).map(|_| Arc::default()).collect(),
            liveness: Arc::default(),
            addresses: Arc::default(),
            rounds: Arc::default(),
            options,
        };
        let (orders, pending, handovers) = (Vec::new(), Vec::new(), Vec::new());
        let mut threads = Threads { orders, pending, handovers, common, ports };
        let mut parts = Vec::new();
        for number in 0..options.threads {
            let orders = Arc::new(Mailbox::new()?);
            let (end, handovers) = sys::packet_pair()?;
            threads.orders.push(orders.clone());
            threads.pending.push(Vec::new());
            threads.handovers.push(end);
            parts.push(ThreadParts { number, orders, handovers, common: threads.common.clone() });
        }
        Ok((threads, parts))
    }

    /// Queue an order for all threads, until [`Threads::deliver`].
    pub fn queue_for_all(&mut self, order: &Order) {
        for pending in &mut self.pending {
            pending.push(order.clone());
        }
    }

    /// Deliver the orders of this turn to the threads.
    pub fn flush_orders(&mut self) {
        for (mailbox, pending) in self.orders.iter().zip(&mut self.pending) {
            mailbox.put_all(pending);
        }
    }

    pub fn readers(&self) -> u32 {
        self.common.counters.iter().map(|one| one.readers()).sum::<u64>() as u32
    }
}
