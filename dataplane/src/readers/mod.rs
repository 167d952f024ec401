//! The readers of one I/O thread: connections, subscriptions, and outboxes.
//!
//! A connection begins as a request's head, about which the reactor decides; from [`Readers::open`]
//! to its end it is served here. Not here: the order of a turn, and orders that aren't about single
//! readers. Those are in [`crate::reactor`].
//!
//! The decision to question: writing, closing and asking verbs are one structure, not layers. Each
//! can lead to the others: a push that finds an outbox full closes the reader, and room for writing
//! lets the next verb be asked. If one of them were deferred, the others would see a state in
//! between.

mod answers;
mod budget;
mod delivery;
mod probes;
mod reading;
mod restoring;
mod saving;
mod sockets;
mod timers;
mod verbs;
mod writing;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use crate::addresses::Addresses;
use crate::auth::AuthStates;
use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::closing::{AfterGoodbye, LOST};
use crate::control::Settings;
use crate::counters::{Count, Counters};
use crate::fanout::{Chunk, Fanout};
use crate::head::{Framing, Upgrade};
use crate::hub::Hub;
use crate::mailbox::Mailbox;
use crate::publication::FrameMaker;
use crate::slab::{BusyState, Phase, RECEIVED_UNIT_MS, Slab};
use crate::sys;
use crate::threads::{Batch, Report, ThreadParts};
use crate::wheel::Wheel;

use budget::Budget;
use probes::Probes;
use reading::Input;
use sockets::Sockets;
use verbs::VerbQueues;

pub use restoring::Restoring;

/// Precision of timers. It also gathers heartbeats: the longer, the fewer turns per idle reader.
const TICK_MS: u32 = 100;
/// With the tick, one turn of the wheel is longer than a usual heartbeat.
const BUCKETS: u16 = 512;

/// Time for which a report waits for others while readers go on talking, and number of reports that
/// ends the wait. So the verbs of a crowd are asked and answered many at a time.
const GATHER_MS: u64 = 2;
const GATHER: usize = 256;

/// All connections of one I/O thread. The reactor uses the fields that are `pub`, too.
pub struct Readers {
    thread: u16,
    echo: bool,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    /// The counters of all threads.
    pub(crate) all_counters: Arc<[Arc<Counters>]>,
    pub(crate) slab: Slab,
    pub(crate) wheel: Wheel,
    pub(crate) sockets: Sockets,
    budget: Budget,
    hub: Hub,
    pub(crate) fanout: Fanout,
    /// The chunk being sent; kept to reuse its memory.
    chunk: Chunk,
    maker: FrameMaker,
    /// The last frame that several readers were answered with, by framing.
    shared_last: [Option<Weak<[u8]>>; 2],
    auth: AuthStates,
    pub(crate) addresses: Arc<Addresses>,
    /// Addresses of the counted connections, by slot.
    pub(crate) counted: HashMap<u32, IpAddr>,
    /// Slots of connections that only get the answer that their address has no room.
    pub(crate) turned_away: HashSet<u32>,
    probes: Probes,
    /// Batches to which `subscribe` commands can refer, the newest at the end.
    batches: VecDeque<(u64, Batch)>,
    verbs: VerbQueues,
    pub(crate) reports: Reports,
    pub(crate) input: Input,
    /// Readers that get a heartbeat now; kept to reuse its memory.
    heartbeats: Vec<u32>,
}

impl Readers {
    /// Return a thread's readers, none yet. The clock continues from `now_ms`.
    pub fn new(parts: &ThreadParts, settings: Arc<Settings>, now_ms: u64) -> io::Result<Readers> {
        let common = &parts.common;
        let all_counters = common.counters.clone();
        let threads = all_counters.len();
        let mut readers = Readers {
            thread: parts.number,
            echo: common.options.echo,
            clock: Clock::new(now_ms),
            slab: Slab::default(),
            wheel: Wheel::new(now_ms, TICK_MS, BUCKETS),
            sockets: Sockets::new()?,
            budget: Budget::new(),
            hub: Hub::new(0, 0),
            fanout: Fanout::default(),
            chunk: Chunk::default(),
            maker: FrameMaker::default(),
            shared_last: Default::default(),
            auth: AuthStates::default(),
            addresses: common.addresses.clone(),
            counted: HashMap::new(),
            turned_away: HashSet::new(),
            probes: Probes::new(common.rounds.clone()),
            batches: VecDeque::new(),
            verbs: VerbQueues::new(common.liveness.clone(), threads),
            reports: Reports::new(common.reports.clone()),
            input: Input::new(),
            heartbeats: Vec::new(),
            settings: settings.clone(),
            counters: all_counters[usize::from(parts.number)].clone(),
            all_counters,
        };
        readers.apply_settings(settings);
        Ok(readers)
    }

    /// Apply other settings from now on.
    pub(crate) fn apply_settings(&mut self, settings: Arc<Settings>) {
        self.hub.seen.window_ms = settings.identity_ms.into();
        self.hub.seen.limit = settings.identities as usize;
        self.maker = FrameMaker::new(&settings);
        self.budget.set_share(settings.outbox_bytes, self.all_counters.len());
        self.settings = settings;
    }

