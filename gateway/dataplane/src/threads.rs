//! The I/O threads and the thread that talks to the control plane: what passes between them, and what
//! they share.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::addresses::{Addresses, Rounds};
use crate::control::{ConnectionId, Settings, Text, ThreadOptions};
use crate::counters::Counters;
use crate::mailbox::Mailbox;
use crate::ping::Pulse;
use crate::publication::Publication;
use crate::sys;
use crate::take_over::Attempt;

/// What an I/O thread has to do. Orders are carried out one after the other.
#[derive(Debug, Clone)]
pub enum Order {
    Settings(Arc<Settings>),
    /// A control plane is there; verbs that are not answered yet are sent again. Counts from 1.
    Attached(u32),
    Detached,
    Publish(u64, Arc<Publication>),
    /// Messages that many readers will be given, by this number.
    Batch(u64, Batch),
    /// A command to connections, some of which are this thread's: its type and its body, which is well
    /// formed.
    Command(u8, Arc<[u8]>),
    Evict(Arc<Eviction>),
    /// Send readers away: over so many ms, but no more than so many a second.
    Drain(u32, u32),
    /// Send so many readers away for this reason, to come again within so many ms.
    Shed(Arc<str>, u32, u32),
    GiveAll(Arc<Attempt>),
}

/// Messages of one topic, oldest first, shared by all threads.
pub type Batch = Arc<[Arc<Publication>]>;

/// Who has to go.
#[derive(Debug)]
pub struct Eviction {
    pub reason: String,
    /// By user: when their logins were issued at the latest, ms since the epoch.
    pub users: HashMap<String, u64>,
}

/// What an I/O thread reports.
#[derive(Debug)]
pub enum Report {
    /// A reader's auth state (its blob; empty for an anonymous one) and verb, in this attachment.
    Verb(u32, ConnectionId, Text, Text),
    /// All fan-outs of this thread are over up to a number of this attachment.
    Published(u32, u16, u64),
    /// There is no room for another connection of this address, and those that it has are asked.
    Full(IpAddr),
    /// Everything was given in this attempt of a newer data plane, or couldn't be.
    Given(u32, bool),
    Ended,
}

/// What goes with a connection that is handed over to the thread that talks to the control plane.
#[derive(Serialize, Deserialize)]
pub struct Handover {
    pub address: IpAddr,
    /// Whether it is counted here.
    pub counted: bool,
}

/// What all threads have.
#[derive(Clone)]
pub struct Common {
    pub reports: Arc<Mailbox<Report>>,
    /// What each I/O thread counts.
    pub counters: Arc<[Arc<Counters>]>,
    /// When the control plane was last heard.
    pub pulse: Arc<Pulse>,
    pub addresses: Arc<Addresses>,
    pub rounds: Arc<Rounds>,
    pub options: ThreadOptions,
}

/// What one I/O thread is made of, before it runs.
pub struct ThreadParts {
    pub number: u16,
    pub orders: Arc<Mailbox<Order>>,
    /// Takes descriptors to the thread that talks to the control plane.
    pub handovers: OwnedFd,
    pub common: Common,
}

/// The I/O threads, seen from the thread that talks to the control plane.
pub struct Threads {
    pub orders: Vec<Arc<Mailbox<Order>>>,
    /// Orders of this turn, by thread: a thread that gets several at once can coalesce them.
    pub pending: Vec<Vec<Order>>,
    /// Descriptors come out here.
    pub handovers: Vec<OwnedFd>,
    pub common: Common,
    /// Ports of their listeners.
    pub ports: Vec<u16>,
}

impl Threads {
    /// Threads that don't run yet, for listeners on `ports`, and what each of them is made of.
    pub fn new(options: ThreadOptions, ports: Vec<u16>) -> io::Result<(Threads, Vec<ThreadParts>)> {
        let common = Common {
            reports: Arc::new(Mailbox::new()?),
            counters: (0..options.threads).map(|_| Arc::default()).collect(),
            pulse: Arc::default(),
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

    /// All threads have this to do, when it is delivered.
    pub fn tell(&mut self, order: &Order) {
        for pending in &mut self.pending {
            pending.push(order.clone());
        }
    }

    /// Have them do what they were told in this turn.
    pub fn deliver(&mut self) {
        for (mailbox, pending) in self.orders.iter().zip(&mut self.pending) {
            mailbox.put_all(pending);
        }
    }

    pub fn readers(&self) -> u32 {
        self.common.counters.iter().map(|one| one.readers()).sum::<u64>() as u32
    }
}
