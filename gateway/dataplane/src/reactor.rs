//! An I/O thread: one epoll loop over its listener, its readers' sockets and its mailbox.
//!
//! It owns everything it touches: connections, its part of the hub, timers. Orders come through the
//! mailbox and are obeyed in their order; that is what puts a subscribe between two publications
//! for everybody. Descriptors are level-triggered: what one turn leaves, the next one finds.
//!
//! The turn is bounded at every step (accepts, events, sends of one fan-out), so that no one makes
//! the others wait. Time is read once a turn.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::badge::Badges;
use crate::control::{ConnectionId, Settings};
use crate::counters::{Count, Counters};
use crate::deflate::Inflater;
use crate::drain::Pace;
use crate::fanout::{Chunk, Fanout};
use crate::frame::Decoder;
use crate::head::Framing;
use crate::hub::Hub;
use crate::mailbox::Mailbox;
use crate::orders::{Batch, Order, Report};
use crate::outbox::Account;
use crate::ping::Pulse;
use crate::policy::Policy;
use crate::publication::FrameMaker;
use crate::slab::{Ending, Extra, HEARD_MS, Phase, Slab};
use crate::sockjs::Texts;
use crate::sys::{self, Epoll, Sender};
use crate::wheel::Wheel;

/// Read at a time. Bigger than any message that may come, so that most come in one piece.
const READ_BYTES: usize = 64 * 1024;
/// Events of one turn.
const EVENTS: usize = 256;
/// Also how many heartbeats leave in one go: the longer, the fewer turns for an idle reader.
const TICK_MS: u32 = 100;
/// Timers that fire in one turn, and while a fan-out is under way: then as many as its chunk has sends.
const BEATS: usize = 128;
const BEATS_BETWEEN: usize = 32;
/// What is told waits so long for more of it, while readers go on talking, and until there is so much:
/// a crowd's verbs are asked and answered many at a time, instead of a few between two of its readers.
const GATHER_MS: u64 = 2;
const GATHER: usize = 256;
/// With the tick, one turn of the wheel is longer than a usual heartbeat.
const BUCKETS: u16 = 512;
/// While draining, readers are told so often.
const DRAIN_STEP_MS: u64 = 50;

const LISTENER: u64 = u64::MAX;
const MAILBOX: u64 = u64::MAX - 1;

/// What a thread is made of, before it runs.
pub struct Parts {
    /// Its number.
    pub number: u16,
    /// What it is told.
    pub orders: Arc<Mailbox<Order>>,
    /// What it tells.
    pub reports: Arc<Mailbox<Report>>,
    /// Takes descriptors to the thread that talks to the control plane.
    pub hatch: OwnedFd,
    /// Its counters, and everybody else's.
    pub counters: Arc<Vec<Counters>>,
    /// When the control plane was last heard.
    pub pulse: Arc<Pulse>,
    /// Connections by address, of all threads.
    pub addresses: Arc<crate::addresses::Addresses>,
    /// Whether connections begin with a PROXY header.
    pub proxied: bool,
    /// Whether messages are sent back instead of being verbs; for tests of the framing.
    pub echo: bool,
}