    /// Return the phase of a connection named by epoll or the control plane; `None` if it is gone.
    pub(crate) fn phase_of(&mut self, slot: u32, generation: u32) -> Option<Phase> {
        self.slab.find(slot, generation).map(|connection| connection.phase)
    }

    pub(crate) fn busy_state(&mut self, slot: u32) -> &mut BusyState {
        self.slab.busy_state(slot, &self.settings)
    }

    /// Return a slot for a socket whose request is awaited.
    pub(crate) fn insert(&mut self, fd: i32) -> u32 {
        self.counters.add(Count::Accepts);
        let slot = self.slab.insert(fd);
        self.note_connections();
        slot
    }

    /// Have epoll watch the connection's socket.
    pub(crate) fn watch(&mut self, slot: u32) -> io::Result<()> {
        Ok(self.sockets.add(slot, self.slab.at(slot))?)
    }

    /// Make a connection an open reader, whose first heartbeat is due at `first_ms`.
    pub(crate) fn open(&mut self, slot: u32, upgrade: &Upgrade<'_>, first_ms: u64) {
        let now_ms = self.clock.now_ms();
        let connection = self.slab.at(slot);
        connection.phase = Phase::Open;
        connection.framing = upgrade.framing;
        connection.deflate = upgrade.deflate;
        connection.last_received = (now_ms / RECEIVED_UNIT_MS) as u32;
        connection.bucket = Bucket::full(&self.settings, now_ms as u32);
        connection.busy = None;
        self.wheel.set(slot, first_ms);
        let (readers, connects) = match upgrade.framing {
            Framing::Raw => (Count::ReadersWebSocket, Count::ConnectsWebSocket),
            Framing::SockJs => (Count::ReadersSockJs, Count::ConnectsSockJs),
        };
        self.counters.add(readers);
        self.counters.add(connects);
    }

    /// Forget a connection whose transport is gone; if it was open, it counts as lost.
    pub(crate) fn on_lost(&mut self, slot: u32) {
        if self.slab.at(slot).phase == Phase::Open {
            self.unregister(slot, LOST, AfterGoodbye::HangUp);
        }
        self.close_and_free(slot);
    }

    /// Remove an open connection from the hub and from the number of readers; count it in
    /// `closes.LABEL`.
    fn unregister(&mut self, slot: u32, label: &str, ending: AfterGoodbye) {
        self.hub.audience.leave(slot);
        self.auth.remove(slot);
        let connection = self.slab.at(slot);
        connection.phase = Phase::Closing(ending);
        if let Some(busy) = connection.busy.as_deref_mut() {
            self.verbs.drop_all(busy);
            busy.ping = None;
        }
        self.counters.decrement(match connection.framing {
            Framing::Raw => Count::ReadersWebSocket,
            Framing::SockJs => Count::ReadersSockJs,
        });
        self.counters.closed(label);
        self.counters.add(Count::Closing);
    }

    /// Close the socket and free the slot.
    pub(crate) fn close_and_free(&mut self, slot: u32) {
        let connection = self.slab.at(slot);
        sys::close(connection.fd);
        if matches!(connection.phase, Phase::Closing(_)) {
            self.counters.decrement(Count::Closing);
        }
        if let Some(busy) = &connection.busy {
            busy.outbox.remove_from_account(&mut self.budget.account);
        }
        if let Some(address) = self.counted.remove(&slot) {
            self.addresses.leave(address);
        }
        self.turned_away.remove(&slot);
        self.probes.forget(slot);
        self.wheel.cancel(slot);
        self.slab.remove(slot);
        self.note_connections();
    }

    /// End connections whose sockets failed during other work.
    pub(crate) fn end_failed(&mut self) {
        while let Some((slot, generation)) = self.sockets.broken.pop() {
            if self.slab.find(slot, generation).is_some() {
                self.on_lost(slot);
            }
        }
    }

    /// Queue a report, which is sent at the end of a turn in which it is due.
    pub(crate) fn report(&mut self, report: Report) {
        self.reports.add(report, self.clock.now_ms());
    }

    fn note_connections(&self) {
        self.counters.connections.store(self.slab.len() as u64, Relaxed);
    }

    pub(crate) fn note_sizes(&mut self) {
        self.counters.set(Count::Identities, self.hub.seen.len());
        self.counters.set(Count::HeldBytes, self.verbs.held_bytes);
        self.counters.set(Count::OutboxBytes, self.budget.account.bytes());
        self.counters.set(Count::EvictedEarly, self.hub.seen.evicted_early as usize);
    }
}

/// Reports on their way to the control thread.
pub(crate) struct Reports {
    to: Arc<Mailbox<Report>>,
    waiting: Vec<Report>,
    since_ms: u64,
}

impl Reports {
    pub(super) fn new(to: Arc<Mailbox<Report>>) -> Reports {
        Reports { to, waiting: Vec::new(), since_ms: 0 }
    }

    pub(super) fn add(&mut self, report: Report, now_ms: u64) {
        if self.waiting.is_empty() {
            self.since_ms = now_ms;
        }
        self.waiting.push(report);
    }

    pub(crate) fn are_due(&self, now_ms: u64) -> bool {
        self.waiting.len() >= GATHER || now_ms >= self.since_ms + GATHER_MS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn send(&mut self) {
        self.to.put_all(&mut self.waiting);
    }
}
