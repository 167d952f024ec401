//! The readers of one I/O thread: their connections, what they are subscribed to and what waits for them.
//!
//! A connection comes as a request's head, which the reactor decides on; from [`Readers::open`] to its end it
//! is served here. Not here: what happens when, and what the control plane's orders are about beside
//! single readers; that is [`crate::reactor`]'s.
//!
//! The decision to question: writing, closing and asking verbs are one structure, not layers. Each can
//! lead to the others (a push that finds an outbox full closes, and room for writing lets the next verb be
//! asked), and deferring one of them would let others see what is between.

mod answers;
mod budget;
mod delivery;
mod reading;
mod restoring;
mod saving;
mod silent;
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
use crate::closing::{Ending, LOST};
use crate::control::Settings;
use crate::counters::{Count, Counters};
use crate::fanout::{Chunk, Fanout};
use crate::head::{Framing, Upgrade};
use crate::hub::Hub;
use crate::mailbox::Mailbox;
use crate::publication::FrameMaker;
use crate::slab::{Extra, HEARD_MS, Phase, Slab};
use crate::sys;
use crate::threads::{Batch, Report, ThreadParts};
use crate::wheel::Wheel;

use budget::Budget;
use reading::Input;
use silent::Silent;
use sockets::Sockets;
use verbs::Verbs;

pub use restoring::Restoring;

/// Also how many heartbeats leave in one go: the longer, the fewer turns for an idle reader.
const TICK_MS: u32 = 100;
/// With the tick, one turn of the wheel is longer than a usual heartbeat.
const BUCKETS: u16 = 512;

/// A report waits so long for others, while readers go on talking, and until there are so many: a
/// crowd's verbs are asked and answered many at a time, instead of a few between two of its readers.
const GATHER_MS: u64 = 2;
const GATHER: usize = 256;

/// All connections of one I/O thread. What is `pub` in it the reactor uses, too.
pub struct Readers {
    thread: u16,
    echo: bool,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    /// Those of all threads.
    pub(crate) all_counters: Arc<[Arc<Counters>]>,
    pub(crate) slab: Slab,
    pub(crate) wheel: Wheel,
    pub(crate) sockets: Sockets,
    budget: Budget,
    hub: Hub,
    pub(crate) fanout: Fanout,
    /// What is being sent; kept for its memory.
    chunk: Chunk,
    maker: FrameMaker,
    /// By framing, what several were answered with last.
    shared_last: [Option<Weak<[u8]>>; 2],
    auth: AuthStates,
    pub(crate) addresses: Arc<Addresses>,
    /// By slot, the addresses of those connections that were counted.
    pub(crate) counted: HashMap<u32, IpAddr>,
    /// Slots of those who are only told that their address has no room.
    pub(crate) turned_away: HashSet<u32>,
    silent: Silent,
    /// What `subscribe`s can refer to, the last that came at the end.
    batches: VecDeque<(u64, Batch)>,
    verbs: Verbs,
    pub(crate) reports: Reports,
    pub(crate) input: Input,
    /// Who is to get a heartbeat; kept for its memory.
    heartbeats: Vec<u32>,
}