/// A running thread.
pub struct Reactor {
    pub(crate) parts: Parts,
    /// Where its readers come in.
    pub(crate) listener: OwnedFd,
    pub(crate) epoll: Epoll,
    pub(crate) sender: Sender,
    pub(crate) listening: bool,
    pub(crate) accept_again_ms: u64,
    pub(crate) policy: Arc<Policy>,
    pub(crate) slab: Slab,
    pub(crate) wheel: Wheel,
    pub(crate) hub: Hub,
    pub(crate) fanout: Fanout,
    /// What is being sent; kept for its memory.
    pub(crate) chunk: Chunk,
    pub(crate) maker: FrameMaker,
    /// 0 while no control plane is attached.
    pub(crate) attachment: u32,
    /// What many readers are given; the last that came is the last.
    pub(crate) batches: VecDeque<(u64, Batch)>,
    pub(crate) drain: Option<Pace>,
    /// Where the search for the next reader to be shed goes on.
    shed_from: u32,
    /// Bytes of verbs that wait or are asked, in all connections.
    pub(crate) held_bytes: usize,
    /// What waits in all outboxes.
    pub(crate) account: Account,
    /// As long as that takes no more, nobody has to go for it.
    pub(crate) close_above: usize,
    /// How many more pings of this read are answered one by one.
    pub(crate) pongs: u32,
    /// Whose address was counted.
    pub(crate) counted: HashMap<u32, IpAddr>,
    /// Who readers are.
    pub(crate) badges: Badges,
    /// What there is to tell, and since when.
    told: Vec<Report>,
    told_since_ms: u64,
    /// Sockets that could not be written: they end after the turn, when nobody is using them.
    pub(crate) doomed: Vec<(u32, u32)>,
    pub(crate) buffer: Vec<u8>,
    pub(crate) texts: Texts,
    pub(crate) inflater: Option<Inflater>,
    pub(crate) now_ms: u64,
    /// Whose heartbeats are due; kept for its memory.
    beaten: Vec<u32>,
    /// Whether there are timers that have fired and weren't looked at.
    late: bool,
    /// There are more I/O threads than cores, so they take turns by chunks. Six threads on one core
    /// and another topic's message amid big fan-outs: p50 19 ms without that, 5 ms with it.
    crowded: bool,
    started: Instant,
    /// What its clock said then: that of a data plane that was taken over goes on.
    started_ms: u64,
    random: u64,
}

impl Parts {
    /// The descriptors that it shares with the thread that talks to the control plane.
    #[must_use]
    pub fn shared_descriptors(&self) -> [RawFd; 2] {
        [self.orders.fd(), self.reports.fd()]
    }
}

impl Reactor {
    /// A thread that isn't running yet.
    ///
    /// Its clock goes on from `now_ms`.
    pub fn new(
        parts: Parts,
        listener: OwnedFd,
        policy: Arc<Policy>,
        now_ms: u64,
    ) -> io::Result<Reactor> {
        let epoll = Epoll::new()?;
        epoll.add(parts.orders.fd(), sys::READ, MAILBOX)?;
        let number = u64::from(parts.number) + 1;
        Ok(Reactor {
            epoll,
            sender: Sender::default(),
            listening: false,
            accept_again_ms: 0,
            slab: Slab::default(),
            wheel: Wheel::new(now_ms, TICK_MS, BUCKETS),
            hub: Hub::new(crate::hub::Limits::of(&policy.settings)),
            fanout: Fanout::default(),
            chunk: Chunk::default(),
            maker: FrameMaker::new(&policy.settings),
            attachment: 0,
            batches: VecDeque::new(),
            drain: None,
            shed_from: 0,
            held_bytes: 0,
            account: Account::default(),
            close_above: usize::MAX,
            pongs: 0,
            counted: HashMap::new(),
            badges: Badges::default(),
            told: Vec::new(),
            told_since_ms: 0,
            doomed: Vec::new(),
            buffer: vec![0; READ_BYTES],
            texts: Texts::default(),
            inflater: None,
            now_ms,
            beaten: Vec::with_capacity(BEATS),
            late: false,
            crowded: parts.counters.len() > std::thread::available_parallelism()?.get(),
            started: Instant::now(),
            started_ms: now_ms,
            random: unix_ms().wrapping_mul(2 * number + 1) | 1,
            policy,
            listener,
            parts,
        })
    }

    /// What it is made of.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The descriptors that only this thread uses.
    #[must_use]
    pub fn own_descriptors(&self) -> Vec<RawFd> {
        vec![self.epoll.fd(), self.listener.as_raw_fd(), self.parts.hatch.as_raw_fd()]
    }

