//! What passes between the thread that talks to the control plane and the I/O threads.

use std::collections::HashMap;
use std::sync::Arc;

use crate::control::ConnectionId;
use crate::policy::Policy;
use crate::publication::Publication;
use crate::take_over::Attempt;

/// What an I/O thread has to do. Orders are carried out one after the other.
#[derive(Debug, Clone)]
pub enum Order {
    /// Other limits.
    Policy(Arc<Policy>),
    /// A control plane is there; verbs that are not answered yet are sent again. Counts from 1.
    Attached(u32),
    /// It has gone; verbs wait.
    Detached,
    /// A message for its topic's readers.
    Publish(u64, Arc<Publication>),
    /// Messages that many readers will be given, by this number.
    Batch(u64, Batch),
    /// A command to one connection of this thread: its type and its body, which is well formed.
    Command(u8, Box<[u8]>),
    /// End the connections of users.
    Evict(Arc<Eviction>),
    /// Send readers away: over so many ms, but no more than so many a second.
    Drain(u32, u32),
    /// Send so many readers away for this reason, to come again within so many ms.
    Shed(Arc<str>, u32, u32),
    /// Give everything to a newer data plane.
    GiveAll(Arc<Attempt>),
}

/// Messages of one topic, oldest first, shared by all threads.
pub type Batch = Arc<[Arc<Publication>]>;

/// Who has to go.
#[derive(Debug)]
pub struct Eviction {
    /// The reason's name.
    pub reason: String,
    /// By user: when their logins were issued at the latest, ms since the epoch.
    pub users: HashMap<String, u64>,
}

/// What an I/O thread reports.
#[derive(Debug)]
pub enum Report {
    /// A reader's auth state (its blob; empty for an anonymous one) and verb, in this attachment.
    Verb(u32, ConnectionId, Box<[u8]>, Box<[u8]>),
    /// All fan-outs of this thread are over up to a number of this attachment.
    Published(u32, u16, u64),
    /// Everything was given in this attempt of a newer data plane, or couldn't be.
    Given(u32, bool),
    /// Drained: the thread has ended.
    Ended,
}