impl Readers {
    /// None yet. The clock goes on from `now_ms`.
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
            silent: Silent::new(common.rounds.clone()),
            batches: VecDeque::new(),
            verbs: Verbs::new(common.pulse.clone(), threads),
            reports: Reports::new(common.reports.clone()),
            input: Input::new(),
            heartbeats: Vec::new(),
            settings: settings.clone(),
            counters: all_counters[usize::from(parts.number)].clone(),
            all_counters,
        };
        readers.settle(settings);
        Ok(readers)
    }

    /// Other limits from now on.
    pub(crate) fn settle(&mut self, settings: Arc<Settings>) {
        self.hub.seen.window_ms = settings.identity_ms.into();
        self.hub.seen.limit = settings.identities as usize;
        self.maker = FrameMaker::new(&settings);
        self.budget.set_share(settings.outbox_bytes, self.all_counters.len());
        self.settings = settings;
    }

    /// The phase of the connection that epoll or the control plane names; `None` if it is gone.
    pub(crate) fn phase_of(&mut self, slot: u32, generation: u32) -> Option<Phase> {
        self.slab.find(slot, generation).map(|connection| connection.phase)
    }

    pub(crate) fn extra(&mut self, slot: u32) -> &mut Extra {
        self.slab.extra(slot, &self.settings)
    }

    /// A socket whose request is awaited.
    pub(crate) fn insert(&mut self, fd: i32) -> u32 {
        self.counters.add(Count::Accepts);
        let slot = self.slab.insert(fd);
        self.note_connections();
        slot
    }

    /// Be woken by its socket.
    pub(crate) fn watch(&mut self, slot: u32) -> io::Result<()> {
        Ok(self.sockets.add(slot, self.slab.at(slot))?)
    }

    /// A request has become a reader, whose first heartbeat is due at `first_ms`.
    pub(crate) fn open(&mut self, slot: u32, upgrade: &Upgrade<'_>, first_ms: u64) {
        let now_ms = self.clock.now_ms();
        let connection = self.slab.at(slot);
        connection.phase = Phase::Open;
        connection.framing = upgrade.framing;
        connection.deflate = upgrade.deflate;
        connection.heard = (now_ms / HEARD_MS) as u32;
        connection.bucket = Bucket::full(&self.settings, now_ms as u32);
        connection.extra = None;
        self.wheel.set(slot, first_ms);
        let (readers, connects) = match upgrade.framing {
            Framing::Raw => (Count::ReadersWebSocket, Count::ConnectsWebSocket),
            Framing::SockJs => (Count::ReadersSockJs, Count::ConnectsSockJs),
        };
        self.counters.add(readers);
        self.counters.add(connects);
    }

    /// The transport is gone, and that wasn't our doing unless a goodbye was said.
    pub(crate) fn lose(&mut self, slot: u32) {
        if self.slab.at(slot).phase == Phase::Open {
            self.leave(slot, LOST, Ending::HangUp);
        }
        self.forget(slot);
    }

    /// An open connection leaves the hub. It doesn't count as a reader any more, but among `closes.LABEL`.
    fn leave(&mut self, slot: u32, label: &str, ending: Ending) {
        self.hub.audience.leave(slot);
        self.auth.remove(slot);
        let connection = self.slab.at(slot);
        connection.phase = Phase::Closing(ending);
        if let Some(extra) = connection.extra.as_deref_mut() {
            self.verbs.drop_all(extra);
            extra.ping = None;
        }
        self.counters.take(match connection.framing {
            Framing::Raw => Count::ReadersWebSocket,
            Framing::SockJs => Count::ReadersSockJs,
        });
        self.counters.closed(label);
        self.counters.add(Count::Closing);
    }

    /// Close the socket and free the slot.
    pub(crate) fn forget(&mut self, slot: u32) {
        let connection = self.slab.at(slot);
        sys::close(connection.fd);
        if matches!(connection.phase, Phase::Closing(_)) {
            self.counters.take(Count::Closing);
        }
        if let Some(extra) = &connection.extra {
            extra.outbox.leave(&mut self.budget.account);
        }
        if let Some(address) = self.counted.remove(&slot) {
            self.addresses.leave(address);
        }
        self.turned_away.remove(&slot);
        self.silent.forget(slot);
        self.wheel.cancel(slot);
        self.slab.remove(slot);
        self.note_connections();
    }

    /// End those whose sockets turned out to be broken while something else was under way.
    pub(crate) fn end_broken(&mut self) {
        while let Some((slot, generation)) = self.sockets.broken.pop() {
            if self.slab.find(slot, generation).is_some() {
                self.lose(slot);
            }
        }
    }

    /// Something to report, at the end of a turn.
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

/// Reports on their way to the thread that talks to the control plane.
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