    /// Serve until drained.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let mut orders = Vec::new();
        let (sender, why) = Sender::new();
        self.sender = sender;
        if let Some(why) = why.filter(|_| self.parts.number == 0) {
            crate::tell!(Info, "each send is a system call of its own: no io_uring here ({why})");
        }
        while !self.is_drained() {
            let count = self.epoll.wait(&mut events, self.patience_ms())?.len();
            self.now_ms = self.started_ms + self.started.elapsed().as_millis() as u64;
            for event in &events[..count] {
                self.on_event(event.u64, event.events, &mut orders);
            }
            self.send_some();
            self.keep_within_budget();
            self.on_time();
            self.end_doomed();
            if count == 0 || self.has_gathered() {
                self.send_reports();
            }
            if self.crowded && self.is_busy() {
                std::thread::yield_now();
            }
        }
        self.note_sizes();
        self.tell(Report::Gone);
        self.send_reports();
        Ok(())
    }

    /// Something to tell, at the end of a turn.
    pub(crate) fn tell(&mut self, report: Report) {
        if self.told.is_empty() {
            self.told_since_ms = self.now_ms;
        }
        self.told.push(report);
    }

    fn has_gathered(&self) -> bool {
        self.told.len() >= GATHER || self.now_ms >= self.told_since_ms + GATHER_MS
    }

    /// Tell what there is to tell, now.
    pub(crate) fn send_reports(&mut self) {
        self.parts.reports.put_all(&mut self.told);
    }

    fn on_event(&mut self, token: u64, ready: u32, orders: &mut Vec<Order>) {
        match token {
            LISTENER => self.accept_some(),
            MAILBOX => {
                self.parts.orders.take(orders);
                for order in orders.drain(..) {
                    self.obey(order);
                    self.keep_within_budget();
                }
            }
            _ => {
                self.on_socket(token as u32, (token >> 32) as u32, ready);
                self.keep_within_budget();
            }
        }
    }

    fn on_socket(&mut self, slot: u32, generation: u32, ready: u32) {
        let Some(connection) = self.slab.find(slot, generation) else {
            return;
        };
        if ready & sys::WRITE != 0 && connection.blocked {
            self.flush(slot);
        }
        let Some(connection) = self.slab.find(slot, generation) else {
            return;
        };
        if ready & (sys::READ | sys::DEAD) != 0 {
            match connection.phase {
                Phase::Head => self.look_at_head(slot, ready & sys::ENDED != 0),
                _ => self.read(slot),
            }
        }
    }

    /// Whether there is more to do at once, whatever comes.
    fn is_busy(&self) -> bool {
        self.late || !self.told.is_empty() || self.fanout.is_busy()
    }

    fn patience_ms(&self) -> i32 {
        if self.is_busy() {
            return 0;
        }
        let mut wait = self.wheel.wait_ms(self.now_ms).unwrap_or(1_000).min(1_000);
        if self.drain.is_some() {
            wait = wait.min(DRAIN_STEP_MS);
        }
        if self.accept_again_ms > 0 {
            wait = wait.min(self.accept_again_ms.saturating_sub(self.now_ms));
        }
        wait as i32
    }

    fn on_time(&mut self) {
        self.late = true;
        let mut beaten = std::mem::take(&mut self.beaten);
        let most = if self.fanout.is_busy() { BEATS_BETWEEN } else { BEATS };
        for _ in 0..most {
            let Some(slot) = self.wheel.pop(self.now_ms) else {
                self.late = false;
                break;
            };
            match self.slab.at(slot).phase {
                Phase::Free => {}
                Phase::Head => {
                    self.count(Count::HandshakeTimeouts);
                    self.forget(slot);
                }
                Phase::Open => {
                    if self.beat(slot) {
                        beaten.push(slot);
                    }
                }
                Phase::Closing(_) => self.forget(slot),
            }
        }
        self.send_heartbeats(&beaten);
        beaten.clear();
        self.beaten = beaten;
        self.listen_again();
        self.send_some_away();
        self.renew_budget();
        self.note_sizes();
    }

    /// A reader's timer has fired: end it, or set the next; whether it is to get its heartbeat.
    fn beat(&mut self, slot: u32) -> bool {
        let heartbeat = u64::from(self.policy.settings.heartbeat_ms);
        let connection = self.slab.at(slot);
        let silent = self.now_ms.saturating_sub(u64::from(connection.heard) * HEARD_MS);
        let blocked = connection.blocked;
        if silent > 2 * heartbeat + HEARD_MS {
            self.close(slot, "no_pong", None);
            return false;
        }
        let mut next = self.now_ms + heartbeat;
        if let Some(end) = self.stall_ends_ms(slot) {
            if end <= self.now_ms {
                self.close(slot, "slow_reader", None);
                return false;
            }
            next = next.min(end);
        }
        if let Some(end) = self.badge_ends_ms(slot) {
            if end <= self.now_ms {
                self.close(slot, "token_expired", None);
                return false;
            }
            next = next.min(end);
        }
        if let Some(end) = self.message_ends_ms(slot) {
            if end <= self.now_ms {
                self.slab.at(slot).decoder = Decoder::default();
                self.close(slot, "unfinished", None);
                return false;
            }
            next = next.min(end);
        }
        self.wheel.set(slot, next);
        !blocked
    }

    /// When a connection's badge runs out, by this thread's clock; `None` if that is never.
    pub(crate) fn badge_ends_ms(&self, slot: u32) -> Option<u64> {
        let expires_ms = self.badges.of(slot)?.expires_ms();
        let left = expires_ms.saturating_sub(unix_ms());
        (expires_ms > 0).then(|| self.now_ms.saturating_add(left))
    }

    /// End those whose sockets turned out to be dead while something else was under way.
    pub(crate) fn end_doomed(&mut self) {
        while let Some((slot, generation)) = self.doomed.pop() {
            if self.slab.find(slot, generation).is_some() {
                self.lose(slot);
            }
        }
    }

    /// The transport is gone, and that wasn't our doing unless a goodbye was said.
    pub(crate) fn lose(&mut self, slot: u32) {
        if self.slab.at(slot).phase == Phase::Open {
            self.leave(slot, "lost", Ending::HangUp);
        }
        self.forget(slot);
    }

    /// An open connection leaves the hub. It doesn't count as a reader any more.
    pub(crate) fn leave(&mut self, slot: u32, why: &str, ending: Ending) {
        self.hub.leave(slot);
        self.badges.take_off(slot);
        let connection = self.slab.at(slot);
        connection.phase = Phase::Closing(ending);
        let framing = connection.framing;
        if let Some(extra) = connection.extra.as_deref_mut() {
            let asked = extra.asked.take();
            self.held_bytes -= asked.map_or(0, |verb| verb.len());
            extra.waiting.clear();
            extra.ping = None;
            self.held_bytes -= std::mem::take(&mut extra.waiting_bytes);
        }
        self.counters().take(match framing {
            Framing::Raw => Count::ReadersWebSocket,
            Framing::SockJs => Count::ReadersSockJs,
        });
        self.counters().closed(why);
        self.count(Count::Closing);
    }

    /// Close the socket and free the slot.
    pub(crate) fn forget(&mut self, slot: u32) {
        sys::close(self.slab.at(slot).fd);
        self.release(slot);
    }

    /// Free the slot of a connection whose socket is closed, or somebody else's.
    pub(crate) fn release(&mut self, slot: u32) {
        if matches!(self.slab.at(slot).phase, Phase::Closing(_)) {
            self.counters().take(Count::Closing);
        }
        if let Some(address) = self.counted.remove(&slot) {
            self.parts.addresses.leave(address);
        }
        self.wheel.cancel(slot);
        if let Some(extra) = &self.slab.at(slot).extra {
            extra.outbox.leave(&mut self.account);
        }
        self.slab.remove(slot);
        self.counters().connections.store(self.slab.len() as u64, Relaxed);
    }

    pub(crate) fn listen(&mut self) {
        if !self.listening && self.drain.is_none() {
            let listener = self.listener.as_raw_fd();
            self.listening = self.epoll.add(listener, sys::READ, LISTENER).is_ok();
        }
    }

    pub(crate) fn listen_no_more(&mut self) {
        if self.listening {
            // It can only fail when it isn't there.
            let _ = self.epoll.remove(self.listener.as_raw_fd());
            self.listening = false;
        }
    }

    fn listen_again(&mut self) {
        if self.accept_again_ms > 0 && self.accept_again_ms <= self.now_ms {
            self.accept_again_ms = 0;
            self.listen();
        }
    }

    fn send_some_away(&mut self) {
        let Some(mut pace) = self.drain.take() else {
            return;
        };
        let slots = self.slab.slots();
        for _ in 0..pace.due(self.now_ms) {
            while pace.next_slot < slots && self.slab.at(pace.next_slot).phase != Phase::Open {
                pace.next_slot += 1;
            }
            if pace.next_slot >= slots {
                break;
            }
            self.send_away(pace.next_slot);
        }
        if pace.is_over(self.now_ms) {
            // Handshakes that were under way when the drain began.
            for slot in 0..slots {
                match self.slab.at(slot).phase {
                    Phase::Open => self.send_away(slot),
                    Phase::Head => self.forget(slot),
                    _ => {}
                }
            }
        }
        self.drain = Some(pace);
    }

    fn send_away(&mut self, slot: u32) {
        // Full jitter around the reason's own time, so that they don't come back in one second.
        let usual = self.policy.reason("drain").retry_after_ms;
        let wait = (u64::from(self.random()) * (2 * u64::from(usual) + 1)) >> 32;
        self.close(slot, "drain", Some(wait as u32));
    }

    /// Send `count` readers away, each other ones than the last time as long as there are some.
    pub(crate) fn shed(&mut self, reason: &str, count: u32, retry_ms: u32) {
        let slots = self.slab.slots();
        let mut left = count;
        for _ in 0..slots {
            if left == 0 {
                break;
            }
            self.shed_from = if self.shed_from >= slots { 0 } else { self.shed_from };
            let slot = self.shed_from;
            self.shed_from += 1;
            if self.slab.at(slot).phase == Phase::Open {
                let wait = (u64::from(self.random()) * (u64::from(retry_ms) + 1)) >> 32;
                self.close(slot, reason, Some(wait as u32));
                left -= 1;
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.drain.as_ref().is_some_and(|pace| pace.is_over(self.now_ms)) && self.slab.is_empty()
    }

    fn note_sizes(&mut self) {
        let counters = &self.parts.counters[usize::from(self.parts.number)];
        let note = |to: &AtomicU64, value: usize| to.store(value as u64, Relaxed);
        note(&counters.topics, self.hub.topics());
        note(&counters.memory_bytes, self.hub.memory_bytes());
        note(&counters.identities, self.hub.identities());
        note(&counters.held_bytes, self.held_bytes);
        note(&counters.outbox_bytes, self.account.bytes());
        note(&counters.copies, self.hub.copies() as usize);
        note(&counters.evicted_early, self.hub.evicted_early() as usize);
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.parts.counters[usize::from(self.parts.number)]
    }

    pub(crate) fn count(&self, what: Count) {
        self.counters().add(what);
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.policy.settings
    }

    pub(crate) fn name_of(&mut self, slot: u32) -> ConnectionId {
        let generation = self.slab.at(slot).generation;
        ConnectionId { thread: self.parts.number, slot, generation }
    }

    pub(crate) fn extra(&mut self, slot: u32) -> &mut Extra {
        self.slab.extra(slot, &self.policy)
    }

    pub(crate) fn epoll_token(slot: u32, generation: u32) -> u64 {
        u64::from(generation) << 32 | u64::from(slot)
    }

    /// xorshift64*: for phases and jitter, not for secrets.
    pub(crate) fn random(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }
}

/// ms since the epoch.
#[must_use]
pub fn unix_ms() -> u64 {
    unix_us() / 1_000
}

/// Microseconds since the epoch.
#[must_use]
pub fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
